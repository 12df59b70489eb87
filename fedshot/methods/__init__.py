"""Methods by name. A method is composed of small parts; a variant is its parent with one part replaced."""

import typing
from collections.abc import Callable, Mapping
from typing import Any

from fedshot.errors import UserError, unknown
from fedshot.method import Method
from fedshot.methods.align_uniform import align_uniform
from fedshot.methods.annealed_anchors import annealed_anchors
from fedshot.methods.aurora import aurora
from fedshot.methods.balanced_contrast import balanced_contrast
from fedshot.methods.baselines import ensemble, fedavg, fedproto, otfusion
from fedshot.methods.distilled import distilled
from fedshot.methods.dual_head import dual_head
from fedshot.methods.dynamic_prototypes import dynamic_prototypes
from fedshot.methods.etf import etf
from fedshot.methods.etf_annealed_uncertainty import etf_annealed_uncertainty
from fedshot.methods.etf_decoupled import etf_decoupled
from fedshot.methods.etf_entropy import etf_entropy
from fedshot.methods.etf_regularised import etf_regularised
from fedshot.methods.etf_uncertainty import etf_uncertainty
from fedshot.methods.fafi import fafi
from fedshot.methods.fedetf import fedetf
from fedshot.methods.gated_supcon import gated_supcon
from fedshot.methods.hard_negatives import hard_negatives
from fedshot.methods.memory_bank import memory_bank, memory_bank_sound
from fedshot.methods.public_bank import public_bank, public_bank_sound
from fedshot.methods.random_anchors import random_anchors
from fedshot.methods.raw_supcon import raw_supcon
from fedshot.methods.recommended import recommended
from fedshot.methods.reference_alignment import reference_alignment
from fedshot.methods.sliding_anchors import sliding_anchors
from fedshot.methods.split_announced import split_announced
from fedshot.methods.split_local import split_local
from fedshot.methods.two_stage_bank import two_stage_bank, two_stage_bank_sound
from fedshot.options import bind, parse_inline
from fedshot.user_file import blamed, file_of, function_in, split_reference

METHODS: dict[str, Callable[..., Method]] = {
    "fafi": fafi,
    "random_anchors": random_anchors,
    "annealed_anchors": annealed_anchors,
    "etf": etf,
    "sliding_anchors": sliding_anchors,
    "etf_entropy": etf_entropy,
    "etf_uncertainty": etf_uncertainty,
    "etf_annealed_uncertainty": etf_annealed_uncertainty,
    "etf_decoupled": etf_decoupled,
    "etf_regularised": etf_regularised,
    "aurora": aurora,
    "dual_head": dual_head,
    "align_uniform": align_uniform,
    "gated_supcon": gated_supcon,
    "raw_supcon": raw_supcon,
    "memory_bank": memory_bank,
    "memory_bank_sound": memory_bank_sound,
    "public_bank": public_bank,
    "public_bank_sound": public_bank_sound,
    "two_stage_bank": two_stage_bank,
    "two_stage_bank_sound": two_stage_bank_sound,
    "hard_negatives": hard_negatives,
    "balanced_contrast": balanced_contrast,
    "reference_alignment": reference_alignment,
    "split_announced": split_announced,
    "split_local": split_local,
    "distilled": distilled,
    "dynamic_prototypes": dynamic_prototypes,
    "recommended": recommended,
    "fedavg": fedavg,
    "ensemble": ensemble,
    "fedproto": fedproto,
    "fedetf": fedetf,
    "otfusion": otfusion,
}

ALIASES: dict[str, str] = {  # the tags of the research notes
    "V4": "fafi",
    "V5": "public_bank",
    "V5a": "random_anchors",
    "V6": "two_stage_bank",
    "V6a": "annealed_anchors",
    "V7": "etf",
    "V8": "sliding_anchors",
    "V9": "etf_entropy",
    "V10": "etf_uncertainty",
    "V11": "etf_annealed_uncertainty",
    "V12": "etf_decoupled",
    "V13": "etf_regularised",
    "V14": "aurora",
    "V17": "dual_head",
    "V20": "align_uniform",
    "V23": "gated_supcon",
    "V24": "raw_supcon",
}


def canonical(name: str) -> str:
    """The name in METHODS for a name or an alias in any case; the path of a variant's file as it is.

    >>> canonical("v12")
    'etf_decoupled'
    """
    if ".py" in name:
        return name
    aliases = {alias.lower(): method for alias, method in ALIASES.items()}
    found = aliases.get(name.lower(), name.lower().replace("-", "_"))
    if found not in METHODS:
        raise unknown("method", name, [*METHODS, *ALIASES])
    return found


def parse_reference(text: str) -> tuple[str, dict[str, str]]:
    """A method as typed, NAME or NAME:key=value,key=value, to its canonical name and the options.

    >>> parse_reference("V7:weight=0")
    ('etf', {'weight': '0'})
    >>> parse_reference("mine.py:variant:weight=2")
    ('mine.py:variant', {'weight': '2'})
    """
    name, inline = split_reference(text)
    if name != text and "=" not in inline and not file_of(text):
        raise UserError(f"{text!r}: write {canonical(name)}:{inline or 'option'}=VALUE")
    return canonical(name), parse_inline(inline, f"method {name!r}")


def factory_of(name: str) -> Callable[..., Method]:
    """The function that makes a method: from METHODS, or from a file FILE.py or FILE.py:function."""
    name = canonical(name)
    return METHODS[name] if name in METHODS else _from_file(name)


def make_method(name: str, given: Mapping[str, Any]) -> Method:
    """A method by its name, or from a file of the user's, with options."""
    what = f"method {name!r}"
    with blamed(name):
        made = bind(factory_of(name), given, what)
    if not isinstance(made, Method):
        raise UserError(f"{name} must return a Method, not {made!r}")
    return made


def _from_file(reference: str) -> Callable[..., Method]:
    path, _, wanted = reference.partition(":")
    return function_in(path, wanted, "method", "that returns a Method", _returns_method)


def _returns_method(function: Callable[..., object]) -> bool:
    return typing.get_type_hints(function).get("return") is Method
