import http.client
import json
import re
import threading
from contextlib import contextmanager

import pytest

from fedshot.errors import UserError
from fedshot.report.serve import Server
from fedshot.spec import make_spec
from fedshot.store import ClientSummary, RunFolder


@contextmanager
def serving(root):
    with Server(root, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()

        def get(path, method="GET", host=None):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
            connection.request(method, path, headers={"Host": host} if host else {})
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, body

        get.address = server.address
        try:
            yield get
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def root(tmp_path, make_record):
    """A finished run, and one of which a client has ended."""
    root = tmp_path / "study"
    (root / "done").mkdir(parents=True)
    (root / "done" / "record.json").write_text(make_record().model_dump_json())
    run = RunFolder(root / "half" / "way")
    run.begin(make_spec(method="aurora", clients=3, epochs=4, seed=7), resume=False)
    rows = [{"client": 1, "epoch": e, "base_loss": 1.0 / e, "lambda_effective": 2.0} for e in (1, 2, 3, 4)]
    run.finish_client(ClientSummary(id=1, samples=20), rows)
    run.client(2).mkdir()
    (run.client(2) / "at_2.safetensors").write_bytes(b"")
    return root


def test_the_page_is_live_and_says_what_is_under_way(root, make_record):
    with serving(root) as get:
        status, page = get("/")
        assert status == 200 and "fafi on digits" in page and 'id="under-way"' in page
        told = json.loads(get("/live.json")[1])
        assert f'data-version="{told["version"]}"' in page
        (run,) = told["runs"]
        assert {name: run[name] for name in ("name", "method", "seed", "clients", "done", "epochs")} == {
            "name": "half/way",
            "method": "aurora",
            "seed": 7,
            "clients": 3,
            "done": 1,
            "epochs": "client 2 past 2 of 4",
        }
        assert run["telemetry"]["columns"] == {"base_loss": [[1, 0.5, 0.333, 0.25]], "lambda_effective": 2}
        (root / "half" / "way" / "record.json").write_text(make_record("aurora", 7).model_dump_json())
        later = json.loads(get("/live.json")[1])
        assert later["runs"] == [] and later["version"] != told["version"]
        assert "2 methods on digits" in get("/")[1]


def test_an_empty_folder_has_a_page_too(tmp_path):
    with serving(tmp_path) as get:
        assert "no finished run yet" in get("/")[1]
        assert json.loads(get("/live.json")[1])["runs"] == []


@pytest.mark.parametrize("path", ["/done/record.json", "/../secret", "/%2e%2e/secret", "//etc/passwd", "/live.json/x"])
def test_no_file_can_be_read_by_its_name(path, root):
    (root.parent / "secret").write_text("secret")
    with serving(root) as get:
        status, body = get(path)
        assert status == 404 and "only / and /live.json" in body


def test_links_that_lead_out_are_not_shown(root, tmp_path, make_record):
    (tmp_path / "secret.json").write_text(make_record("secret_method").model_dump_json())
    (root / "linked").mkdir()
    (root / "linked" / "record.json").symlink_to(tmp_path / "secret.json")
    (root / "half" / "way" / "clients" / "0").mkdir()
    (root / "half" / "way" / "clients" / "0" / "telemetry.jsonl").symlink_to(tmp_path / "secret.json")
    with serving(root) as get:
        page = get("/")[1]
        assert "secret_method" not in page and "leads out of the folder" in page
        assert json.loads(get("/live.json")[1])["runs"] == []


def test_nothing_can_be_written_and_other_sites_are_refused(root):
    with serving(root) as get:
        assert get("/", "POST")[0] == 501 and get("/", "DELETE")[0] == 501
        assert get("/", host="evil.example:80")[0] == 403
        assert get("/live.json", host="localhost:1")[0] == 200


def test_damage_under_way_is_no_trouble(root):
    (root / "half" / "way" / "clients" / "1" / "telemetry.jsonl").write_text('{"client"')
    (root / "half" / "way" / "clients" / "1" / "client.json").write_text("{")
    (root / "odd").mkdir()
    (root / "odd" / "spec.json").write_text("{")
    with serving(root) as get:
        (run,) = json.loads(get("/live.json")[1])["runs"]
        assert run["done"] == 0 and run["telemetry"] is None


def test_a_port_that_is_taken_is_said(root):
    with Server(root, "127.0.0.1", 0) as taken, pytest.raises(UserError, match="choose another --port"):
        Server(root, "127.0.0.1", taken.server_address[1])
    with pytest.raises(UserError, match="is no port"):
        Server(root, "127.0.0.1", 70_000)


def test_a_browser_shows_what_is_under_way(root, browse):
    with serving(root) as get:
        dom = browse(get.address, "--dump-dom")
    assert "data-errors" not in dom.partition("<head>")[0]
    assert "1 of 3" in dom and "half/way: base loss" in dom and "client 1 ends at 0.25" in dom
    assert re.search(r'id="state"[^>]*>live<', dom)
