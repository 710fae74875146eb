"""No text from outside is obeyed by the terminal; to a pipe, bytes go as they are."""

import io
import os
import re
import sys
from pathlib import Path
from random import Random

import pytest
from fakes.command_line import Run, localspec, own_folders
from fakes.generate_runs import posix, with_model
from fakes.pycode import PYCODE
from fakes.terminal import on_terminal
from fuzz.escapes import OBEYED, SEQUENCES, TITLE, hostile_text
from rich.segment import Segment
from textual.color import Color

from localspec.cli.output import Output, write_note
from localspec.cli.table import table_text
from localspec.utils.format import one_line, without_controls
from localspec_tui.control_filter import ControlFilter


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("color", [True, False])
def test_whatever_is_written_to_a_terminal(
    color: bool, monkeypatch: pytest.MonkeyPatch, bare_environment: None
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    if not color:
        monkeypatch.setenv("NO_COLOR", "1")
    output, random = Output(color=color), Random(5)
    for _ in range(150):
        text = hostile_text(random)
        # A sequence must not come together from the pieces of two tokens either.
        at = random.randint(0, len(text))
        for piece in (text[:at], text[at:]):
            output.token(piece, random.choice(["suffix", "corrected", "bonus", "plain"]))
        output.data(text)
        output.record({"text": text})
        output.data(table_text(("name", text), [(text, "x")]))
        write_note(text)
    shown = screen.getvalue()
    assert not OBEYED.search(shown)
    assert "日本\u3000語" in shown and "😀" in shown
    assert color == ("\x1b[" in shown)


def test_a_pipe_gets_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    for text in SEQUENCES:
        output.token(text, "plain")
        output.data(text)
    assert capsys.readouterr().out == "".join(2 * text for text in SEQUENCES)


def test_notes_are_one_line_of_a_sane_length(capsys: pytest.CaptureFixture[str]) -> None:
    write_note(f"the file {'a' * 100_000}\nlocalspec: all is well\x1b[2J is broken; download it")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert len(err) < 1100
    assert err.startswith("localspec: the file aaa") and err.endswith("is broken; download it\n")


def test_ordinary_texts_stay() -> None:
    text = "tabs\tand lines\n日本\u3000語 a\u00a0b 😀\u200d👩 e\u0301"
    assert without_controls(text) == text
    assert one_line("one line") == "one line"


def test_the_chat_s_screen_obeys_nothing() -> None:
    random = Random(6)
    for _ in range(100):
        segments = [Segment(hostile_text(random)) for _ in range(3)]
        shown = ControlFilter().apply(segments, Color.parse("black"))
        assert not OBEYED.search("".join(segment.text for segment in shown))
        assert not any("\x1b" in segment.text or "\n" in segment.text for segment in shown)


@posix
def test_a_model_that_writes_sequences(tmp_path: Path, bare_environment: None) -> None:
    (tmp_path / "g.gbnf").write_text(r'root ::= ("\x1b]0;gotcha\x07"){2}')
    command = ["generate", *map(str, with_model(("x",))), "--raw", "--max-tokens", "60"]
    command += ["--grammar", str(tmp_path / "g.gbnf"), "--temperature", "0", "--color"]
    code, shown = on_terminal(*command)
    assert code == 0
    # Words are in several styles where a drafter guessed a part of them.
    assert "gotcha" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    # Where loading takes long, the terminal shows a line about it, and deletes it.
    *_, text = shown.replace("\r\n", "\n").rpartition(" \r")
    assert not OBEYED.search(text)
    assert localspec(*command).out == 2 * TITLE + "\n"


@posix
@pytest.mark.parametrize("command", [("show",), ("pair",), ("generate", "x", "-m"), ("audit",)])
def test_names_of_files(tmp_path: Path, bare_environment: None, command: tuple[str, ...]) -> None:
    """Of a model that can be used, and of one that cannot."""
    good, bad = tmp_path / f"{TITLE}.gguf".replace("/", ""), tmp_path / f"bad{TITLE}.gguf"
    good.symlink_to(PYCODE.target)
    bad.write_bytes(b"GGUF" + b"\0" * 20)
    for file in (good, bad) if command == ("show",) else (bad,):
        _, shown = on_terminal(*command, str(file), env={**os.environ, **own_folders(tmp_path)})
        assert "gotcha" in shown
        assert not OBEYED.search(shown.replace("\r\n", "\n"))


@posix
def test_the_registry_s_texts(tmp_path: Path, bare_environment: None) -> None:
    evil = "e\\u001b]0;gotcha\\u0007\\nx"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text(
        f'[[pair]]\nname = "evil"\nparameters = "{evil}"\nnote = "{evil}"\n'
        f'target = "user/repo"\nno_drafter = "{evil}"\n'
    )
    env = {**os.environ, **own_folders(tmp_path)}
    for command in (["ls", "--all"], ["show", "evil"], ["pull", f"no{TITLE}"]):
        _, shown = on_terminal(*command, env=env)
        assert not OBEYED.search(shown.replace("\r\n", "\n"))


@pytest.mark.parametrize("word", [TITLE, "a" * 100_000, "x\ny\x1b[2J"])
def test_arguments_in_errors(cli: Run, word: str) -> None:
    for arguments in (
        [word],
        ["generate", "-m", word, "x"],
        ["show", word],
        ["generate", f"--{word}"],
    ):
        done = cli(*arguments)
        assert done.code in (1, 2, 3)
        assert not OBEYED.search(done.err)
        assert done.err.count("\n") == 1
        assert len(done.err) < 1200
