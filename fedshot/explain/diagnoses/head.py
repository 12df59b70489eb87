"""What the mean head is made of: prototypes of clients that know a class, and of those that never saw it."""

import torch
from torch import Tensor

from fedshot.explain.commands import again, command
from fedshot.explain.diagnoses.geometry import prototypes_in
from fedshot.explain.finding import Fact, Finding
from fedshot.explain.run import Run

OUTWEIGHED = 0.25  # FAFI's prototypes stay about as long as they were: 0.6 to 1.0 on digits, 30 and 200 epochs

_MEAN_PROTOTYPES = ("features", "noise_informed", "released", "moments", "batch_moments")  # rules that take their mean


def takes_the_mean(run: Run) -> bool:
    """Whether the rule classifies by prototypes in which every client counts alike, whatever it holds."""
    name, _, options = run.record.final.fusion.partition(":")
    return name in _MEAN_PROTOTYPES and "prototypes" not in options


def holders_outweighed(run: Run) -> list[Finding]:
    """The fused prototypes of most classes come from clients that never saw them."""
    known = _lengths(run) if takes_the_mean(run) else None
    if known is None:
        return []
    lengths, held = known
    some = held.any(0) & ~held.all(0)  # classes that some clients hold, but not all
    power = lengths.square()
    shares = ((power * held).sum(0) / power.sum(0))[some]
    against = shares / held.double().mean(0)[some]  # 1 where all prototypes of a class are equally long
    outweighed = int((against < OUTWEIGHED).sum())
    if 2 * outweighed <= len(shares):
        return []
    own, foreign = float(lengths[held].mean()), float(lengths[~held].mean())
    return [
        Finding(
            "holders_outweighed",
            "severe",
            "The fused prototypes are those of clients that never saw the class: holders have "
            f"{shares.median():.1%} of them (median over classes), because theirs are {own:.3g} long and the others' "
            f"{foreign:.3g}.",
            (
                Fact("holders' share, Σ_holders ‖p_kc‖² / Σ_k ‖p_kc‖²", float(shares.median()), "%"),
                Fact("against their share of the clients", float(against.median()), "×", f"< {OUTWEIGHED:g}"),
                Fact("classes of which that is true", f"{outweighed} of {len(shares)}", "", "more than half"),
                Fact("mean length of prototypes of classes that a client holds", own),
                Fact("of classes that it does not hold", foreign),
            ),
            f"The rule {run.record.final.fusion} classifies by the mean of all clients' prototypes. One that was never "
            "trained keeps its direction, which is chance, and its length √d but for weight decay; an alignment to "
            "unit anchors over the classes of a batch shortens those that were. In the mean the former weigh most. No "
            "client notices: its own classes are decided among its own prototypes.",
            (
                "Let holders alone make the prototype of a class, without training again: "
                + command("fuse", run.path, "-f", "features:prototypes=class_counts", "-f", "dynamic_prototypes"),
                *_without_shortening(run),
            ),
        )
    ]


def _without_shortening(run: Run) -> tuple[str, ...]:
    spec = run.record.spec
    if "alignment.anchors" not in spec.options:
        return ()
    return (f"Draw prototypes to anchors as long as they are: {again(spec, {'alignment.anchors': 'etf_scaled'})}",)


def _lengths(run: Run) -> tuple[Tensor, Tensor] | None:
    """Lengths of the fused clients' prototypes, (K, C), and which classes each holds; None where some are unknown."""
    if not run.class_counts or run.division.unknown:
        return None
    found = [prototypes_in(run, client) for client in run.fused]
    lengths = [p.double().norm(dim=1) for p in found if p is not None]
    if not lengths or len(lengths) < len(found):
        return None
    return torch.stack(lengths), torch.tensor([run.class_counts[client] for client in run.fused]) > 0
