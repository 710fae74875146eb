"""A remark that cannot be written neither loses the answer nor changes the exit code."""

import io
import subprocess
import sys

import pytest
from fakes.command_line import localspec
from fakes.generate_runs import posix, with_model

from localspec.cli.main import main
from localspec.cli.output import write_note

pytestmark = pytest.mark.usefixtures("bare_environment")
MODEL = [str(each) for each in with_model(())]


class Failing(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left"), BrokenPipeError(), ValueError("closed"), OSError(5, "x")],
)
def test_a_note_that_fails_is_lost(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Failing(error))
    write_note("lost")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["generate", *MODEL, "--raw", "--max-tokens", "4", "--seed", "1", "x"], 0),
        (["generate", "-m", "no-such-model", "x"], 3),
        (["generate", "--no-such-option"], 2),
        (["generate", *MODEL, "--depth", "x", "x"], 2),
        (["no-such-command"], 2),
        ([], 2),
        (["ls"], 0),
        (["ls", "--json"], 0),
        (["show", "pycode"], 0),
        (["show", "no-such-model"], 3),
        (["doctor", "--help"], 0),
        (["config"], 0),
        (["rm", "no-such-model"], 3),
        (["audit", "no-such-file"], 2),
    ],
)
@pytest.mark.parametrize("broken", [OSError(28, "No space left"), None])
def test_the_answer_and_the_code_are_those_of_a_good_stderr(
    arguments: list[str],
    code: int,
    broken: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(stderr: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["localspec", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            with pytest.raises(SystemExit) as ended:
                main()
        return int(ended.value.code or 0), capsys.readouterr().out

    good = run(io.StringIO())
    assert good[0] == code
    assert run(Failing(broken) if broken else None) == good


@posix
def test_a_full_device() -> None:
    """The interpreter flushes the stream at its end, too."""
    arguments = ["generate", *MODEL, "--raw", "--max-tokens", "4", "--seed", "1", "x"]
    command = [sys.executable, "-m", "localspec"]
    with open("/dev/full", "w") as device:
        good = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, stderr=device)
        missing = subprocess.run([*command, "generate", "-m", "nothing", "x"], stderr=device)
    assert (good.returncode, good.stdout.decode()) == (0, localspec(*arguments).out)
    assert missing.returncode == 3
