"""Where a fault ends the process that serves, another one is started."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.served import PATIENCE, Served, free_port, serving, wait_for

from localspec.server.child import ServerExit
from localspec.server.supervisor import Faults

# With delays of a test.
SUPERVISE = """
import sys
from pathlib import Path
from fakes.jobs import Faulty, Patient
from localspec.server import supervisor
from localspec.server.child import Job
supervisor._FIRST_DELAY, supervisor._LONGEST_DELAY = 0.01, float(sys.argv[2])
sys.exit(supervisor.supervise(Job("fakes.jobs:do", eval(sys.argv[1]))))
"""
MEMORY = "CUDA error: out of memory"
SETTINGS: dict[str, Any] = {"prompt": "List files", "max_tokens": 20, "temperature": 1, "seed": 3}


@contextmanager
def supervising(
    job: str, longest: float = 0.02, first: Path | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A process that supervises a job, in a process group of its own.

    longest: the longest delay, in seconds. first: a folder of modules that come before all others.
    """
    path = os.pathsep.join([*([str(first)] if first else []), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", SUPERVISE, job, str(longest)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def supervised(job: str) -> tuple[int, list[str]]:
    """The exit code, and the lines on standard error."""
    with supervising(job) as process:
        _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors.splitlines()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_another_one_is_started(runs: Path) -> None:
    """It knows how often memory ran out before."""
    code, lines = supervised(f"Faulty(Path({str(runs)!r}), 3, ready=9)")
    assert (code, runs.read_text().split()) == (7, ["0"] * 4)
    assert lines.count("printed by a driver") == 3
    said = [line for line in lines if "was ended by" in line]
    assert len(said) == 3
    assert "ended by SIGABRT (printed by a driver); what it wrote is lost" in said[0]
    assert "another one starts in" in said[0] and "memory" not in said[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (f"logged={MEMORY!r}, written='/build/ggml-cuda.cu:108: CUDA error\\n'", MEMORY),
        ("written='  what():  vk::OutOfDeviceMemoryError\\n'", "what():  vk::OutOfDeviceMemory"),
        ("sent=9", "SIGKILL"),
    ],
)
def test_lack_of_memory_is_told_to_the_next_one(runs: Path, options: str, said: str) -> None:
    code, lines = supervised(f"Faulty(Path({str(runs)!r}), 2, ready=9, {options})")
    assert (code, runs.read_text().split()) == (7, ["0", "1", "2"])
    told = [line for line in lines if "was ended by" in line]
    assert len(told) == 2
    assert said in told[0] and "to leave more memory free" in told[0]


def test_main_memory_is_not_spared_by_what_spares_that_of_gpus(runs: Path) -> None:
    supervised(f"Faulty(Path({str(runs)!r}), 2, 9, ready=9, on_gpus=True)")
    assert runs.read_text().split() == ["0"] * 3


def test_an_exit_in_c_is_a_fault_too(runs: Path) -> None:
    """As SYCL ends where a device is lost."""
    job = f"Faulty(Path({str(runs)!r}), 1, 0, ready=9, written='DEVICE_LOST\\n')"
    code, lines = supervised(job)
    assert (code, len(runs.read_text().split())) == (7, 2)
    assert any("was ended by exit code 1 (DEVICE_LOST)" in line for line in lines)


def test_a_later_start_that_fails_is_tried_again(runs: Path) -> None:
    """Memory that another program has taken, or a worker that is away, may come back."""
    code, lines = supervised(f"Faulty(Path({str(runs)!r}), 1, ready=9, failed=(2, 3))")
    assert (code, len(runs.read_text().split())) == (7, 4)
    assert sum("exit code 5" in line for line in lines) == 2
    runs.unlink()
    code, _ = supervised(f"Faulty(Path({str(runs)!r}), 0, failed=(1,))")
    assert (code, len(runs.read_text().split())) == (5, 1)


def test_one_that_has_never_been_ready_is_the_last(runs: Path) -> None:
    code, lines = supervised(f"Faulty(Path({str(runs)!r}), 9, ready=0, written='no kernel\\n')")
    assert (code, len(runs.read_text().split())) == (128 + signal.SIGABRT, 1)
    assert "was ended by SIGABRT (no kernel), before it was ready" in lines[-1]


def test_starts_that_fail_have_an_end(runs: Path) -> None:
    code, lines = supervised(f"Faulty(Path({str(runs)!r}), 99, {int(signal.SIGSEGV)}, ready=2)")
    assert (code, len(runs.read_text().split())) == (128 + signal.SIGSEGV, 7)
    assert "and so were 4 starts before" in lines[-1]


def test_an_end_by_itself_is_the_end(runs: Path) -> None:
    for code in (0, 5):
        runs.unlink(missing_ok=True)
        found = supervised(f"Faulty(Path({str(runs)!r}), 0, code={code})")
        assert found == (code, [])
        assert len(runs.read_text().split()) == 1
    # So is a signal that asks for it.
    runs.unlink()
    code, lines = supervised(f"Faulty(Path({str(runs)!r}), 9, {int(signal.SIGTERM)})")
    assert (code, len(runs.read_text().split())) == (128 + signal.SIGTERM, 1)
    assert not [line for line in lines if "another one" in line]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to_all", [False, True])
def test_each_signal_comes_once(tmp_path: Path, sent: int, to_all: bool) -> None:
    """Whether the child gets it too, as from a terminal, or only its parent does."""
    found = tmp_path / "found"
    with supervising(f"Patient(Path({str(found)!r}))") as process:
        wait_for(lambda: found.exists() and found.read_text().endswith("\n"))
        time.sleep(0.2)  # the parent reads that it is ready
        if to_all:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        assert process.wait(PATIENCE) == 3
    assert found.read_text() == "1\n"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_before_it_is_ready_is_the_end(tmp_path: Path, sent: int, code: int) -> None:
    found = tmp_path / "found"
    with supervising(f"Patient(Path({str(found)!r}), ready=False)") as process:
        wait_for(lambda: found.exists() and found.read_text().endswith("\n"))
        child = psutil.Process(int(found.read_text()))
        process.send_signal(sent)
        assert process.wait(PATIENCE) == code
        wait_for(lambda: not child.is_running())


def test_a_signal_between_two_is_the_end(runs: Path) -> None:
    with supervising(f"Faulty(Path({str(runs)!r}), 9, ready=9)", longest=PATIENCE) as process:
        assert process.stderr
        # 0.01, 0.02, 0.04 seconds and so on.
        wait_for(lambda: runs.exists() and len(runs.read_text().split()) == 9)
        assert any("another one starts in 3 s" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    found = tmp_path / "found"
    with supervising(f"Patient(Path({str(found)!r}))") as process:
        wait_for(lambda: found.exists() and found.read_text().endswith("\n"))
        child = psutil.Process(int(found.read_text()))
        process.kill()
        wait_for(lambda: not child.is_running())


def test_delays_grow_and_are_forgotten() -> None:
    faults = Faults()
    found = []
    for number in range(8):
        faults.add(float(number), ready=True, lacked_memory=number < 2)
        found.append(faults.delay)
        assert faults.verdict is None
    assert found == [1, 2, 4, 8, 16, 30, 30, 30]
    faults.add(601.5, ready=True, lacked_memory=False)
    assert faults.delay == 30
    faults.add(2000, ready=True, lacked_memory=False)
    assert faults.delay == 1
    assert faults.of_memory == 2
    faults.add(90_000, ready=True, lacked_memory=False)
    assert faults.of_memory == 0


def test_what_is_a_fault() -> None:
    for code in (-6, -9, -11, 1, 3, 0xC0000005, 0xC0000409):
        assert ServerExit(code, "", "").is_fault
    for code in (-2, -15, 0xC000013A):  # somebody wanted it
        assert not ServerExit(code, "", "").is_fault
    assert not ServerExit(3, "", "", is_wanted=True).is_fault
    assert ServerExit(0xC0000005, "", "").cause == "exit code 3221225477"


@pytest.mark.parametrize("closed", ["<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(runs: Path, closed: str) -> None:
    """As those of programs that are started in the background."""
    job = f"Faulty(Path({str(runs)!r}), 1, ready=9)"
    command = shlex.join([sys.executable, "-P", "-c", SUPERVISE, job, "0.02"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", "-c", f"{command} {closed}"], env=environment, timeout=PATIENCE)
    assert (done.returncode, len(runs.read_text().split())) == (7, 2)


def test_what_is_printed_at_the_start_of_a_process_is_no_report(runs: Path) -> None:
    (runs.parent / "sitecustomize.py").write_text("print('from a site')\n")
    job = f"Faulty(Path({str(runs)!r}), 1, ready=9)"
    with supervising(job, first=runs.parent) as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7
    assert errors.count("from a site") == 2


def test_a_ctrl_c_before_it_can_be_answered_leaves_no_traceback(runs: Path) -> None:
    """Windows holds none back."""
    raised = "import sys\nif 'localspec.server.child' in sys.orig_argv:\n    raise "
    found = []
    for exception in ("KeyboardInterrupt", "GeneratorExit"):
        (runs.parent / "sitecustomize.py").write_text(raised + exception)
        with supervising(f"Faulty(Path({str(runs)!r}))", first=runs.parent) as process:
            _, errors = process.communicate(timeout=PATIENCE)
        found.append("Traceback" in errors)
    assert found == [False, True]


def test_a_line_of_its_log_ends_once(runs: Path) -> None:
    """Windows ends it with CR LF."""
    with supervising(f"Faulty(Path({str(runs)!r}), ready=9, written='said\\r\\n')") as process:
        assert process.stderr
        assert f"said{os.linesep}".encode() in process.stderr.buffer.read()


def server_of(served: Served) -> psutil.Process:
    """The process that holds the model."""
    (child,) = [
        each
        for each in psutil.Process(served.process.pid).children()
        if "localspec.server.child" in each.cmdline()
    ]
    return child


def holds(process: int) -> set[str]:
    """Which of these a process has mapped into its memory."""
    maps = Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
    return {each for each in ("libllama", ".gguf") if each in maps}


@pytest.mark.slow
def test_a_server_comes_back_with_all_that_it_was_given(tmp_path: Path) -> None:
    """Also with what can be read only once, from pipes."""
    ends = [os.pipe() for _ in range(2)]
    for (_, end), text in zip(ends, ["secret\n", "copied from a pipe " * 20], strict=True):
        os.write(end, text.encode())
        os.close(end)
    key, copied = (f"/dev/fd/{begin}" for begin, _ in ends)
    options = ["--api-key-file", key, "--copy-from", copied, "--alias", "tiny", "--ctx", "256"]
    pipes = [begin for begin, _ in ends]
    options += ["--threads", "1", "--parallel", "2"]
    # Only one port is tried: a second server would find the pipes empty.
    with serving(*options, pass_fds=pipes, ports=[free_port()]) as served:
        allowed = {"headers": {"Authorization": "Bearer secret"}}

        def text() -> str:
            answer = served.post("/v1/completions", SETTINGS, **allowed)
            return str(answer.json()["choices"][0]["text"])

        before, first = text(), server_of(served)
        first.send_signal(signal.SIGSEGV)
        wait_for(lambda: sum("serving at" in line for line in served.lines) == 2)
        assert served.post("/v1/completions", SETTINGS).status_code == 401
        assert text() == before
        assert served.get("/v1/models", **allowed).json()["data"][0]["id"] == "tiny"
        (said,) = [line for line in served.lines if "was ended by" in line]
        assert "was ended by SIGSEGV; what it wrote is lost" in said
        second = server_of(served)
        assert second.pid != first.pid
        # The parent needs no model, and no library.
        if sys.platform == "linux":
            assert holds(second.pid) == {"libllama", ".gguf"}
            assert holds(served.process.pid) == set()
        assert served.end() == 0
        assert not second.is_running()
    for begin in pipes:
        os.close(begin)


@pytest.mark.slow
def test_its_log_is_json_too(tmp_path: Path) -> None:
    with serving("--json-logs", "--threads", "1", "--ctx", "256", "--parallel", "1") as served:
        server_of(served).kill()
        wait_for(lambda: sum("serving at" in line for line in served.lines) == 2)
        entries = [json.loads(line) for line in served.lines if line.startswith("{")]
        (said,) = [each for each in entries if "was ended by" in each["message"]]
        assert said["level"] == "error" and "SIGKILL" in said["message"]
