"""Programs end with the process that started them."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from fakes.served import wait_for

from localspec.utils import child_program
from localspec.utils.child_program import ChildProgram

_WRITES_ITS_NUMBER = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid()))\n"
LASTS = _WRITES_ITS_NUMBER + "time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LASTS


def number_in(file: Path) -> int:
    """The number of the process that wrote the file."""
    wait_for(lambda: file.exists() and file.read_text())
    return int(file.read_text())


@pytest.mark.parametrize("program", [LASTS, STUBBORN], ids=["willing", "stubborn"])
def test_a_program_ends_with_its_block(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_program, "_GRACE_SECONDS", 1.0)
    file = tmp_path / "number"
    command = [sys.executable, "-c", program, str(file)]
    with tempfile.TemporaryFile() as log, ChildProgram(command, log=log) as running:
        number = number_in(file)
        assert not running.has_ended
    assert running.has_ended
    wait_for(lambda: not psutil.pid_exists(number))


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_program_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "number"
    parent = (
        "import sys, tempfile, time\n"
        "from localspec.utils.child_program import ChildProgram\n"
        f"command = [sys.executable, '-c', {LASTS!r}, {str(file)!r}]\n"
        "with tempfile.TemporaryFile() as log, ChildProgram(command, log=log):\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    number = number_in(file)
    process.kill()
    process.wait()
    wait_for(lambda: not psutil.pid_exists(number))


def test_a_program_that_is_not_there_says_so() -> None:
    with tempfile.TemporaryFile() as log:
        with ChildProgram(["/nowhere/program"], log=log) as running:
            wait_for(lambda: running.has_ended)
        log.seek(0)
        assert log.read().startswith(b"/nowhere/program: ")
