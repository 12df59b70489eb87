"""`fedshot watch`: serves until Ctrl-C, and leaves nothing."""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("fedshot")


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [PROGRAM, "watch", tmp_path, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            address = said.split(" at ")[1].split()[0]
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert "no finished run yet" in answer.read().decode()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    assert address.startswith("http://127.0.0.1:")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_a_mistake(call: Callable) -> None:
    answer = call("watch", "gone", "--no-browser")
    assert answer.status == 2
    assert answer.err.startswith("fedshot: gone is not a folder")
