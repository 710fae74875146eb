"""`localspec chats`: conversations are listed, written and deleted without opening the chat."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from fakes.command_line import Done, localspec
from fakes.saved_sessions import save_session, titles
from fakes.terminal import on_terminal

from localspec_tui.archive import Archive, archive_file

pty = pytest.mark.skipif(os.name == "nt", reason="there is no pty")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without conversations."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def keys() -> list[str]:
    """Those of two conversations, the earlier one first."""
    with closing(Archive()) as archive:
        first = save_session(archive, "What is a drafter?", "And a target?", model="/m/tiny.gguf")
        return [first, save_session(archive, "Say \x1b[31mred")]


def left() -> list[str]:
    with closing(Archive()) as archive:
        return titles(archive)


def refused(*arguments: str) -> str:
    done = localspec("chats", *arguments)
    assert done.code == 2 and not done.out and len(done.lines) == 1, done.err
    return done.lines[0].removeprefix("localspec: error: ")


def shown(done: Done) -> str:
    assert done.code == 0, done.err
    return done.out


def test_the_latest_comes_first(keys: list[str]) -> None:
    done = localspec("chats")
    header, *rows = shown(done).splitlines()
    assert header.split() == ["id", "when", "model", "messages", "title"]
    assert [row.split()[0] for row in rows] == keys[::-1]
    assert "tiny.gguf         2  What is a drafter?" in rows[1] and "/m/" not in done.out
    assert "\x1b" not in done.out and "just now" in rows[0]
    (line,) = done.lines
    assert line.startswith("localspec: 2 conversations in ")
    assert line.endswith("; localspec chat --resume ID goes on with one")


def test_json(keys: list[str]) -> None:
    conversations = localspec("chats", "--json").record["conversations"]
    assert [each["id"] for each in conversations] == keys[::-1]
    assert conversations[1] | {"changed": ""} == {
        "id": keys[0],
        "changed": "",
        "model": "/m/tiny.gguf",
        "messages": 2,
        "title": "What is a drafter?",
    }


def test_without_conversations_no_file_is_made() -> None:
    done = localspec("chats")
    assert (done.code, done.out) == (0, "")
    assert done.lines == ["localspec: there are no conversations yet; localspec chat begins one"]
    assert localspec("chats", "--json").record == {"conversations": []}
    for arguments in (["--export", "a"], ["--delete", "a", "--yes"]):
        assert refused(*arguments) == "there are no conversations yet; localspec chat begins one"
    assert not archive_file().exists()


def test_a_conversation_is_written_to_stdout_and_to_files(keys: list[str], tmp_path: Path) -> None:
    text = shown(localspec("chats", "--export", keys[0][:6]))
    assert text.startswith("# What is a drafter?\n\nModel: /m/tiny.gguf\n\n## User\n\nWhat is")
    record = localspec("chats", "--export", keys[0], "--json").record
    assert [turn["content"] for turn in record["turns"]] == ["What is a drafter?", "And a target?"]
    for name, expected in (("a.md", text), ("a.json", record)):
        done = localspec("chats", "--export", keys[0], str(tmp_path / name))
        assert (done.code, done.out) == (0, "")
        assert done.lines == [f"localspec: written: {tmp_path / name}"]
        written = (tmp_path / name).read_text("utf-8")
        assert (json.loads(written) if name == "a.json" else written) == expected
    assert refused("--export", keys[0], str(tmp_path / "a.md")).endswith("name another")
    assert shown(localspec("chats", "--export", keys[0], "-")) == text


def test_conversations_are_deleted(keys: list[str]) -> None:
    done = localspec("chats", "--delete", keys[0])
    assert done.code == 2 and done.lines[-1].endswith("--yes deletes without asking")
    assert refused("--delete", keys[0], "--delete", "zzz", "--yes").startswith("no conversation")
    assert len(left()) == 2
    done = localspec("chats", "--delete", keys[0][:8], "--delete", keys[0], "--yes")
    assert done.code == 0 and not done.out
    assert done.lines[0] == f"localspec: {keys[0]}: What is a drafter? (2 messages)"
    assert len(left()) == 1 and left() != ["What is a drafter?"]


def test_an_empty_id_is_that_of_no_conversation(keys: list[str]) -> None:
    """As of a variable of the shell that is not set: every ID begins with nothing."""
    assert localspec("chats", "--delete", keys[0], "--yes").code == 0
    empty = "the ID of a conversation is empty; localspec chats lists them"
    for option in (["--delete", "", "--yes"], ["--export", ""]):
        assert refused(*option) == empty
    resumed = localspec("chat", "--plain", "--resume", "")
    assert resumed.code == 2 and resumed.lines[-1].endswith(empty)
    assert len(left()) == 1


@pty
@pytest.mark.parametrize(("answer", "number"), [(b"y\r", 1), (b"n\r", 2)])
def test_a_terminal_asks(keys: list[str], answer: bytes, number: int) -> None:
    code, said = on_terminal("chats", "--delete", keys[0], answer=answer, after=b"[y/N]")
    assert code == 0 and "Delete 1 conversation?" in said
    assert len(left()) == number and ("nothing was deleted" in said) == (number == 2)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--export", "a", "--delete", "b"], "--export and --delete are two commands; leave one"),
        (["a.md"], "a.md is a file to write to; name a conversation with --export"),
        (["--yes"], "--yes is of --delete; leave it out"),
        (["--delete", "a", "--json"], "--delete prints no JSON; leave --json out"),
        (["--export", "a", "b.md", "--json"], "a FILE that ends in .json gets JSON; leave --json"),
        (["--export"], "Option '--export' requires an argument; localspec chats lists"),
    ],
)
def test_what_does_not_go_together_is_one_line(arguments: list[str], line: str) -> None:
    assert refused(*arguments).startswith(line)


def test_the_chat_says_where_ids_are_listed() -> None:
    for arguments, line in (
        (["--resume"], "Option '--resume' requires an argument; localspec chats lists"),
        (["--list"], "No such option '--list'; localspec chats lists conversations"),
        (["--export", "a"], "No such option '--export'; localspec chats --export writes"),
        (["--delete", "a"], "No such option '--delete'; localspec chats --delete deletes"),
    ):
        done = localspec("chat", *arguments)
        assert done.code == 2 and len(done.lines) == 1
        assert done.lines[0].startswith(f"localspec: error: {line}"), done.err
