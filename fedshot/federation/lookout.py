"""What a client's operator sees of it: whether it is connected, what it trains, what has left."""

import json
from dataclasses import dataclass
from pathlib import Path

from fedshot.federation.joining import services
from fedshot.federation.labour import epoch_of, is_held
from fedshot.federation.order import read_order
from fedshot.federation.processes import tail
from fedshot.federation.site import JobFolder, Site
from fedshot.report.wording import bytes_in_words

# what the engine writes into its log
_CONNECTED, _SENT, _RETRIES, _REFUSED = "SuperNode ID:", "Sent successfully", "retrying in", "Failed to activate"


@dataclass(frozen=True)
class Stage:
    """How far a job is."""

    method: str
    epochs: int
    epoch: int
    training: bool
    upload_bytes: int | None  # once there is one
    failure: str | None

    def in_words(self) -> str:
        if self.upload_bytes is not None:
            return f"trained, upload of {bytes_in_words(self.upload_bytes)} ready"
        if self.training:
            return f"training, epoch {self.epoch} of {self.epochs}"
        return f"stopped: {self.failure}" if self.failure else f"waiting, epoch {self.epoch} of {self.epochs}"


def stages(site: Site) -> dict[str, Stage]:
    """Every job of a client, the oldest first, by name."""
    folders = sorted(site.path.glob("jobs/*/order.json"), key=lambda file: file.stat().st_mtime)
    return {file.parent.name: _stage(JobFolder(file.parent)) for file in folders}


def _stage(job: JobFolder) -> Stage:
    spec = read_order(job.order.read_bytes()).spec
    try:
        failure = str(json.loads(job.failure.read_bytes())["reason"])
    except (OSError, ValueError, KeyError):
        failure = None
    size = job.outgoing.stat().st_size if job.outgoing.exists() else None
    return Stage(spec.method, spec.epochs, epoch_of(job), is_held(job.lock), size, failure)


class Lookout:
    """Follows the engine of a client through its log and the folders of its jobs."""

    def __init__(self, site: Site) -> None:
        self._site, self._engine = site, services(site)[1]
        self._log = self._engine.log
        self._read = self._log.stat().st_size if self._log.exists() else 0
        self._seen: dict[str, Stage] = stages(site)
        self.connected = False

    @property
    def running(self) -> bool:
        return self._engine.pid() is not None

    def look(self) -> list[str]:
        """What is new, in words."""
        return self._from_log() + self._from_jobs()

    def now(self) -> str:
        """What it does at the moment, in words."""
        busy = [stage for stage in stages(self._site).values() if stage.training]
        if busy:
            return f"{busy[-1].method}: {busy[-1].in_words()}"
        return "connected, waiting for a job" if self.connected else "waiting for the server"

    @property
    def refused(self) -> bool:
        """Whether the engine has ended because the server did not take its key."""
        return not self.running and _REFUSED in tail(self._log, 20)

    def _from_log(self) -> list[str]:
        if not self._log.exists():
            return []
        with self._log.open("rb") as file:
            file.seek(self._read)
            text, _, _ = file.read().rpartition(b"\n")
        self._read += len(text) + 1 if text else 0
        news = []
        for line in text.decode(errors="replace").splitlines():
            if _CONNECTED in line:
                self.connected = True
                news.append("connected to the server")
            elif _RETRIES in line and self.connected:
                self.connected = False
                news.append("the connection to the server is lost; trying again")
            elif _SENT in line:
                self.connected = True
                news.append("an answer was sent")
        return news

    def _from_jobs(self) -> list[str]:
        news, found = [], stages(self._site)
        for name, stage in found.items():
            before = self._seen.get(name)
            if before is None:
                news.append(f"job {name[:8]}: {stage.method}, {stage.epochs} epochs")
            if stage.upload_bytes is not None and (before is None or before.upload_bytes is None):
                news.append(f"job {name[:8]}: {stage.in_words()}")
            if stage.failure and (before is None or before.failure != stage.failure):
                news.append(f"job {name[:8]}: {stage.failure}")
        self._seen = found
        return news


def site_of(folder: Path) -> Site | None:
    """The site in a folder, if it is one."""
    site = Site(folder.absolute())
    return site if site.file.exists() else None
