"""Texts behind /edit, /edit-answer and /system in the chat without a screen."""

from pathlib import Path

import pytest
from fakes.plain_chat import Chat, contents, prompt_of
from fakes.scripted import Script

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("two\\\nlines", "two\nlines"),
        ('"""\ntwo\n/quit\n"""', "two\n/quit"),
        ('"""/one"""', "/one"),
        ("//one", "/one"),
    ],
)
def test_a_text_behind_a_command_may_have_several_lines(chat: Chat, typed: str, text: str) -> None:
    script = Script(["a", "b", "c"])
    commands = "".join(f"{each} {typed}\n" for each in ("/edit", "/edit-answer", "/system"))
    done = chat(script, f"first\n{commands}last\n")
    assert contents(done) == [text, text, "last", "c"]
    assert prompt_of(script).startswith(f"<system>{text}\n<user>{text}\n")


def test_a_message_of_several_lines_may_begin_as_a_command(chat: Chat) -> None:
    done = chat(Script(["a", "b"]), '"""\n/edit one\ntwo\n"""\n /edit other\n')
    assert contents(done) == ["other", "b"]


def test_an_edit_attaches_files(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("what is in it", encoding="utf-8")
    done = chat(Script(["a", "b"]), "first\n/edit see @gone.txt\n/edit see @notes.txt\n")
    assert done.notes.count("(there is no file gone.txt in ") == 1
    assert "what is in it" in contents(done)[0] and contents(done)[1] == "b"


def test_the_last_answer_is_shown_as_it_was_written(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakes.scripted._BYTES_PER_TOKEN", 3)
    chat(Script(["<think>\nHm.\n</think>\n\nYes."]), "a\n")
    shown = "> a\n(reasoning)\nHm.\n(answer)\nYes.\n(loading "
    cut = {"max_tokens": 4}
    done = chat(Script(["<think>\nLet me see"]), "b\n", latest=True, sampling=cut)
    assert shown in done.notes and done.turns[-1].content == ""
    done = chat(Script(), "", latest=True)
    line = "(cut off: the limit of tokens was reached)"
    assert f"> b\n(reasoning)\nLet\n{line}\n" in done.notes.replace("Let \n", "Let\n")
