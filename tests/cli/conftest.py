"""Runs of the command line within the tests' own process, which is quick."""

import io
import sys
from typing import Any

import pytest
from fakes.command_line import Done, Run

from localspec.cli.main import main


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain terminal, whatever the tests are run in."""
    for name in ("NO_COLOR", "FORCE_COLOR", "LOCALSPEC_DEBUG", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("PYTHONUTF8", "1")


@pytest.fixture
def cli(
    bare_environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """`localspec ARGS`; standard input and output are no terminals."""

    def run(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["localspec", *args])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def generate(cli: Run) -> Run:
    """`localspec generate ARGS` with pycode, where every bit is the same on every run."""
    from fakes.generate_runs import Generated, with_model

    def run(*args: str, **kwargs: Any) -> Generated:
        return Generated(*cli("generate", "--threads", "1", *map(str, with_model(args)), **kwargs))

    return run
