"""A client's folder: site.json, which whoever runs the client has written, and a folder for each of its jobs."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedshot.errors import UserError
from fedshot.federation.messages import Count
from fedshot.privacy.policy import CountsPolicy
from fedshot.spec import first_problem
from fedshot.store import RunFolder, write_atomic


class SiteFile(BaseModel):
    """A client's own settings. Paths that are not absolute start in its folder."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    number: Count
    data: str = Field(description="a share .npz, a folder of pictures as folder:PATH, or a data set by name")
    data_root: Path | None = None
    device: str = "cpu"
    stall_seconds: Annotated[float, Field(gt=0)] = 600.0  # without a step, after which its training is ended
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 60.0  # between two files from which a killed training goes on
    counts: str = "exact"  # what of its class counts leaves, where a job would let more leave: withheld, noised:EPSILON
    # methods and anchors that its operator gave it: a job may use those whose content it names
    files: tuple[Path, ...] = ()
    key: Path | None = None
    certificate: Path | None = None
    server: str | None = None

    @field_validator("counts")
    @classmethod
    def _a_policy_in_its_one_spelling(cls, given: str) -> str:
        return str(CountsPolicy.parse(given))


class Site:
    """The folder of a client: site.json, and jobs/NAME/ for each job, which is the folder of a run with one client."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def file(self) -> Path:
        return self.path / "site.json"

    def read(self) -> SiteFile:
        """The client's own settings, with absolute paths."""
        try:
            found = SiteFile.model_validate_json(self.file.read_bytes())
        except FileNotFoundError:
            raise UserError(f"{self.path} is not the folder of a client: it has no site.json") from None
        except ValidationError as error:
            raise UserError(f"{self.file} cannot be used: {first_problem(error)}") from None
        data, root = found.data, self.path.absolute()
        if data.endswith(".npz"):
            data = str(root / data)
        elif data.startswith("folder:"):
            data = f"folder:{root / Path(data.removeprefix('folder:')).expanduser()}"
        paths = {name: root / path for name in ("data_root", "key", "certificate") if (path := getattr(found, name))}
        return found.model_copy(update={**paths, "data": data, "files": tuple(root / file for file in found.files)})

    def write(self, content: SiteFile) -> None:
        write_atomic(self.file, content.model_dump_json(indent=1).encode())

    def job(self, sha256: str) -> "JobFolder":
        """The folder of a job."""
        return JobFolder(self.path.absolute() / "jobs" / sha256)


class JobFolder(RunFolder):
    """The files of one job at a client: those of a run with this client alone, and those of its training process."""

    @property
    def order(self) -> Path:
        return self.path / "order.json"

    @property
    def outgoing(self) -> Path:
        """The upload as it leaves, byte by byte. Once it is there, it is what every question is answered with."""
        return self.path / "outgoing.safetensors"

    @property
    def progress(self) -> Path:
        """How far the training is; touched at every step."""
        return self.path / "progress.json"

    @property
    def lock(self) -> Path:
        """Held by the training process as long as it lives; its number is inside."""
        return self.path / "training.lock"

    @property
    def log(self) -> Path:
        """What the training process says, and where it hung."""
        return self.path / "training.log"

    @property
    def failure(self) -> Path:
        """Why the last training process ended without an upload."""
        return self.path / "failure.json"
