"""Who may work in a folder at the same time."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedshot.errors import UserError
from fedshot.study.lock import alone_in, among_jobs_in

HOLD = """
import sys, pathlib
from fedshot.study.lock import alone_in
with alone_in(pathlib.Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


def test_a_second_study_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "1\n"
        with (
            pytest.raises(UserError, match=rf"is in use by process {holder.pid} on .*: wait until it ends"),
            alone_in(tmp_path),
        ):
            pass
        with pytest.raises(UserError, match="is in use"), among_jobs_in(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with alone_in(tmp_path):  # a lock ends with its process
            pass


def test_jobs_share_a_folder_that_no_study_may_have(tmp_path: Path) -> None:
    job, other = among_jobs_in(tmp_path), among_jobs_in(tmp_path)
    with job, other, pytest.raises(UserError, match="is in use"), alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        pass
