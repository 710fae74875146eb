"""`localspec generate --color`: in a terminal, in a pipe, and where colours are unwanted."""

import os

import pytest
from fakes.command_line import Done, Run
from fakes.generate_runs import (
    BOTH,
    CODES,
    PROMPT,
    posix,
    process,
)

pytestmark = pytest.mark.usefixtures("bare_environment")


def test_forced_colours_are_the_plain_text_and_codes(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = generate(PROMPT, "-n", "60", "--seed", "3").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    for more in ([], ["--no-stream"]):
        done = generate(PROMPT, "-n", "60", "--seed", "3", "--color", "--depth", "3", *more)
        assert CODES.sub("", done.out) == plain
        assert len(CODES.findall(done.out)) > 20
        # Styles end before each line does.
        assert all(line.count("\x1b") % 2 == 0 for line in done.out.split("\n"))
        assert f"{BOTH}: green, underlined" in done.err
    assert "\x1b" not in generate(PROMPT, "-n", "60", "--seed", "3").out


@pytest.mark.parametrize(
    "environment",
    [{}, {"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}],
)
def test_no_colours_into_a_pipe_or_where_they_are_unwanted(
    generate: Run, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    plain = generate(PROMPT, "-n", "30", "--seed", "3").out
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = generate(PROMPT, "-n", "30", "--seed", "3", "--color")
    assert done.out == plain
    assert "colours are off" in done.lines[-1]


def test_json_is_never_coloured(generate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = generate(PROMPT, "--json", "--color", "-n", "30")
    assert "\x1b" not in done.out
    assert done.record


@posix
@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [
        (["--color"], {}, True),
        ([], {}, False),
        (["--color"], {"NO_COLOR": "1"}, False),
        (["--color"], {"TERM": "dumb"}, False),
    ],
)
def test_in_a_terminal(
    generate: Run, options: list[str], environment: dict[str, str], coloured: bool
) -> None:
    # At a fixed depth, so that something is drafted whatever pays.
    arguments = [PROMPT, "-n", "30", "--seed", "3", "--threads", "1", "--depth", "3"]
    code, out, err = in_terminal(*arguments, *options, **environment)
    assert code == 0
    assert ("\x1b" in out) is coloured
    assert CODES.sub("", out) == generate(*arguments).out
    assert "seed 3" in err


@posix
def test_in_a_terminal_nothing_is_waited_for() -> None:
    code, out, err = in_terminal()
    assert (code, out) == (2, "")
    assert "no prompt" in err


def in_terminal(*args: str, **environment: str) -> Done:
    """A run whose standard input and output are a terminal."""
    import pty

    screen, inside = pty.openpty()
    try:
        with process(*args, stdin=inside, stdout=inside, env={**os.environ, **environment}) as run:
            os.close(inside)
            shown = b""
            while part := _read_terminal(screen):
                shown += part
            assert run.stderr is not None
            err = run.stderr.read().decode()
            return Done(run.wait(), shown.decode().replace("\r\n", "\n"), err)
    finally:
        os.close(screen)


def _read_terminal(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # Linux says it like this that nobody is left inside
        return b""
