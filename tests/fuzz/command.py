"""`python -m localspec` as fuzzers run it: in a process of its own, or in a fork of a warm one.

A start takes most of a second, nearly all of it for imports. `WarmCommand` imports once, and forks
for each run: the fork has arguments, standard streams and a session of its own, runs the module as
`python -m` does, and ends as Python ends. No model is loaded before the fork, and no thread runs.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

from fuzz.campaign import peak_bytes

MOST_BYTES = 2 << 30
SECONDS = 120


class Ends(NamedTuple):
    """How a command ended."""

    code: int
    errors: str
    output: str = ""


class Command(Protocol):
    """Runs the command line.

    Raises AssertionError for a run without an end, or with more memory than MOST_BYTES.
    """

    def __call__(self, *arguments: str, typed: str = "") -> Ends: ...


def sound(ends: Ends, codes: Sequence[int] = (0, 2, 3, 5, 6)) -> str:
    """How a command ended: its exit code. Raises AssertionError for an end it must not have.

    That is a signal, a traceback, an unexpected error, and more or less than one line of error.
    """
    code, errors, _ = ends
    assert code in codes, f"exit {code}: {errors[-400:]}"
    assert "Traceback" not in errors and "unexpected" not in errors, errors[-600:]
    assert errors.count("localspec: error:") == (code != 0), errors[-600:]
    assert len(errors) < 8000, errors[:400]
    return f"exit {code}"


def _environment(home: Path) -> dict[str, str]:
    own = {"LOCALSPEC_HOME": str(home), "HF_HUB_CACHE": str(home / "hub"), "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}


class FreshCommand:
    """`localspec ARGUMENTS` in a process of its own. home: the folder of its files."""

    def __init__(self, home: Path) -> None:
        self._environment = _environment(home)

    def __call__(self, *arguments: str, typed: str = "") -> Ends:
        child = subprocess.Popen(
            [sys.executable, "-m", "localspec", *arguments],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = child.communicate(typed.encode(), timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise AssertionError(f"no end within {SECONDS} s: {arguments!r:.300}") from error
        assert peak_bytes() < MOST_BYTES, f"{peak_bytes() >> 20} MB"
        return _ends(child.returncode, output, errors)


class WarmCommand:
    """`localspec ARGUMENTS` in a fork of a process that has imported it.

    home: the folder of its files. Use it in a `with`, which ends that process.
    """

    def __init__(self, home: Path) -> None:
        self._folder = TemporaryDirectory(prefix="localspec-fuzz-")
        self._streams = [Path(self._folder.name) / name for name in ("in", "out", "err")]
        self._process = subprocess.Popen(
            # -P: beside this file are others, which are not to be taken for modules of Python.
            [sys.executable, "-P", str(Path(__file__).resolve()), *map(str, self._streams)],
            # The pool of threads of numpy's library would start with the first import.
            env=_environment(home) | {"OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C ends the campaign, which then ends this
        )

    def __enter__(self) -> "WarmCommand":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def __call__(self, *arguments: str, typed: str = "") -> Ends:
        assert self._process.stdin and self._process.stdout
        typed_in, output, errors = self._streams
        typed_in.write_text(typed)
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        code, peak = json.loads(self._process.stdout.readline())
        assert code is not None, f"no end within {SECONDS} s: {arguments!r:.300}"
        assert peak < MOST_BYTES, f"{peak >> 20} MB"
        return _ends(code, output.read_bytes(), errors.read_bytes())


def _ends(code: int, output: bytes, errors: bytes) -> Ends:
    return Ends(code, errors.decode("utf-8", "replace"), output.decode("utf-8", "replace"))


# In the warm process.


def _serve(streams: Sequence[str]) -> list[str] | None:
    """Fork for each line of standard input, the arguments of a run, and answer how it ended.

    Returns its arguments in each fork, and None in the warm process, at the end of its input.
    """
    # Not sys.stdin, which reads ahead and is then the fork's.
    for line in open(os.dup(0)):  # noqa: SIM115
        if not (child := os.fork()):
            os.setsid()
            for number, name in enumerate(streams):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
                os.dup2(os.open(name, flags, 0o600), number)
            arguments: list[str] = json.loads(line)
            return arguments
        answer = json.dumps(_waited_for(child))
        os.write(1, answer.encode() + b"\n")
    return None


def _waited_for(child: int) -> tuple[int | None, int]:
    """The exit code of a fork, None for one that had to be killed, and its most memory in bytes."""
    late = []

    def kill(_signal: int, _frame: object) -> None:
        late.append(child)
        os.killpg(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.alarm(SECONDS)
    _, status, usage = os.wait4(child, 0)
    signal.alarm(0)
    unit = 1 if sys.platform == "darwin" else 1024
    return None if late else os.waitstatus_to_exitcode(status), usage.ru_maxrss * unit


if __name__ == "__main__":
    # What most of a start is; the entry point itself is imported in each fork.
    for module in ("localspec.cli.main", "localspec.cli.generate"):
        import_module(module)
    del os.environ["OPENBLAS_NUM_THREADS"]
    if Path("/proc/self/task").is_dir():
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be in the forks"
    ARGUMENTS = _serve(sys.argv[1:])
    if ARGUMENTS is not None:
        sys.argv[1:] = ARGUMENTS
        runpy.run_module("localspec", run_name="__main__", alter_sys=True)
