"""Fusion rules by name: uploads in, a predictor out."""

import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from fedshot.errors import UserError, unknown
from fedshot.fusion.average import average
from fedshot.fusion.distil import distilled, single
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
from fedshot.fusion.rule import Combine, Fusion, Member, Predictor, models_of, transductive
from fedshot.fusion.split import shared_base
from fedshot.fusion.transport import otfusion
from fedshot.fusion.votes import class_weighted, logits, probabilities, typicality
from fedshot.options import bind, parse_inline
from fedshot.task import Task
from fedshot.user_file import blamed, file_of, function_in, split_reference

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
    "single",
    "transductive",
    "typicality",
    "without_training",
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
    "single": single,
}


def without_training() -> list[str]:
    """The rules that train nothing: what is tried where none is named."""
    return [name for name, make in FUSIONS.items() if not make().trains]


def fusion_factory(name: str) -> Callable[..., Fusion]:
    """The function that makes a rule: from FUSIONS, or from a file FILE.py or FILE.py:function."""
    if file := file_of(name):
        wanted = name.removeprefix(file).removeprefix(":")
        return function_in(file, wanted, "fusion rule", "that returns a Fusion", _returns_fusion)
    if name not in FUSIONS:
        raise unknown("fusion rule", name, FUSIONS)
    return FUSIONS[name]


def make_fusion(text: str) -> Fusion:
    """A rule from its name, or from a file of the user's, with options after a colon.

    >>> make_fusion("features:weights=uniform,scale=unit").name
    'features'
    """
    name, settings = split_reference(text)
    what = f"fusion rule {name!r}"
    with blamed(name):
        made = bind(fusion_factory(name), parse_inline(settings, what), what)
    if not isinstance(made, Fusion):
        raise UserError(f"{name} must return a Fusion, not {made!r}")
    return _watched(made, name) if file_of(name) else made


def _watched(rule: Fusion, name: str) -> Fusion:
    """A rule of the user's whose mistakes are told with the line of its file."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        with blamed(name):
            predictor = rule.fuse(members, task)
        if not isinstance(predictor, Predictor):
            raise UserError(f"{name}: its fuse must return a Predictor, not {predictor!r}")

        def watched(combine: Combine) -> Combine:
            def scores(outputs: Outputs) -> Tensor:
                with blamed(name):
                    found = combine(outputs)
                wanted = (outputs.logits.shape[1], task.classes)
                if not isinstance(found, Tensor) or tuple(found.shape) != wanted:
                    told = tuple(found.shape) if isinstance(found, Tensor) else repr(found)
                    raise UserError(f"{name}: scores must be a tensor of images × classes, here {wanted}, not {told}")
                if odd := int((~found.isfinite().all(1)).sum()):
                    raise UserError(f"{name}: the scores of {odd} of {len(found)} images are not all finite numbers")
                return found

            return scores

        reads, told = predictor.study, replace(predictor, combine=watched(predictor.combine))
        if reads is None:
            return told

        def study(everything: Iterable[Outputs]) -> Combine:
            with blamed(name):
                return watched(reads(everything))

        return replace(told, study=study)

    return replace(rule, fuse=fuse)


def _returns_fusion(function: Callable[..., object]) -> bool:
    return typing.get_type_hints(function).get("return") is Fusion
