"""Where the prototypes of a run lie: their cosines beside those of a simplex ETF, and a projection to the plane."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot.report.telemetry import rounded

if TYPE_CHECKING:
    from torch import Tensor

    from fedshot.record import Record

_NAMES = ("weights/head.prototypes", "weights/head.prototype.prototypes")  # of a prototype head and of a dual head
MOST_POINTS = 600  # in the plane


def read_prototypes(folder: Path, record: "Record") -> "dict[int, Tensor]":
    """Prototypes (C, d) of each fused client, from the uploads of a run; empty where there are none to be read."""
    from safetensors import SafetensorError, safe_open

    from fedshot.precision import unpack

    found = {}
    for client in (client.id for client in record.clients if client.skipped is None):
        file = folder / "clients" / str(client) / "upload.safetensors"
        try:
            with safe_open(file, "pt") as tensors:
                name = next((name for name in _NAMES if name in tensors.keys()), None)  # noqa: SIM118
                if name is None:
                    return {}
                packed = {key: tensors.get_tensor(key) for key in tensors.keys() if key.startswith(name)}  # noqa: SIM118
        except (OSError, SafetensorError):
            continue
        found[client] = unpack(packed)[name]
    return found


def geometry(prototypes: "dict[int, Tensor]", record: "Record") -> dict[str, Any] | None:
    """What a page shows of prototypes (C, d) of each client; None without any.

    Returns: `cosines` (C, C) of the mean prototypes in hundredths; `etf`, the cosine of every pair in a simplex ETF;
    `apart`, the mean distance of the pairs' cosines from it; `anchor`, the cosine of each mean prototype with its
    anchor, where the anchors can be made again; `plane`, rows of client (-1 for the mean), class, x, y: the two leading
    principal directions of the mean prototypes; `share` of their variance.
    """
    import torch
    from torch.nn.functional import normalize

    if not prototypes:
        return None
    stacked = torch.stack([normalize(rows.double(), dim=1) for rows in prototypes.values()])  # (K, C, d)
    mean = normalize(stacked.mean(0), dim=1)
    classes = len(mean)
    if classes < 2:
        return None
    cosines, etf = mean @ mean.T, -1 / (classes - 1)
    pairs = cosines[~torch.eye(classes, dtype=torch.bool)]
    centre = mean.mean(0)
    _, scale, directions = torch.linalg.svd(mean - centre, full_matrices=False)
    plane = directions[:2].T  # (d, 2)
    plane = plane * plane.gather(0, plane.abs().argmax(0, keepdim=True)).sign()  # the solver's signs are arbitrary
    targets = _anchors(record, *mean.shape)
    return {
        "cosines": (100 * cosines).round().int().tolist(),
        "etf": rounded(etf),
        "apart": rounded(float((pairs - etf).abs().mean()), 2),
        "anchor": None if targets is None else [rounded(v, 3) for v in (mean * targets).sum(1).tolist()],
        "plane": _points([-1, *prototypes], torch.cat([mean[None], stacked]), centre, plane),
        "share": rounded(float((scale[:2] ** 2).sum() / (scale**2).sum().clamp(min=1e-12)), 3),
    }


def _points(owners: Sequence[int], stacked: "Tensor", centre: "Tensor", plane: "Tensor") -> list[list[Any]]:
    places = ((stacked - centre) @ plane).tolist()  # (owners, C, 2)
    rows = [
        [owner, label, rounded(x, 3), rounded(y, 3)]
        for owner, of_owner in zip(owners, places, strict=True)
        for label, (x, y) in enumerate(of_owner)
    ]
    return rows[:MOST_POINTS]


def _anchors(record: "Record", classes: int, width: int) -> "Tensor | None":
    """Unit anchors of the run, where its options name a kind that is drawn from the seed."""
    from torch.nn.functional import normalize

    from fedshot.local.anchors import DRAWN, anchors

    kinds = [value for key, value in record.spec.options.items() if key.rpartition(".")[2] == "anchors"]
    if not kinds or kinds[0] not in DRAWN or kinds[0] == "zero" or classes > width + 1:
        return None
    return normalize(anchors(kinds[0], classes, width, record.spec.seed).double(), dim=1)
