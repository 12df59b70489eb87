"""Fusion rules by name: uploads in, a predictor out."""

from collections.abc import Callable

from fedshot.errors import unknown
from fedshot.fusion.average import average
from fedshot.fusion.distil import distilled
from fedshot.fusion.features import (
    batch_moments,
    dynamic_prototypes,
    features,
    moments,
    nearest_prototype,
    noise_informed,
    released,
)
from fedshot.fusion.outputs import Outputs
from fedshot.fusion.routed import common, routed
from fedshot.fusion.rule import Fusion, Member, Predictor, models_of, transductive
from fedshot.fusion.split import shared_base
from fedshot.fusion.transport import otfusion
from fedshot.fusion.votes import class_weighted, logits, probabilities, typicality
from fedshot.options import bind, parse_inline

__all__ = [
    "FUSIONS",
    "Fusion",
    "Member",
    "Outputs",
    "Predictor",
    "average",
    "batch_moments",
    "class_weighted",
    "common",
    "distilled",
    "dynamic_prototypes",
    "features",
    "fusion_factory",
    "logits",
    "make_fusion",
    "models_of",
    "moments",
    "nearest_prototype",
    "noise_informed",
    "otfusion",
    "probabilities",
    "released",
    "routed",
    "shared_base",
    "transductive",
    "typicality",
]

FUSIONS: dict[str, Callable[..., Fusion]] = {
    "average": average,
    "otfusion": otfusion,
    "features": features,
    "dynamic_prototypes": dynamic_prototypes,
    "noise_informed": noise_informed,
    "released": released,
    "logits": logits,
    "probabilities": probabilities,
    "class_weighted": class_weighted,
    "typicality": typicality,
    "common": common,
    "routed": routed,
    "moments": moments,
    "batch_moments": batch_moments,
    "nearest_prototype": nearest_prototype,
    "shared_base": shared_base,
    "distilled": distilled,
}


def fusion_factory(name: str) -> Callable[..., Fusion]:
    if name not in FUSIONS:
        raise unknown("fusion rule", name, FUSIONS)
    return FUSIONS[name]


def make_fusion(text: str) -> Fusion:
    """A rule from its name, with options after a colon.

    >>> make_fusion("features:weights=uniform,scale=unit").name
    'features'
    """
    name, _, settings = text.partition(":")
    factory, what = fusion_factory(name), f"fusion rule {name!r}"
    return bind(factory, parse_inline(settings, what), what)
