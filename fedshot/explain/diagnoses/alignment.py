"""What the alignment did to the prototypes: did they turn to the anchors, or only become shorter?"""

import math
from collections.abc import Sequence

from fedshot.explain.commands import again
from fedshot.explain.finding import Fact, Finding, Series, listed
from fedshot.explain.run import Row, Run, complete

FEWEST_EPOCHS = 5  # in fewer nothing has had time to move
TURNED = 0.1  # a random direction in d = 512 is at cosine 0 ± 0.044 / √C: less than 0.1 is no alignment to speak of
REACHED = 0.9  # prototypes that are at their anchors need not move any more
SHORTER = 0.02  # without an alignment term the length changes by less than 0.5 % (fafi on digits, 30 epochs)
SHRUNK = 0.5  # half the length doubles the temperature of the softmax
UNSURE = 0.99  # above it the bound on the confidence binds nobody


def alignment_without_effect(run: Run) -> list[Finding]:
    """λ acted, and neither the direction nor the length of the prototypes changed."""
    found = {client: rows for client, rows in _aligned(run).items() if _still(rows) and _shortened(rows) < SHORTER}
    if not found:
        return []
    worst = max(found, key=lambda client: max(row["lambda_effective"] for row in found[client]))
    rows = found[worst]
    return [
        Finding(
            "alignment_without_effect",
            "warning",
            f"The alignment had no effect in {listed([*found], 'client')}: the cosine of prototypes and anchors went "
            f"from {rows[0]['cos_prototype_anchor']:.3f} to {rows[-1]['cos_prototype_anchor']:.3f} in client {worst}, "
            f"their length by {-_shortened(rows):+.1%}.",
            (*_facts(rows), Fact("largest λ", max(row["lambda_effective"] for row in rows))),
            "The gradient of the MSE is 2λ(p_c − a_c)/(C·d) for each prototype: at this λ and number of steps it "
            "moves nothing, and it has no gradient to the encoder, so there is no other way in which it could act.",
            (
                f"Measure the direction alone, whose gradient does not depend on the anchors' length: {_cosine(run)}",
                f"Check that it does nothing: {again(run.record.spec, {'alignment.weight': 0})}",
            ),
            tuple(found),
            _epochs(rows),
            _plots(rows, worst),
        )
    ]


def alignment_is_weight_decay(run: Run) -> list[Finding]:
    """The prototypes became shorter and did not turn to the anchors."""
    found = {client: rows for client, rows in _aligned(run).items() if _still(rows) and _shortened(rows) >= SHORTER}
    if not found:
        return []
    worst = max(found, key=lambda client: _shortened(found[client]))
    rows = found[worst]
    return [
        Finding(
            "alignment_is_weight_decay",
            "warning",
            f"The alignment acted as weight decay in {listed([*found], 'client')}: in client {worst} the prototypes "
            f"became {_shortened(rows):.1%} shorter and their cosine with the anchors went from "
            f"{rows[0]['cos_prototype_anchor']:.3f} to {rows[-1]['cos_prototype_anchor']:.3f}.",
            (Fact("shortening of the prototypes", _shortened(rows), "%", f"≥ {SHORTER:.0%}"), *_facts(rows)),
            "A prototype drawn from N(0, I) has length √d, an anchor length 1, so the gradient 2λ(p_c − a_c)/(C·d) "
            "points along p_c: it shortens about √d times more than it turns.",
            (
                f"The control, pure decay: {again(run.record.spec, {'alignment.anchors': 'zero'})}",
                f"Anchors as long as the prototypes: {again(run.record.spec, {'alignment.anchors': 'etf_scaled'})}",
                f"Direction alone: {_cosine(run)}",
            ),
            tuple(found),
            _epochs(rows),
            _plots(rows, worst),
        )
    ]


