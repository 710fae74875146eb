"""A file that never ends is refused in a line, by every command that takes one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.generate_runs import posix, with_model

from localspec.utils.bounded_file import open_regular, read_at_most, read_regular

pytestmark = [posix, pytest.mark.usefixtures("bare_environment")]
GENERATE = ["generate", *map(str, with_model(())), "--raw", "--max-tokens", "2"]
ENDLESS = "/dev/zero"
# Address space: what reads without end would fail, or fill the machine's memory, without it.
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30));"
RUN = "from localspec.cli.main import main; main()"


def run(*arguments: str, stdin: int = subprocess.DEVNULL, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", LIMIT + RUN, *arguments],
        env={**os.environ, **environment},
        stdin=stdin,
        capture_output=True,
        timeout=100,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", ENDLESS),
        ("show", ENDLESS),
        ("generate", "-m", ENDLESS, "x"),
        (*GENERATE, "--draft", ENDLESS, "x"),
        (*GENERATE, "--grammar", ENDLESS, "x"),
        (*GENERATE, "--schema", ENDLESS, "x"),
        ("bench", "--prompts", ENDLESS),
        ("plan", "--prompts", ENDLESS),
        ("pair", ENDLESS, ENDLESS),
    ],
)
def test_an_endless_file(arguments: tuple[str, ...]) -> None:
    code, err = run(*arguments)
    assert code in (2, 3, 5, 6)
    assert err.count("\n") == 1
    assert ENDLESS in err


@pytest.mark.parametrize("arguments", [GENERATE, ["audit", "-"]])
def test_endless_standard_input(arguments: list[str]) -> None:
    with open(ENDLESS, "rb") as endless:
        code, err = run(*arguments, stdin=endless.fileno())
    assert code == 2
    assert err.count("\n") == 1
    assert "larger than 67.1 MB" in err


@pytest.mark.parametrize("name", ["config.toml", "models.toml"])
@pytest.mark.parametrize("kind", ["endless", "pipe", "folder"])
def test_files_that_are_read_unasked(tmp_path: Path, name: str, kind: str) -> None:
    """Nobody would ever write into the pipe."""
    file = tmp_path / name
    make = {"endless": lambda: file.symlink_to(ENDLESS), "folder": file.mkdir}
    make.get(kind, lambda: os.mkfifo(file))()
    command = ["config"] if name == "config.toml" else ["ls"]
    code, err = run(*command, LOCALSPEC_HOME=str(tmp_path), HF_HUB_CACHE=str(tmp_path))
    assert code == 2
    assert err.count("\n") == 1
    assert str(file) in err


def test_what_is_just_small_enough(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for size in (0, 1, 9, 10):
        file.write_bytes(b"x" * size)
        assert read_at_most(file, 10) == read_regular(file, 10) == b"x" * size
    file.write_bytes(b"x" * 11)
    for read in (read_at_most, read_regular):
        with pytest.raises(OSError, match="it is larger than 10 bytes"):
            read(file, 10)


def test_a_pipe_is_read_where_the_user_names_it(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    assert read_at_most(Path(f"/dev/fd/{reading}"), 10) == b"text"
    os.close(reading)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        open_regular(tmp_path / "pipe")
