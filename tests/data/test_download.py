import hashlib
import re
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedshot.data import SOURCES
from fedshot.data.download import CHUNK, DownloadFailed, download, fetch
from fedshot.data.source import Download
from fedshot.errors import UserError

CONTENT = bytes(range(256)) * (CHUNK // 256 * 2) + b"end"
MD5, SIZE = hashlib.md5(CONTENT).hexdigest(), len(CONTENT)


class Handler(BaseHTTPRequestHandler):
    """/ranges/ honours Range, /plain/ ignores it, /short/ breaks off, /shifted/ answers with another range."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        kind = self.path.split("/")[1]
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        if kind == "absent":
            self.send_error(404)
        elif start and kind in ("ranges", "shifted") and start >= len(CONTENT):
            self.send_error(416)
        elif start and kind in ("ranges", "shifted"):
            first = start if kind == "ranges" else start + 1
            self.answer(206, CONTENT[first:], {"Content-Range": f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}"})
        else:
            self.answer(200, CONTENT, {}, sent=100 if kind == "short" else None)

    def answer(self, status, content, headers, sent=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:sent])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def closed_port(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        yield taken.getsockname()[1]


def item(server, *kinds, md5=MD5, size=SIZE):
    urls = tuple(f"http://127.0.0.1:{server.server_port}/{kind}/file.bin" for kind in kinds)
    return Download("file.bin", urls, size, md5)


def silent(file, done, total):
    pass


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file_with_its_progress(server, tmp_path):
    seen = []
    path = fetch(item(server, "ranges"), tmp_path, lambda *report: seen.append(report))
    assert path.read_bytes() == CONTENT and left(tmp_path) == ["file.bin"]
    assert seen[0] == ("file.bin", 0, len(CONTENT)) and seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen) and len(seen) > 2


def test_a_part_is_continued(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    seen = []
    path = fetch(item(server, "ranges"), tmp_path, lambda *report: seen.append(report))
    assert server.asked == [("/ranges/file.bin", "bytes=1000-")] and seen[0] == ("file.bin", 1000, len(CONTENT))
    assert path.read_bytes() == CONTENT and left(tmp_path) == ["file.bin"]


def test_a_server_without_ranges_starts_over(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    path = fetch(item(server, "plain"), tmp_path, silent)
    assert server.asked == [("/plain/file.bin", "bytes=1000-")] and path.read_bytes() == CONTENT


def test_a_complete_part_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(item(server, "ranges"), tmp_path, silent).read_bytes() == CONTENT and server.asked == []


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_part_that_is_too_long_is_thrown_away(server, tmp_path, size):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(item(server, "ranges", size=size), tmp_path, silent).read_bytes() == CONTENT


def test_a_right_file_is_kept_and_a_wrong_one_replaced(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT)
    fetch(item(server, "ranges"), tmp_path, silent)
    assert server.asked == []
    (tmp_path / "file.bin").write_bytes(b"old")
    assert fetch(item(server, "ranges"), tmp_path, silent).read_bytes() == CONTENT


def test_a_bad_checksum_leaves_nothing_behind(server, tmp_path):
    with pytest.raises(DownloadFailed, match="wrong content, its md5 is"):
        fetch(item(server, "ranges", md5="0" * 32), tmp_path, silent)
    assert left(tmp_path) == []


def test_without_a_checksum_the_length_decides(server, tmp_path):
    assert fetch(item(server, "plain", md5=None, size=None), tmp_path, silent).read_bytes() == CONTENT
    with pytest.raises(DownloadFailed, match=r"broke after 100 of"):
        fetch(replace(item(server, "short", md5=None, size=None), file="other.bin"), tmp_path, silent)


def test_a_broken_connection_keeps_the_part_and_the_mirror_goes_on(server, tmp_path):
    with pytest.raises(DownloadFailed, match=re.escape(f"broke after 100 of {len(CONTENT):,} bytes")):
        fetch(item(server, "short"), tmp_path, silent)
    assert left(tmp_path) == ["file.bin.part"]
    path = fetch(item(server, "absent", "short", "ranges"), tmp_path, silent)
    assert path.read_bytes() == CONTENT and ("/ranges/file.bin", "bytes=100-") in server.asked


def test_an_answer_with_another_range_is_not_appended(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    with pytest.raises(DownloadFailed, match="instead of bytes from 1000"):
        fetch(item(server, "shifted"), tmp_path, silent)
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:1000]


def test_download_by_name(server, tmp_path, monkeypatch):
    source = replace(SOURCES["svhn"], downloads=(item(server, "ranges"), replace(item(server, "plain"), file="b.bin")))
    monkeypatch.setitem(SOURCES, "svhn", source)
    paths = download("svhn", tmp_path / "data", silent)
    assert paths == [tmp_path / "data/svhn/file.bin", tmp_path / "data/svhn/b.bin"]
    assert all(path.read_bytes() == CONTENT for path in paths)


def test_no_network_says_which_files_go_where(closed_port, tmp_path, monkeypatch):
    items = tuple(
        Download(file, (f"http://127.0.0.1:{closed_port}/{file}",), None, "0" * 32)
        for file in ("train_32x32.mat", "test_32x32.mat")
    )
    monkeypatch.setitem(SOURCES, "svhn", replace(SOURCES["svhn"], downloads=items))
    with pytest.raises(UserError, match="svhn could not be downloaded") as error:
        download("svhn", tmp_path, silent)
    said = str(error.value)
    assert "refused" in said.lower()
    for one in items:
        assert f"{tmp_path / 'svhn' / one.file} from {one.urls[0]}" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [("digits", "part of the package"), ("folder:x", "own pictures"), ("cifar", "unknown published data set")],
)
def test_names_without_a_download(tmp_path, name, says):
    with pytest.raises(UserError, match=says):
        download(name, tmp_path, silent)


def test_a_root_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="mnist could not be downloaded"):
        download("mnist", tmp_path / "file", silent)
