"""Founding a federation: certificates, keys, bundles, the proxy's rules, what the engine may run."""

import io
import json
import ssl
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedshot.cli import main
from fedshot.engines.guard import main as guarded
from fedshot.errors import UserError
from fedshot.federation import engine
from fedshot.federation.bundle import read_bundle
from fedshot.federation.joining import settle
from fedshot.federation.layout import ServerFolder
from fedshot.federation.manifest import MANIFEST, check_app
from fedshot.federation.proxy import nginx_configuration, passes
from fedshot.federation.site import Site

FLEET = "/v1/fleet/"


def init(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["federation", "init", *words])
    assert not end.value.code, end.value.code


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerFolder:
    monkeypatch.chdir(tmp_path)
    init("--host", "fl.example.org", "--client", "ward", "--client", "clinic")
    return ServerFolder(tmp_path / "federation")


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main(["federation", *words])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_the_authority_signs_the_server_and_nothing_else(server: ServerFolder) -> None:
    authority, certificate = (
        x509.load_pem_x509_certificate(p.read_bytes()) for p in (server.authority[0], server.certificate)
    )
    certificate.verify_directly_issued_by(authority)
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    ssl.create_default_context(cafile=str(server.authority[0])).load_cert_chain(server.certificate, server.key)


def test_secrets_are_for_their_owner_alone(server: ServerFolder) -> None:
    for secret in (server.authority[1], server.key, server.bundle("ward")):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o700


