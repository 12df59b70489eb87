"""How a run over a network is conducted: who takes part, how long the server waits. Written as federation.json."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedshot.errors import UserError
from fedshot.spec import Positive, first_problem
from fedshot.store import write_atomic

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Plan(BaseModel):
    """Everything about a run over a network that does not decide what is computed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: dict[int, int] = Field(description="the number of the client behind each node, by the id of its key")
    data_root: Path | None = None  # of the server's own data set
    directory: Path | None = None  # where the run was begun: paths in its spec start there
    device: str = "cpu"  # of the server
    deadline_seconds: Seconds = 3600.0  # after which the server fuses what has arrived
    announce_seconds: Seconds = 600.0  # of which a first message may take so many, in methods of two phases
    late_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # that it then waits for late uploads
    min_clients: Positive = 1  # fewer uploads make no record
    retries: Annotated[int, Field(ge=0)] = 5  # after a failure, for each client
    retry_seconds: Seconds = 30.0  # before a client that failed is asked again
    wait_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0  # before a client says that it is busy
    silence_seconds: Seconds = 300.0  # beyond that, after which a client is asked again
    poll_seconds: Seconds = 1.0  # between two looks at what has arrived
    sections: tuple[str, ...] = ()  # of an upload, beside those that the fusion rule needs
    screen: Literal["off", "report", "exclude"] = "off"  # of uploads that may be poisoned

    @model_validator(mode="after")
    def _one_node_a_client(self) -> "Plan":
        if len(set(self.nodes.values())) != len(self.nodes):
            raise ValueError("two nodes have the same client number")
        return self

    @property
    def numbers(self) -> list[int]:
        """The clients that take part."""
        return sorted(self.nodes.values())


def plan_file(run: Path) -> Path:
    """Where the plan of a run lies."""
    return run / "federation.json"


def write_plan(run: Path, plan: Plan) -> None:
    write_atomic(plan_file(run), plan.model_dump_json(indent=1).encode())


def read_plan(run: Path) -> Plan:
    """The plan of a run over a network."""
    try:
        return Plan.model_validate_json(plan_file(run).read_bytes())
    except FileNotFoundError:
        raise UserError(f"{run} is not a run over a network: it has no federation.json") from None
    except ValidationError as error:
        raise UserError(f"{plan_file(run)} cannot be used: {first_problem(error)}") from None
