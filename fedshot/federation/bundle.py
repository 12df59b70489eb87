"""The join bundle: one small file with all that a client needs to join. Whoever has it is that client."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedshot.errors import UserError
from fedshot.federation.layout import check_name, write_secret
from fedshot.spec import first_problem

_MOST_BYTES = 2**16


class Bundle(BaseModel):
    """A client's name and number, where the server is, and the keys of both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["fedshot-join-1"] = "fedshot-join-1"
    name: str
    number: int = Field(ge=0)
    server: str  # host:port
    authority: str  # certificate, PEM
    key: str = Field(repr=False)  # private, OpenSSH


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Writes a bundle that only its owner can read."""
    write_secret(path, bundle.model_dump_json(indent=1).encode())


def read_bundle(path: Path) -> Bundle:
    """A bundle, or what is wrong with the file."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
        bundle = Bundle.model_validate_json(content)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: give the NAME.join that the server's operator sent you") from None
    except ValidationError as error:
        raise UserError(f"{path} is not a join bundle of fedshot: {first_problem(error)}") from None
    check_name(bundle.name)
    return bundle
