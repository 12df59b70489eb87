"""Diagnoses by the name of their finding: pure functions from a loaded run to findings, silent without evidence.

A new one is a function and a line here; nothing else knows them by name.
"""

from collections.abc import Callable

from fedshot.explain.diagnoses import (
    alignment,
    clients,
    clipping,
    collapse,
    conflict,
    explosion,
    habits,
    head,
    losses,
    partition,
    prediction,
    score,
    stages,
    student,
    weighting,
)
from fedshot.explain.finding import Finding
from fedshot.explain.run import Run

Diagnosis = Callable[[Run], list[Finding]]

DIAGNOSES: dict[str, Diagnosis] = {
    "lambda_explosion": explosion.lambda_explosion,
    "annealing_cancelled": weighting.annealing_cancelled,
    "lambda_tracks_losses": weighting.lambda_tracks_losses,
    "lambda_lags": weighting.lambda_lags,
    "hidden_rate_cut": weighting.hidden_rate_cut,
    "clipping_couples": clipping.clipping_couples,
    "alignment_without_effect": alignment.alignment_without_effect,
    "alignment_is_weight_decay": alignment.alignment_is_weight_decay,
    "prototypes_shrunk": alignment.prototypes_shrunk,
    "holders_outweighed": head.holders_outweighed,
    "equal_terms": losses.equal_terms,
    "dead_term": losses.dead_term,
    "gradient_conflict": conflict.gradient_conflict,
    "feature_collapse": collapse.feature_collapse,
    "prototype_collapse": collapse.prototype_collapse,
    "neural_collapse": collapse.neural_collapse,
    "published_habits": habits.published_habits,
    "clients_overlap": partition.clients_overlap,
    "class_nobody_holds": partition.class_nobody_holds,
    "client_diverged": clients.client_diverged,
    "client_skipped": clients.client_skipped,
    "client_hardly_trained": clients.client_hardly_trained,
    "class_never_predicted": prediction.class_never_predicted,
    "favours_largest_client": prediction.favours_largest_client,
    "miscalibrated": prediction.miscalibrated,
    "routing_loss": prediction.routing_loss,
    "judged_by_few": prediction.judged_by_few,
    "student_behind": student.student_behind,
    "overtraining": score.overtraining,
    "idle_epochs": score.idle_epochs,
    "stage_taught_nothing": stages.stage_taught_nothing,
    "transductive_score": score.transductive_score,
    "tested_on_another_kind": score.tested_on_another_kind,
    "more_than_one_phase": score.more_than_one_phase,
}
