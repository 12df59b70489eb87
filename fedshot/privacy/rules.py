"""Which fusion rules read class counts, and for what."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from fedshot.fusion import FUSIONS, Fusion
from fedshot.options import parse_inline, resolve
from fedshot.spec import Spec

Use = Literal["nothing", "weighs", "decides"]
Options = Mapping[str, Any]


def _by_prototypes(options: Options) -> Use:
    return "weighs" if options["prototypes"] == "class_counts" else "nothing"


def _shared_base(options: Options) -> Use:
    if options["shared"] in ("similarity", "least"):
        return "decides"
    return "weighs" if options["vote"] == "class_weighted" else "nothing"


def _distilled(options: Options) -> Use:
    if options["calibrate"]:
        return "decides"
    uses = _use(options["teacher"].replace(";", ","), {})
    return "weighs" if uses == "nothing" and options["beside"] == "common" else uses


# A rule that weighs clients by class counts can weigh them by all their images instead. A rule that decides something
# by them (what is shared, how rare a class is) would decide the same for any clients.
_USES: dict[str, Callable[[Options], Use]] = {
    "average": lambda options: "nothing",
    "otfusion": lambda options: "nothing",
    "features": _by_prototypes,
    "dynamic_prototypes": lambda options: "nothing" if options["unseen"] else "weighs",
    "noise_informed": _by_prototypes,
    "released": _by_prototypes,
    "logits": lambda options: "nothing",
    "probabilities": lambda options: "nothing",
    "class_weighted": lambda options: "weighs",
    "typicality": lambda options: "weighs",
    "moments": _by_prototypes,
    "batch_moments": _by_prototypes,
    "nearest_prototype": lambda options: "weighs",
    "shared_base": _shared_base,
    "distilled": _distilled,
    "single": lambda options: "weighs",
    "common": lambda options: "weighs",
    "routed": lambda options: "weighs",
}


def use_of_counts(spec: Spec, fusion: Fusion) -> Use:
    """What a run's rule does with class counts. A rule of a user's own is taken to weigh by them."""
    text = spec.fusion or fusion.name
    if fusion.name not in _USES or text.partition(":")[0] != fusion.name:
        return "weighs"
    return _use(text, spec.options if text == fusion.name else {})


def _use(text: str, of_method: Options) -> Use:
    """Args: of_method: options of the method, which may be those of its own rule."""
    name, _, inline = text.partition(":")
    if name not in _USES:
        return "weighs"
    what = f"fusion rule {name!r}"
    options = resolve(FUSIONS[name], parse_inline(inline, what), what)
    return _USES[name]({**options, **{key: value for key, value in of_method.items() if key in options}})
