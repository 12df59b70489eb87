"""What is asked of an experiment. Validated and frozen; its hash is its identity: equal specs give equal results."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from fedshot.errors import UserError, unknown
from fedshot.grown import Grown
from fedshot.options import choices
from fedshot.privacy.policy import CountsPolicy

Positive = Annotated[int, Field(ge=1)]
Precision = Literal["fp32", "bf16", "int8"]


class Spec(Grown):
    """One run. A field left at None is chosen by the data set or the method; `complete` fills it in."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    later: ClassVar[tuple[str, ...]] = (
        *("counts", "dp_noise", "dp_clip", "dp_delta", "noise_source"),
        "validation_most",
        *("draws", "momentum_epochs", "normalisation"),
        "pretrained",
    )

    method: str = Field(description="a name or alias in `fedshot methods`, or FILE.py of your own")
    options: dict[str, Any] = Field(
        default_factory=dict, description="the method's options, see `fedshot methods NAME`"
    )

    files: dict[str, str] = Field(
        default_factory=dict, description="sha256 of every file that the run reads; filled in"
    )

    data: str = Field("digits", description="a name in `fedshot datasets`, or folder:PATH; NAME:images=N for a part")
    clients: Positive = Field(5, description="how many clients")
    recipe: str = Field("dirichlet", description="how the data are divided, see `fedshot partition --help`")
    alpha: float = Field(0.05, gt=0, description="Dirichlet concentration: the smaller, the more skewed")
    classes_per_client: Positive | None = Field(None, description="for the recipe shards")
    partition_file: str | None = Field(None, description="a saved partition, instead of a recipe")
    public: str | None = Field(
        None, description="public images: a share of the training data that no client gets, as 0.1, or a data set"
    )
    validation: float = Field(0.0, ge=0, lt=1, description="share of each client's data that it holds back")
    validation_most: Positive | None = Field(None, description="the most images that a client holds back")

    encoder: str | None = Field(None, description="cnn, resnet18, resnet34, resnet50, mobilenet_v2 or vit")
    pretrained: str | None = Field(
        None, description="what every encoder starts from: a run of one client, an upload, or FILE.safetensors"
    )
    norm: Literal["batch", "group"] = Field("batch", description="normalisation layers of the encoder")
    augmentation: Literal["natural", "characters"] | None = Field(None, description="recipe of the augmented views")

    draws: Literal["sample", "batch"] = Field(
        "sample", description="who draws views: each sample for itself, or a whole batch once, as published code has it"
    )
    normalisation: Literal["alike", "views", "twice"] = Field(
        "alike",
        description="training and test images alike, or as published code has it: augmented views only, or them twice",
    )

    epochs: Positive = Field(50, description="local epochs, over the whole run")
    evaluate_at: tuple[Positive, ...] = Field((), description="epochs after which a snapshot is fused and scored")
    batch_size: Annotated[int, Field(ge=2)] | None = Field(None, description="images in a step, each seen as its views")
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(0.05, gt=0, description="peak learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD, beta1 of AdamW")
    momentum_epochs: Positive | None = Field(
        None,
        description="epochs after which momentum begins anew, as where each round makes an optimiser; none: never",
    )
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "cosine", "step", "linear"] = Field("constant", description="of the learning rate")
    warmup: float = Field(0.0, ge=0, lt=1, description="share of the run over which the learning rate rises from 0")
    clip: float = Field(1.0, ge=0, description="gradient norm limit of a parameter group; 0 for none")
    clip_scope: Literal["group", "joint"] = Field("group", description="clip each group alone, or all by one norm")
    precision: Literal["fp32", "bf16"] | None = Field(None, description="of the encoder; bf16 on a GPU, else fp32")

    fusion: str | None = Field(
        None, description="a rule in `fedshot fusions` or FILE.py; the method's own if not given"
    )
    upload_precision: Precision = Field("fp32", description="of the weights in an upload")
    seed: int = Field(1, ge=0, description="of every random stream: partition, initial weights, batches, views")

    counts: str = Field(
        "exact", description="what clients tell of their class counts: exact, withheld, or noised:EPSILON"
    )
    dp_noise: float | None = Field(None, gt=0, description="noise of DP-SGD, in units of dp_clip; none for plain SGD")
    dp_clip: float = Field(1.0, gt=0, description="norm to which each image's gradient is clipped under dp_noise")
    dp_delta: float = Field(1e-5, gt=0, lt=1, description="the δ at which the record gives the ε of dp_noise")
    noise_source: Literal["seeded", "system"] = Field(
        "seeded", description="where noise on counts and gradients comes from: the seed, or the system for real privacy"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _yes_is_no_number(cls, given: Any) -> Any:
        if isinstance(given, bool):  # as YAML reads yes, no, on and off
            raise ValueError("write a number or a word")
        return given

    @field_validator("public", mode="before")
    @classmethod
    def _a_share_is_a_number_as_well(cls, given: Any) -> Any:
        return f"{given:g}" if isinstance(given, int | float) else given

    @field_validator("pretrained")
    @classmethod
    def _a_path_in_its_one_spelling(cls, given: str | None) -> str | None:
        if given is not None and not given.strip():
            raise ValueError("name a run of one client, an upload, or FILE.safetensors")
        return None if given in (None, "none") else Path(given).as_posix()

    @field_validator("counts")
    @classmethod
    def _a_policy_in_its_one_spelling(cls, given: str) -> str:
        return str(CountsPolicy.parse(given))

    @model_validator(mode="after")
    def _points_lie_in_the_run(self) -> "Spec":
        late = [epoch for epoch in self.evaluate_at if epoch > self.epochs]
        if late:
            raise ValueError(f"evaluation point {late[0]} lies after the last of {self.epochs} epochs")
        return self

    @property
    def sha256(self) -> str:
        """Identity of the run: the hash of everything that was asked, in whatever order."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def make_spec(**given: Any) -> Spec:  # keyword names are the fields of Spec, checked by it
    """A spec, or one clear sentence about the first thing that is wrong with it."""
    for name in given:
        if name not in Spec.model_fields:
            raise unknown("setting", name, Spec.model_fields)
    try:
        return Spec(**given)
    except ValidationError as error:
        first = error.errors()[0]
        words = choices(Spec.model_fields[str(first["loc"][0])].annotation) if first["loc"] else ()
        if words and isinstance(first["input"], str):
            raise unknown(str(first["loc"][0]), first["input"], words) from None
        raise UserError(first_problem(error)) from None


def first_problem(error: ValidationError) -> str:
    """The first thing that a model found wrong, in one line.

    >>> try: Spec(method="fafi", alpha=0)
    ... except ValidationError as error: first_problem(error)
    'alpha = 0: it should be greater than 0'
    """
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    what = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be", 1)
    if first["type"] in ("missing", "json_invalid"):
        return f"{where}: {what}" if where else what
    given = repr(first["input"])
    return f"{where} = {given if len(given) <= 60 else given[:60] + '…'}: {what}" if where else what


# fields with an option of their own on the command line
_TYPED = (
    *("data", "clients", "recipe", "alpha", "classes_per_client", "partition_file", "public", "validation"),
    *("encoder", "pretrained", "epochs", "batch_size", "fusion", "seed"),
)


def as_typed(name: str, value: object) -> list[str]:
    """A setting of a run as it is typed on the command line.

    >>> as_typed("batch_size", 64), as_typed("lr", 0.1)
    (['--batch-size', '64'], ['--set', 'lr=0.1'])
    """
    return [f"--{name.replace('_', '-')}", str(value)] if name in _TYPED else ["--set", f"{name}={value}"]