def prototypes_shrunk(run: Run) -> list[Finding]:
    """Prototypes less than half as long as at first: logits and confidence are bounded by that length."""
    classes = len(run.tests)
    found = {}
    for client, telemetry in run.rows.items():
        rows = complete(telemetry, "prototype_norm")
        short = len(rows) >= FEWEST_EPOCHS and rows[-1]["prototype_norm"] < SHRUNK * rows[0]["prototype_norm"]
        if short and _confidence_bound(rows[-1]["prototype_norm"], classes) < UNSURE:
            found[client] = rows
    if not found:
        return []
    worst = min(found, key=lambda client: found[client][-1]["prototype_norm"])
    rows = found[worst]
    first, last = rows[0]["prototype_norm"], rows[-1]["prototype_norm"]
    bound = _confidence_bound(last, classes)
    return [
        Finding(
            "prototypes_shrunk",
            "severe" if bound < 0.9 else "warning",
            f"The prototypes of client {worst} shrank from length {first:.3g} to {last:.3g}: its logits lie within "
            f"±{last:.2g}, and it cannot be more than about {bound:.0%} sure of anything.",
            (
                Fact("length against the first epoch", last / first, "×", f"< {SHRUNK:g}"),
                Fact("highest confidence, 1/(1 + (C−1)e^(−2‖p‖))", bound, "%"),
                Fact("classes C", classes),
            ),
            "The logits are f·p_c with unit features f, so |z_c| ≤ ‖p_c‖: the length of the prototypes is the inverse "
            "temperature of the softmax. In a mean over clients these prototypes also weigh less.",
            (
                f"Leave the alignment out: {again(run.record.spec, {'alignment.weight': 0})}"
                if "alignment.weight" in run.record.spec.options
                else "Look at what shortens the prototypes: weight decay, or a large λ.",
            ),
            tuple(found),
            _epochs(rows),
            (_plot(f"length, client {worst}", rows, "prototype_norm"),),
        )
    ]


def _confidence_bound(length: float, classes: int) -> float:
    """The most that softmax gives a class whose logits f·p_c lie within ± that length."""
    return 1 / (1 + (classes - 1) * math.exp(-2 * length))


def _aligned(run: Run) -> dict[int, list[dict[str, float]]]:
    """The clients in which an alignment of prototypes acted over enough epochs."""
    if str(run.record.spec.options.get("alignment.measure")).startswith("features"):
        return {}
    found = {client: _geometry(rows) for client, rows in run.rows.items()}
    return {
        client: rows
        for client, rows in found.items()
        if len(rows) >= FEWEST_EPOCHS and any(row["lambda_effective"] > 0 for row in rows)
    }


def _geometry(rows: Sequence[Row]) -> list[dict[str, float]]:
    return complete(rows, "cos_prototype_anchor", "prototype_norm", "lambda_effective")


def _still(rows: list[dict[str, float]]) -> bool:
    first, last = (rows[place]["cos_prototype_anchor"] for place in (0, -1))
    return abs(last - first) < TURNED and last < REACHED


def _shortened(rows: list[dict[str, float]]) -> float:
    return 1 - rows[-1]["prototype_norm"] / max(rows[0]["prototype_norm"], 1e-12)


def _facts(rows: list[dict[str, float]]) -> tuple[Fact, ...]:
    first, last = (rows[place]["cos_prototype_anchor"] for place in (0, -1))
    return (
        Fact("change of the cosine", last - first, "", f"< {TURNED:g}"),
        Fact("length of the prototypes", f"{rows[0]['prototype_norm']:.3g} → {rows[-1]['prototype_norm']:.3g}"),
    )


def _cosine(run: Run) -> str:
    return again(run.record.spec, {"alignment.measure": "cosine"})


def _epochs(rows: list[dict[str, float]]) -> tuple[int, int]:
    return int(rows[0]["epoch"]), int(rows[-1]["epoch"])


def _plots(rows: list[dict[str, float]], client: int) -> tuple[Series, ...]:
    return (
        _plot(f"cosine, client {client}", rows, "cos_prototype_anchor"),
        _plot("length", rows, "prototype_norm"),
    )


def _plot(label: str, rows: list[dict[str, float]], name: str) -> Series:
    return Series(label, tuple(int(row["epoch"]) for row in rows), tuple(row[name] for row in rows))
