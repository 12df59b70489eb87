"""A spec is checked, frozen, and known by its hash."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from fedshot.errors import UserError
from fedshot.spec import Spec, make_spec


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"alpha": 0}, "alpha = 0: it should be greater than 0"),
        ({"alpha": -0.1}, "alpha = -0.1"),
        ({"alpha": float("nan")}, "alpha = nan"),
        ({"lr": float("inf")}, "lr = inf: it should be a finite number"),
        ({"lr": True}, "lr = True: write a number or a word"),
        ({"lr": "fast"}, "lr = 'fast': it should be a valid number"),
        ({"clients": 0}, "clients = 0"),
        ({"clients": 2.5}, "clients = 2.5"),
        ({"epochs": 0}, "epochs = 0"),
        ({"batch_size": 1}, "batch_size = 1"),
        ({"validation": 1.0}, "validation = 1.0: it should be less than 1"),
        ({"warmup": 1.0}, "warmup = 1.0"),
        ({"clip": -1}, "clip = -1"),
        ({"seed": -1}, "seed = -1"),
        (
            {"schedule": "cosin"},
            "unknown schedule 'cosin': did you mean 'cosine'? Allowed: constant, cosine, linear, step",
        ),
        ({"upload_precision": "fp16"}, "unknown upload_precision 'fp16'"),
        ({"evaluate_at": (0,)}, "evaluate_at = 0"),
        ({"epochs": 3, "evaluate_at": (2, 4)}, "evaluation point 4 lies after the last of 3 epochs"),
        ({"epoch": 3}, "unknown setting 'epoch': did you mean 'epochs'?"),
    ],
)
def test_a_wrong_setting_is_told_in_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as error:
        make_spec(method="fafi", **given)
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)


def test_a_spec_cannot_be_changed() -> None:
    spec = make_spec(method="fafi")
    with pytest.raises(ValidationError):
        spec.alpha = 1.0  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Spec(method="fafi", colour="red")  # type: ignore[call-arg]


def test_the_hash_is_the_identity_whatever_the_order() -> None:
    spec = make_spec(method="etf", options={"weight": 1.0, "anneal": "linear"}, clients=3)
    same = make_spec(clients=3, options={"anneal": "linear", "weight": 1.0}, method="etf")
    assert spec.sha256 == same.sha256
    assert Spec.model_validate_json(spec.model_dump_json()).sha256 == spec.sha256


def test_the_hash_of_a_spec_outlives_the_process() -> None:
    reordered = dict(reversed(json.loads(make_spec(method="fafi").model_dump_json()).items()))
    assert make_spec(**reordered).sha256 == make_spec(method="fafi").sha256
    assert len(make_spec(method="fafi").sha256) == 64


OTHER: dict[str, Any] = {
    "method": "etf",
    "options": {"weight": 2.0},
    "files": {"mine.py": "0" * 64},
    "data": "mnist",
    "clients": 6,
    "recipe": "iid",
    "alpha": 0.1,
    "classes_per_client": 2,
    "partition_file": "p.json",
    "validation": 0.1,
    "validation_most": 9,
    "encoder": "cnn",
    "pretrained": "runs/earlier",
    "norm": "group",
    "augmentation": "natural",
    "epochs": 31,
    "evaluate_at": (5,),
    "draws": "batch",
    "normalisation": "twice",
    "momentum_epochs": 3,
    "batch_size": 16,
    "optimizer": "adamw",
    "lr": 0.1,
    "momentum": 0.8,
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "warmup": 0.1,
    "clip": 2.0,
    "clip_scope": "joint",
    "precision": "bf16",
    "public": "0.2",
    "fusion": "logits",
    "upload_precision": "int8",
    "seed": 2,
    "counts": "noised:0.5",
    "dp_noise": 1.0,
    "dp_clip": 0.5,
    "dp_delta": 1e-6,
    "noise_source": "system",
}


@pytest.mark.parametrize("field", Spec.model_fields)
def test_the_hash_depends_on_every_field(field: str) -> None:
    changed = make_spec(**{"method": "fafi", field: OTHER[field]})
    assert changed.sha256 != make_spec(method="fafi").sha256
