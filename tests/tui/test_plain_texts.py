"""Texts behind /edit and /system in the chat without a screen."""

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
    done = chat(script, f"first\n/edit {typed}\n/system {typed}\nlast\n")
    assert contents(done) == [text, "b", "last", "c"]
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
