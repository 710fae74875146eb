"""Exports as Markdown and as JSON, and the files they are written to."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from localspec.conversation.turns import Conversation, TokenizedText, Turn
from localspec.errors import InvalidValueError
from localspec_tui.export import as_json, as_markdown, write_export


def two_answers() -> Conversation:
    """A question with two answers; the first one is on the active branch."""
    conversation = Conversation()
    question = conversation.add(Turn("user", "Why?"))
    answer = conversation.add(
        Turn(
            "assistant",
            "Because.",
            thought="Let me see.",
            raw="<think>Let me see.</think>Because.",
            written=TokenizedText("<think>Let me see.</think>Because.", (1, 2, 3)),
            stop_reason="eos",
        )
    )
    conversation.back_to(question)
    conversation.add(Turn("assistant", "Who kn", stop_reason="cancelled"))
    conversation.choose(answer)
    return conversation


def headings(text: str) -> list[str]:
    tokens = MarkdownIt().parse(text)
    return [inline.content for opened, inline in pairwise(tokens) if opened.type == "heading_open"]


def test_markdown_has_the_active_branch() -> None:
    assert as_markdown(two_answers(), "Why", "tiny", system="Be brief.") == (
        "# Why\n\nModel: tiny\n\n## System\n\nBe brief.\n\n## User\n\nWhy?\n\n## Assistant\n\n"
        "<details>\n<summary>Thought</summary>\n\nLet me see.\n\n</details>\n\nBecause.\n"
    )
    assert as_markdown(Conversation(), "Nothing", "tiny") == "# Nothing\n\nModel: tiny\n"


@pytest.mark.parametrize(
    ("reason", "mark"),
    [
        ("eos", ""),
        ("stop", ""),
        ("cancelled", "*(stopped)*"),
        ("interrupted", "*(interrupted)*"),
        ("length", "*(cut off: the limit of tokens was reached)*"),
        ("context", "*(cut off: the context was full)*"),
        ("of tomorrow", "*(of tomorrow)*"),
        (None, "*(not finished yet)*"),
    ],
)
def test_an_incomplete_answer_is_marked(reason: str | None, mark: str) -> None:
    conversation = Conversation([Turn("user", "?"), Turn("assistant", "Yes", stop_reason=reason)])
    assert as_markdown(conversation, "t", "m").rpartition("Yes")[2].strip() == mark


def test_a_thought_cannot_end_its_own_block() -> None:
    turn = Turn("assistant", "a", thought="</details> is a tag", stop_reason="eos")
    assert as_markdown(Conversation([turn]), "t", "m").count("</details") == 1


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint()",
        "```python\nprint()\n```",
        "````\n```\n# no heading\n```",
        "~~~\n```",
        "  ```\n# no heading",
        "- a list\n- ```\n  # no heading\n  ```",
        "- a list\n- ```\n  # no heading",
        "> ```\n> # no heading",
        "`` ` ``",
        "",
    ],
)
def test_an_open_fence_is_closed_before_the_next_turn(text: str) -> None:
    turns = [Turn("user", "?"), Turn("assistant", text, thought=text), Turn("user", "!")]
    written = as_markdown(Conversation(turns), "t", "m")
    assert headings(written) == ["t", "User", "Assistant", "User"]
    assert text in written


def test_json_has_all_branches() -> None:
    conversation = two_answers()
    record = json.loads(json.dumps(as_json(conversation, "Why", "tiny", system="Be brief.")))
    question, answer, other = record.pop("turns")
    keys = [turn.key for turn in conversation.everything()]
    assert record == {
        "format": 1,
        "title": "Why",
        "model": "tiny",
        "system": "Be brief.",
        "last": keys[1],
    }
    assert question == {
        "key": keys[0],
        "before": None,
        "role": "user",
        "content": "Why?",
        "thought": "",
        "raw": "",
        "tokens": [],
        "stop_reason": None,
        "edited": 0,
        "media": [],
    }
    assert (answer["before"], answer["thought"]) == (keys[0], "Let me see.")
    assert answer["raw"] == "<think>Let me see.</think>Because." and answer["tokens"] == [1, 2, 3]
    assert (other["key"], other["before"]) == (keys[2], keys[0])
    assert other["stop_reason"] == "cancelled"


def test_json_of_an_empty_conversation() -> None:
    record = as_json(Conversation(), "t", "m")
    assert (record["last"], record["turns"], record["system"]) == (None, [], None)


def test_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert write_export("~/a.md", "é\n\udc80") == tmp_path / "a.md"
    assert (tmp_path / "a.md").read_bytes() == "é\n?".encode()
    assert write_export(Path("b.md"), "") == tmp_path / "b.md"


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("mine")
    with pytest.raises(InvalidValueError, match=r"a\.md is there already; name another"):
        write_export(file, "theirs")
    assert file.read_text() == "mine"


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size")
def test_nothing_stays_of_a_file_that_cannot_be_written_whole(tmp_path: Path) -> None:
    import resource

    file, limits = tmp_path / "a.md", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(InvalidValueError, match=r"a\.md cannot be written"):
            write_export(file, "longer than that")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write_export(file, "longer than that")
    assert file.read_text() == "longer than that"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".", "is a folder; name a file in it"),
        ("", "is a folder; name a file in it"),
        ("none/a.md", r"none.a\.md cannot be written: No such file .*; name another place"),
        ("~nobody-of-this-name/a.md", "cannot be written"),
        ("x" * 300, "cannot be written"),
    ],
)
def test_a_bad_path_is_one_error(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError, match=message):
        write_export(path, "text")
    assert [*tmp_path.iterdir()] == []
