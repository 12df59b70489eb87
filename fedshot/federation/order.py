"""The order: all that a client must know to train, as canonical JSON. The hash of it is the name of the job."""

import hashlib
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedshot import __version__
from fedshot.errors import UserError
from fedshot.spec import Spec, first_problem

if TYPE_CHECKING:  # a client reads an order without torch
    from fedshot.setting import Setting
    from fedshot.task import Task

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Order(BaseModel):
    """What the server asks of every client. No code is in it: a client runs methods that it has itself.

    `announce` asks how many images of each class a client holds, and nothing else; `train` asks for the one upload.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    fedshot: str = __version__  # the library of the server: a client with another one might compute something else
    kind: Literal["announce", "train"]
    run: str = Field(max_length=64)  # of every run its own: an upload of an earlier run answers another order
    spec: Spec  # complete
    class_names: tuple[str, ...] = Field(min_length=1)
    shape: tuple[int, int, int]  # channels, height, width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sections: tuple[str, ...]  # that an upload may carry
    job_sha256: Sha256 | None  # of the tensors that come with the order; None where there are none

    def to_bytes(self) -> bytes:
        """The order as it travels."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        """The name of the job."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def task(self) -> "Task":
        """What clients and server know before anything is trained."""
        from fedshot.task import Task

        if self.spec.encoder is None or self.spec.augmentation is None:
            raise UserError("the order's spec is not complete: it names no encoder or no augmentation")
        return Task(
            classes=len(self.class_names),
            shape=self.shape,
            mean=self.mean,
            std=self.std,
            encoder=self.spec.encoder,
            norm=self.spec.norm,
            seed=self.spec.seed,
            augmentation=self.spec.augmentation,
            normalisation=self.spec.normalisation,
        )


def make_order(
    setting: "Setting",
    kind: Literal["announce", "train"],
    run: str,
    sections: Collection[str] = (),
    job: bytes | None = None,
) -> Order:
    """The order of a run.

    Args:
        sections: that an upload carries beside those which the fusion rule needs.
        job: the file with the tensors that go with it.
    """
    from fedshot.privacy.counts import sections_told

    known = ("weights", *sections_told(setting.method.statistics, setting.spec))
    if strange := sorted(set(sections) - set(known)):
        raise UserError(f"an upload of this run has no section {strange[0]!r}; it can have {', '.join(known)}")
    wanted = tuple(name for name in known if name in {*setting.fusion.needs, *sections})
    return Order(
        kind=kind,
        run=run,
        spec=setting.spec,
        class_names=setting.data.class_names,
        shape=setting.task.shape,
        mean=setting.task.mean,
        std=setting.task.std,
        sections=wanted if kind == "train" else (),
        job_sha256=None if job is None else hashlib.sha256(job).hexdigest(),
    )


def read_order(content: bytes, sha256: str | None = None) -> Order:
    """The order in its bytes; refuses one whose hash is not the given one."""
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise UserError("the order was altered on its way: its hash is not the one that was announced")
    try:
        version = json.loads(content).get("fedshot")
        if version != __version__:
            raise UserError(f"the order is of fedshot {version}, and this is {__version__}: install the same version")
        order = Order.model_validate_json(content)
    except ValidationError as error:
        raise UserError(f"not an order: {first_problem(error)}") from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise error if isinstance(error, UserError) else UserError("not an order: it is no JSON of ours") from None
    if order.to_bytes() != content:
        raise UserError("not an order: it is not written as this version of fedshot writes it")
    return order


def check_job(order: Order, job: bytes | None) -> None:
    """Refuses tensors that are not those of the order."""
    found = None if job is None else hashlib.sha256(job).hexdigest()
    if found != order.job_sha256:
        raise UserError("the tensors that came with the order are not those whose hash it names")
