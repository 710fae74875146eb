"""Child processes: how they end, what they see, and that none is left behind."""

import json
import os
import signal
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

import psutil
import pytest

from localspec.utils.child_process import ChildExit, ChildProcess
from localspec.utils.progress import watched

Write = Callable[[str], None]
MODULE = "module_of_a_test"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the module that the child runs, to a folder that only this process knows of."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda code: (tmp_path / f"{MODULE}.py").write_text(code) and None


def ended(*arguments: str, seconds: float = 60) -> ChildExit:
    with ChildProcess(MODULE, *arguments) as child:
        return child.wait(seconds=seconds)


def test_it_runs_a_module_with_arguments_on_the_same_path(program: Write) -> None:
    program("import json, sys\nprint(json.dumps([__name__, sys.argv[1:], sys.path]))")
    found = ended("a", "b c")
    name, arguments, path = json.loads(found.output)
    assert (found.exit_code, found.errors, found.crashed) == (0, "", False)
    assert (name, arguments) == ("__main__", ["a", "b c"])
    assert list(dict.fromkeys(each for each in path if each in sys.path)) == list(
        dict.fromkeys(sys.path)
    )


def test_its_standard_input_is_empty(program: Write) -> None:
    program("import os; print(os.read(0, 1))")
    assert ended().output == "b''\n"


def test_no_signal_is_named_for_an_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, 0 is that of CTRL_C_EVENT."""
    monkeypatch.setattr(signal, "Signals", IntEnum("Signals", [("CTRL_C_EVENT", 0)]))
    for code in (0, 1):
        assert ChildExit(code, "", "").reason == f"exit code {code}"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
@pytest.mark.parametrize(
    ("code", "exit_code", "crashed", "reason"),
    [
        ("import sys; sys.exit(5)", 5, False, "exit code 5"),
        ("raise ValueError('no \\x1b[1m such')", 1, False, "ValueError: no ?[1m such"),
        ("import os; os.abort()", -6, True, "SIGABRT"),
        ("import os; os.kill(os.getpid(), 11)", -11, True, "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", -9, False, "SIGKILL"),
        ("import os, sys; print('bad_alloc', file=sys.stderr); os.abort()", -6, False, "bad_alloc"),
        (
            "import os; os.write(2, b'GGML_ASSERT(ctx->mem_buffer != NULL)'); os.abort()",
            -6,
            False,
            "GGML_ASSERT(ctx->mem_buffer != NULL)",
        ),
        ("import os; os.write(2, b'free(): invalid'); os.abort()", -6, True, "free(): invalid"),
        (
            "import os; os.write(2, b'/build/src/a.cpp:12: GGML_ASSERT(n)\\n\\n'); os.abort()",
            -6,
            True,
            "a.cpp:12: GGML_ASSERT(n)",
        ),
    ],
)
def test_how_it_ends(program: Write, code: str, exit_code: int, crashed: bool, reason: str) -> None:
    program(code)
    found = ended()
    assert (found.exit_code, found.crashed, found.reason) == (exit_code, crashed, reason)


def test_a_fault_that_ctypes_has_caught_is_a_crash(program: Write) -> None:
    program("raise OSError('exception: access violation reading 0x0000000000000000')")
    found = ended()
    assert (found.exit_code, found.crashed) == (3, os.name == "nt")
    assert found.errors == "exception: access violation reading 0x0000000000000000\n"


def test_a_time_limit_keeps_what_was_written(program: Write, tmp_path: Path) -> None:
    marker = tmp_path / "written"
    program(
        "import pathlib, sys, time\nprint('here', flush=True)\n"
        "pathlib.Path(sys.argv[1]).touch()\ntime.sleep(600)"
    )
    with ChildProcess(MODULE, str(marker)) as child:
        while not marker.exists():
            assert child.ended(0.01) is None
        found = child.wait(seconds=0.2)
    assert (found.timed_out, found.crashed, found.output) == (True, False, "here\n")


class EnoughError(Exception):
    """Raised by a watcher."""


def test_progress_is_reported_and_what_the_watcher_raises_kills_it(program: Write) -> None:
    program("import time; time.sleep(600)")
    actions: list[str] = []

    def watcher(action: str, _share: float | None) -> None:
        actions.append(action)
        if len(actions) == 2:
            raise EnoughError

    # Other tests may have left a worker.
    before = psutil.Process().children()
    with watched(watcher), pytest.raises(EnoughError), ChildProcess(MODULE) as child:
        [running] = {*psutil.Process().children()} - {*before}
        child.wait(seconds=60, action="waiting")
    assert actions == ["waiting"] * 2
    assert not running.is_running()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no sessions")
def test_the_keyboard_s_signals_do_not_reach_it(program: Write) -> None:
    program("import os; print(os.getsid(0))")
    assert int(ended().output) != os.getsid(0)


def test_without_an_interpreter_it_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = psutil.Process().num_fds() if hasattr(psutil.Process, "num_fds") else 0
    with pytest.raises(OSError):
        ChildProcess(MODULE)
    assert not before or psutil.Process().num_fds() == before
