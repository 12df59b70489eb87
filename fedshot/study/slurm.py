"""A study on a cluster, through submitit: one SLURM job for each run, or for all runs that share their clients."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fedshot.errors import UserError
from fedshot.experiment import Execution, run_all
from fedshot.record import Record
from fedshot.sharing import family_of
from fedshot.spec import Spec
from fedshot.study.lock import among_jobs_in, turn_for
from fedshot.study.plan import Planned, clear_begun, stored


def submit(
    plan: Sequence[Planned], out: Path, execution: Execution, parameters: Mapping[str, str], array: bool
) -> list[str]:
    """Submits what is left of a plan and returns the names of the jobs, in the order of the plan.

    Runs that differ only in the fusion rule are one job: their clients are trained once.

    Args:
        parameters: of submitit's executor, such as timeout_min or slurm_partition.
        array: whether all jobs are one array.
    """
    try:
        submitit = import_module("submitit")
    except ImportError:
        raise UserError("--slurm needs submitit, which is not installed: pip install 'fedshot[slurm]'") from None
    executor = submitit.AutoExecutor(folder=str(out / "slurm"))
    try:
        executor.update_parameters(**{key: _number_or_text(value) for key, value in parameters.items()})
    except (TypeError, ValueError, NameError) as error:
        raise UserError(f"--slurm-set: submitit refuses it: {error}") from None
    families: dict[str, dict[Path, Planned]] = {}
    for planned in plan:
        if planned.state != "done":
            families.setdefault(family_of(planned.spec), {})[planned.folder] = planned
    if not families:
        return []
    specs = [[planned.spec.model_dump_json() for planned in family.values()] for family in families.values()]
    folders = [[str(folder) for folder in family] for family in families.values()]
    outs, executions = [str(out)] * len(families), [execution] * len(families)
    if array:
        jobs = executor.map_array(run_family, specs, folders, outs, executions)
    else:
        jobs = [executor.submit(run_family, *job) for job in zip(specs, folders, outs, executions, strict=True)]
    return [str(job.job_id) for job in jobs]


def run_family(specs: Sequence[str], folders: Sequence[str], out: str, execution: Execution) -> list[float]:
    """The work of a job: runs that share their clients; returns the accuracies.

    A second job of the same runs waits, and finds them finished.
    """
    requests = [(Spec.model_validate_json(s), Path(folder)) for s, folder in zip(specs, folders, strict=True)]
    lock = Path(out) / "locks" / family_of(requests[0][0])
    with among_jobs_in(Path(out)), turn_for(lock):
        for _, folder in requests:
            clear_begun(folder)
        outcomes = run_all(requests, replace(execution, resume=True), donors=stored(Path(out)))
    if failures := [outcome for outcome in outcomes if isinstance(outcome, Exception)]:
        raise failures[0]
    return [outcome.final.accuracy for outcome in outcomes if isinstance(outcome, Record)]


def _number_or_text(value: str) -> Any:
    return int(value) if value.isdecimal() else value