def test_a_bundle_has_a_key_that_the_server_knows(server: ServerFolder) -> None:
    bundle = read_bundle(server.bundle("clinic"))
    private = load_ssh_private_key(bundle.key.encode(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    member = server.read().members[bundle.number]
    assert load_ssh_public_key(member.public_key.encode()) == private.public_key()
    assert (member.name, bundle.number, bundle.server) == ("clinic", 1, "fl.example.org:9443")
    assert "PRIVATE" not in server.settings.read_text()


def test_init_again_adds_a_client_and_keeps_what_is_there(server: ServerFolder) -> None:
    before = {path: path.read_bytes() for path in (*server.authority, server.certificate, server.bundle("ward"))}
    init("--client", "lab")
    assert [(m.number, m.name) for m in server.read().members] == [(0, "ward"), (1, "clinic"), (2, "lab")]
    assert {path: path.read_bytes() for path in before} == before


def test_a_renewed_client_has_a_new_key_and_its_old_number(server: ServerFolder) -> None:
    before = server.read().members
    init("--renew", "ward")
    after = server.read().members
    assert after[0].public_key != before[0].public_key
    assert (after[0].number, after[1]) == (0, before[1])


def test_another_host_is_another_certificate_and_other_bundles(server: ServerFolder) -> None:
    server.bundle("ward").unlink()  # it was handed over
    key = read_bundle(server.bundle("clinic")).key
    init("--host", "192.0.2.7", "--port", "444")
    found = read_bundle(server.bundle("clinic"))
    assert (found.server, found.key) == ("192.0.2.7:444", key)
    assert not server.bundle("ward").exists()
    certificate = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "192.0.2.7" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client", "a"], "say by --host"),
        (["--host", "https://x.org", "--client", "a"], "without https://"),
        (["--host", "x.org"], "name the clients"),
        (["--host", "x.org", "--client", "Ward 7"], "small letters"),
        (["--host", "x.org", "--client", "a", "--client", "a"], "two clients are called 'a'"),
        (["--host", "x.org", "--client", "a", "--renew", "b"], "unknown client 'b'"),
        (["--host", "x.org", "--client", "a", "--port", "9444"], "both 9444"),
        (["--host", "x.org", "--client", "a", "--port", "99999"], "65535"),
    ],
)
def test_mistakes_of_the_founder_are_told(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(["init", *words], capsys)
    assert not (tmp_path / "federation").exists()


def test_a_folder_with_something_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert "not a federation" in refused(["init", str(tmp_path), "--host", "x.org", "--clients", "2"], capsys)
    for command in ("up", "down", "status"):
        assert "is not the folder of a federation" in refused([command, str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("method", "path", "goes"),
    [
        ("POST", f"{FLEET}pull-messages", True),
        ("POST", f"{FLEET}activate-node", True),
        ("GET", "/health", True),
        ("GET", f"{FLEET}pull-messages", False),
        ("POST", f"{FLEET}register-node", False),
        ("POST", f"{FLEET}unregister-node", False),
        ("POST", "/v1/control/start-run", False),
        ("POST", "/v1/runtime/acquire-task", False),
        ("POST", f"{FLEET}../control/start-run", False),
        ("POST", f"{FLEET}%2e%2e/control/start-run", False),
        ("POST", f"{FLEET}pull-messages/../../control/start-run", False),
        ("POST", f"{FLEET}pull-messages?x=/v1/control", False),
        ("GET", "/docs", False),
    ],
)
def test_only_the_fleet_path_passes(method: str, path: str, goes: bool) -> None:
    assert passes(method, path) is goes


def test_nginx_stands_before_an_engine_on_the_loopback_interface(server: ServerFolder) -> None:
    text = server.nginx.read_text()
    assert text == nginx_configuration(server, server.read(), "listen [::]" in text)
    targets = [line.split()[1] for line in text.splitlines() if "proxy_pass" in line]
    assert all(target.startswith("https://127.0.0.1:9444") for target in targets)
    assert len(targets) == text.count("proxy_ssl_verify on;") == 2
    assert "location / { return 403; }" in text
    assert "127.0.0.1" in engine.server_command(server, server.read())


def test_the_engine_calls_nobody_and_runs_guarded_programs(
    server: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    found = engine.environment(server.engine)
    assert (found["FLWR_TELEMETRY_ENABLED"], found["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
    for program in ("flwr-clientapp", "flwr-serverapp", "flwr-agentapp"):
        script = server.engine / "bin" / program
        assert "fedshot.engines.guard" in script.read_text()
        assert found["PATH"].startswith(str(script.parent))
    with pytest.raises(SystemExit, match="refused"):
        guarded(["flwr-agentapp"])


def app(**files: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in {"pyproject.toml": MANIFEST, ".info/CONTENT": "x", **files}.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (app(**{"fedshot/__init__.py": "import os"}), "sent code"),
        (app(**{"pyproject.toml": MANIFEST.replace("fedshot.engines.flower:client_app", "os:system")}), "other code"),
        (app(**{"pyproject.toml": MANIFEST.replace('version = "', 'version = "9')}), "install the same version"),
        (app(**{"pyproject.toml": MANIFEST + "#" * 2**17}), "more than the two small files"),
        (app(**{"pyproject.toml": "= ="}), "not a fedshot run"),
        (b"no zip", "not a fedshot run"),
    ],
)
def test_nothing_is_run_but_what_fedshot_itself_would_send(content: bytes, said: str) -> None:
    check_app(app())
    with pytest.raises(UserError, match=said):
        check_app(content)


def test_a_missing_engine_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "version", lambda name: "1.12.0")
    assert "never tried with it: pip install 'fedshot[flower]'" in refused(["init", "--host", "x.org"], capsys)


def test_fedshot_starts_without_the_engine() -> None:
    code = "import sys, fedshot.cli; sys.exit({'flwr', 'torch', 'cryptography'} & set(sys.modules) != set())"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_site_is_settled_from_a_bundle_and_remembers_what_was_said(
    server: ServerFolder, pictures: Callable[[int, str], str]
) -> None:
    data = pictures(8, "L")
    site = settle(server.bundle("ward"), None, {"data": data})
    assert site.path == server.path.parent / "site-ward"
    key = site.path / "client.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o700
    found = settle(site.path, None, {"stall_seconds": 5.0}).read()
    assert (found.data, found.stall_seconds, found.number, found.server) == (data, 5.0, 0, "fl.example.org:9443")
    assert found.key == key
    assert str(site.path) in (site.path / "fedshot-client.service").read_text()


def test_mistakes_of_a_client_are_told(server: ServerFolder, capsys: pytest.CaptureFixture[str]) -> None:
    ward = str(server.bundle("ward"))
    assert "there is no file lost.join" in refused(["join", "lost.join", "--data", "digits"], capsys)
    assert "is not a join bundle" in refused(["join", str(server.settings), "--data", "digits"], capsys)
    assert "--data folder:PATH" in refused(["join", ward], capsys)
    assert "is not a folder" in refused(["join", ward, "--data", "folder:/nowhere"], capsys)
    assert "unknown data set 'digts'" in refused(["join", ward, "--data", "digts"], capsys)
    assert "write exact, withheld" in refused(["join", ward, "--data", "digits", "--counts", "some"], capsys)
    assert not Site(server.path.parent / "site-ward").path.exists()
    settle(server.bundle("ward"), Path("place"), {"data": "digits"})
    assert "is the site of ward" in refused(
        ["join", str(server.bundle("clinic")), "--site", "place", "--data", "digits"], capsys
    )


def test_a_run_needs_a_server_that_is_up(server: ServerFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the server is not up: `fedshot federation up" in refused(["run", "fafi"], capsys)


def test_status_of_a_server_that_is_down(server: ServerFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["federation", "status", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["processes"] == {"engine": None, "proxy": None}
    assert set(told["clients"]) == {"ward", "clinic"}
