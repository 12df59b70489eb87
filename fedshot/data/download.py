"""Fetches the files of a published data set from their official home, with the standard library alone."""

import hashlib
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedshot.data.catalogue import source_of
from fedshot.data.source import Download, Source
from fedshot.errors import UserError

CHUNK = 1 << 18  # bytes between two reports
TIMEOUT = 30.0  # seconds without an answer

Report = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all if known


class DownloadFailed(Exception):
    """No address of a file gave the right content; the text says what each of them did."""


def download(name: str, root: Path, report: Report) -> list[Path]:
    """Puts the published files of a data set into root/NAME/ and returns their paths.

    Files that are there with the right checksum are left alone. An interrupted file stays as FILE.part and is
    continued by the next call; FILE appears only when it is complete and its checksum is right.
    """
    reasons = {
        "digits": "is part of the package",
        "folder": "is a folder of your own pictures",
        "synthetic": "is made, not read",
    }
    if reason := reasons.get(name.partition(":")[0]):
        raise UserError(f"{name} {reason}: there is nothing to download")
    source = source_of(name)
    folder = root / source.folder
    try:
        return [fetch(item, folder, report) for item in source.downloads]
    except (DownloadFailed, OSError) as error:
        raise UserError(_by_hand(source, folder, str(error))) from error


def fetch(item: Download, folder: Path, report: Report) -> Path:
    """One file, from the first of its addresses that gives the right content."""
    target = folder / item.file
    if target.exists() and item.md5 in (None, file_md5(target)):
        size = target.stat().st_size
        report(item.file, size, size)
        return target
    part = target.with_name(f"{target.name}.part")
    failures = []
    for url in item.urls:
        try:
            _receive(url, part, item, report)
        except (OSError, HTTPException) as error:  # urllib's errors and time-outs are OSErrors
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
            continue
        found = file_md5(part)
        if item.md5 in (None, found):
            part.replace(target)
            return target
        part.unlink()
        failures.append(f"{url}: wrong content, its md5 is {found} and should be {item.md5}")
    raise DownloadFailed("; ".join(failures))


def file_md5(path: Path) -> str:
    """The md5 sum of a file: the published checksums are md5 sums; they guard against damage, not against malice."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path, item: Download, report: Report) -> None:
    """Completes `part` from the address, from where it ends if the server can do that, else from the start."""
    start = part.stat().st_size if part.exists() else 0
    if start and start == item.size:
        return
    if item.size is not None and start > item.size:
        start = 0
    with _opened(url, start) as answer:
        if answer.status != 206:
            start = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise OSError(f"the server sent {answer.headers.get('Content-Range')} instead of bytes from {start}")
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else item.size
        done = start
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if start else "wb") as out:
            report(item.file, done, total)
            while chunk := answer.read(CHUNK):
                out.write(chunk)
                done += len(chunk)
                report(item.file, done, total)
    if total is not None and done < total:
        raise OSError(f"the connection broke after {done:,} of {total:,} bytes")


def _opened(url: str, start: int) -> HTTPResponse:
    """The answer of the server, asked for the bytes from `start` on."""
    wanted = {"Range": f"bytes={start}-"} if start else {}
    try:
        return urlopen(Request(url, headers={"User-Agent": "fedshot", **wanted}), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:  # nothing from there on: the part does not belong to this file
            return _opened(url, 0)
        raise


def _by_hand(source: Source, folder: Path, failure: str) -> str:
    files = ", ".join(f"{folder / item.file} from {item.urls[0]}" for item in source.downloads)
    return (
        f"{source.name} could not be downloaded ({failure}): type the command again to go on where it stopped, "
        f"or put the files there by hand: {files}"
    )
