"""Archive: sessions are read back as they were saved."""

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.saved_sessions import found_titles, query, save_session, titles, turn_tree

from localspec.conversation.turns import Conversation, TokenizedText, Turn
from localspec.errors import InvalidValueError
from localspec.sampling.params import SamplerState
from localspec_tui import archive as archives
from localspec_tui.archive import Archive
from localspec_tui.session_settings import SessionSettings


def test_a_session_is_listed_once_a_turn_is_saved(archive: Archive) -> None:
    key = archive.create("tiny", None)
    assert archive.list() == [] and archive.latest() is None
    with pytest.raises(InvalidValueError, match=f"there is no session '{key}'"):
        archive.open(key)
    archive.save(key, [], None)
    assert archive.list() == []
    began = datetime.now(UTC)
    question = Turn("user", "Why is it so?\nTell me.")
    archive.save(key, [question], question)
    [summary] = archive.list()
    assert (summary.key, summary.title, summary.model) == (key, "Why is it so?", "tiny")
    assert summary.turns == 1 and began <= summary.changed <= datetime.now(UTC)
    assert archive.latest() == key
    assert archive.problem is None


def test_a_summary_counts_the_turns_of_the_active_branch(archive: Archive) -> None:
    conversation = Conversation([Turn("user", "a"), Turn("assistant", "b", stop_reason="eos")])
    conversation.back_to(conversation.turns[0])
    conversation.add(Turn("assistant", "c", stop_reason="eos"))
    conversation.add(Turn("user", "d"))
    key = archive.create("tiny", None)
    archive.save(key, conversation.everything(), conversation.last)
    assert archive.list()[0].turns == 3
    archive.save(key, [], None)
    assert archive.list()[0].turns == 0
    assert archive.open(key).conversation.turns == []


def growing_tree(archive: Archive, key: str, size: int) -> tuple[Conversation, dict[str, Any]]:
    """A conversation with branches, saved several times while it grows; and its origins."""
    draw = random.Random(5)
    conversation, origins = Conversation(), {}
    letters = "ab \n\0é\u200d漢😀\x1b'\"%\u2028"
    for number in range(size):
        if draw.random() < 0.1:
            turns = [*conversation.everything()]
            conversation.back_to(draw.choice([None, *turns]))
        text = "".join(draw.choices(letters, k=draw.randrange(40)))
        written = TokenizedText(text, tuple(draw.choices(range(200_000), k=9)))
        turn = Turn("user", text)
        if number % 2:
            seed = draw.getrandbits(64)
            turn = Turn("assistant", text, text[:5], text[5:], written, "some", "eos", seed)
            turn.sampler_state = draw.choice([None, SamplerState("mirostat", 20 * draw.random())])
            turn.thinking, turn.switch = draw.choices([None, False, True], k=2)
            origins[turn.key] = [(text[:7], "suffix"), (text[7:], "plain")]
        conversation.add(turn)
        if draw.random() < 0.8:
            archive.save(key, conversation.everything(), turn, origins)
    archive.save(key, conversation.everything(), conversation.last, origins)
    return conversation, origins


def test_a_tree_of_500_turns_is_read_back_exactly(
    archive: Archive, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = archive.create("a/model.gguf", "Be\nbrief.")
    conversation, origins = growing_tree(archive, key, 500)
    assert sum(len(turn.after) > 1 for turn in conversation.everything()) > 10
    archive.close()
    with closing(Archive(file)) as again:
        opened = again.open(key)
    assert turn_tree(opened.conversation) == turn_tree(conversation)
    assert opened.conversation.last and conversation.last
    assert opened.conversation.last.key == conversation.last.key
    first, second = opened.conversation, conversation
    assert [[turn.key for turn in each.variants(each.turns[0])] for each in (first, second)] == [
        [turn.key for turn in second.variants(second.turns[0])]
    ] * 2
    assert opened.origins == origins
    assert (opened.key, opened.model, opened.system) == (key, "a/model.gguf", "Be\nbrief.")
    assert capfd.readouterr() == ("", "")


def test_ancestors_are_saved_too(archive: Archive) -> None:
    conversation = Conversation([Turn("user", str(number)) for number in range(5)])
    key = archive.create("tiny", None)
    archive.save(key, [], conversation.last)
    assert turn_tree(archive.open(key).conversation) == turn_tree(conversation)


def test_an_opened_session_can_be_continued(archive: Archive, file: Path) -> None:
    key = save_session(archive, "one", "two")
    archive.close()
    with closing(Archive(file)) as again:
        conversation = again.open(key).conversation
        again.save(key, [conversation.add(Turn("user", "three"))], conversation.last)
    with closing(Archive(file)) as at_last:
        turns = at_last.open(key).conversation.turns
    assert [turn.content for turn in turns] == ["one", "two", "three"]


def test_only_changed_turns_are_written(archive: Archive, file: Path) -> None:
    conversation = Conversation([Turn("user", "a"), Turn("user", "b"), Turn("user", "c")])
    key = archive.create("tiny", None)
    archive.save(key, conversation.everything(), conversation.last)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE log (content)")
        for change in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TRIGGER log_{change} AFTER {change} ON turn "
                "BEGIN INSERT INTO log VALUES (new.content); END"
            )
    before = archive.list()
    archive.save(key, conversation.everything(), conversation.last)
    assert query(file, "SELECT * FROM log") == [] and archive.list() == before
    conversation.turns[1].content += "!"
    conversation.add(Turn("user", "d"))
    archive.save(key, conversation.everything(), conversation.last)
    assert query(file, "SELECT * FROM log") == [("b!",), ("d",)]
    archive.open(key)
    archive.save(key, conversation.turns[:1], conversation.last)
    assert len(query(file, "SELECT * FROM log")) == 2


def test_an_unfinished_answer_is_interrupted(archive: Archive) -> None:
    answer = Turn("assistant", "So", "Hm", "So", TokenizedText("S", (1,)), "some")
    conversation = Conversation([Turn("user", "Why?"), answer])
    key = archive.create("tiny", None)
    archive.save(key, [], answer, {answer.key: [("So", "plain")]})
    for _ in range(2):
        opened = archive.open(key)
        question, read = opened.conversation.turns
        assert question.stop_reason is None
        assert (read.content, read.thought, read.stop_reason) == ("So", "Hm", "interrupted")
        # Its tokens may spell only a part of the content, and are not read back.
        assert (read.raw, read.written) == ("", TokenizedText("", ()))
        assert opened.origins == {answer.key: [("So", "plain")]}
    answer.content, answer.stop_reason = "So it is.", "eos"
    archive.save(key, [], answer)
    assert turn_tree(archive.open(key).conversation) == turn_tree(conversation)
    assert archive.open(key).origins == {answer.key: [("So", "plain")]}


def test_lone_surrogates_are_replaced(archive: Archive) -> None:
    turn = Turn("user", "a\udc80b", raw="\ud800")
    key = archive.create("m\udc80", "s\udc80")
    archive.save(key, [turn], turn, {turn.key: [("\udc80", "plain")]})
    opened = archive.open(key)
    assert opened.conversation.turns[0].content == "a?b"
    assert (opened.model, opened.system) == ("m?", "s?")
    assert archive.search("\udc80") == []


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Why?", "Why?"),
        ("\n \n  two   words \nmore", "two words"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word " * 11 + "word…"),
        ("a " + "x" * 80, "a " + "x" * 57 + "…"),
        ("\x1b[31mred\a", "[31mred"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        (" \n", "untitled"),
    ],
)
def test_the_title_is_the_first_line(archive: Archive, said: str, title: str) -> None:
    key = save_session(archive, said, "and another")
    assert archive.list()[0].title == archive.open(key).title == title


def test_the_title_is_from_the_first_user_turn(archive: Archive) -> None:
    key = archive.create("tiny", None)
    conversation = Conversation([Turn("assistant", "Hello!", stop_reason="eos")])
    archive.save(key, [], conversation.last)
    assert titles(archive) == ["untitled"]
    archive.save(key, [], conversation.add(Turn("user", "Hi")))
    assert titles(archive) == ["Hi"]


def test_a_title_set_by_the_user_stays(archive: Archive, file: Path) -> None:
    key = archive.create("tiny", None)
    archive.rename(key, "  before\nits first turn ")
    question = Turn("user", "Why?")
    archive.save(key, [question], question)
    assert titles(archive) == ["before its first turn"]
    archive.rename(key, "x" * 100)
    archive.save(key, [Turn("user", "else")], None)
    assert titles(archive) == ["x" * 100]
    with closing(Archive(file)) as again:
        assert titles(again) == ["x" * 100]
        with pytest.raises(InvalidValueError, match="the title is empty"):
            again.rename(key, " \n\a")
        with pytest.raises(InvalidValueError, match="there is no session 'x'"):
            again.rename("x", "title")


@pytest.mark.parametrize("system", ["Be short.", None])
def test_a_session_can_be_described_before_and_after_its_first_turn(
    archive: Archive, system: str | None
) -> None:
    about = "two", system, SessionSettings("suffix", {"seed": 1})
    saved, begun = save_session(archive, "a", model="one"), archive.create("one", "Be long.")
    for key in (saved, begun):
        archive.describe(key, *about)
    archive.save_rest()
    archive.save(begun, [], Turn("user", "b"))
    for key in (saved, begun):
        opened = archive.open(key)
        assert (opened.model, opened.system, opened.settings) == about
    assert {summary.model for summary in archive.list()} == {"two"}


def test_the_session_changed_last_comes_first(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock may show the same time for saves right after each other.
    clock = count()
    monkeypatch.setattr(archives, "time", SimpleNamespace(time=lambda: next(clock)))
    one, two, three = (save_session(archive, text) for text in ("one", "two", "three"))
    assert titles(archive) == ["three", "two", "one"]
    conversation = archive.open(two).conversation
    archive.save(two, [], conversation.add(Turn("user", "more")))
    assert [summary.key for summary in archive.list()] == [two, three, one]
    assert [summary.key for summary in archive.list(2)] == [two, three]
    assert archive.latest() == two


def test_a_deleted_session_leaves_no_rows(archive: Archive, file: Path) -> None:
    one, two = save_session(archive, "one apple"), save_session(archive, "two apples")
    archive.delete(one)
    archive.delete(one)
    assert titles(archive) == found_titles(archive, "app") == ["two apples"]
    assert query(file, "SELECT content FROM turn") == [("two apples",)]
    with pytest.raises(InvalidValueError):
        archive.open(one)
    archive.delete(two)
    assert (archive.list(), archive.latest()) == ([], None)


def test_a_long_session_can_be_deleted(archive: Archive, file: Path) -> None:
    """SQLite refuses deletions that cascade through more than 1,000 rows."""
    conversation = Conversation([Turn("user", str(number)) for number in range(1500)])
    key = archive.create("tiny", None)
    archive.save(key, [], conversation.last)
    assert archive.list()[0].turns == 1500
    archive.delete(key)
    assert query(file, "SELECT count(*) FROM turn") == [(0,)]


def test_a_session_continued_after_its_deletion_is_saved_whole(archive: Archive) -> None:
    key = archive.create("tiny", "system")
    conversation = Conversation([Turn("user", "one"), Turn("assistant", "two", stop_reason="eos")])
    archive.save(key, [], conversation.last)
    archive.delete(key)
    archive.save(key, [], conversation.add(Turn("user", "three")))
    opened = archive.open(key)
    assert turn_tree(opened.conversation) == turn_tree(conversation)
    assert (opened.title, opened.system) == ("one", "system")


def test_a_session_that_another_process_deletes_is_not_stored(archive: Archive, file: Path) -> None:
    key = save_session(archive, "one")
    assert archive.is_stored(key)
    with closing(Archive(file)) as other:
        other.delete(key)
    assert not archive.is_stored(key)
    conversation = Conversation([Turn("user", "two")])
    archive.save(key, [], conversation.last)
    assert archive.is_stored(key)


def test_two_archives_can_write_one_session(archive: Archive, file: Path) -> None:
    key = save_session(archive, "one")
    with closing(Archive(file)) as other:
        for each, text in ((archive, "two"), (other, "three")):
            conversation = each.open(key).conversation
            conversation.back_to(conversation.turns[0])
            each.save(key, [], conversation.add(Turn("user", text)))
        for each in (archive, other):
            conversation = each.open(key).conversation
            assert [turn.content for turn in conversation.turns] == ["one", "three"]
            variants = conversation.variants(conversation.turns[1])
            assert [turn.content for turn in variants] == ["two", "three"]


def test_a_window_that_another_one_has_overtaken_is_told_once(file: Path, archive: Archive) -> None:
    key = save_session(archive, "a")
    with closing(Archive(file)) as other:
        here, there = archive.open(key).conversation, other.open(key).conversation
        other.save(key, [], there.add(Turn("user", "there")))
        assert other.problem is None
        archive.save(key, [], here.add(Turn("user", "here")))
        assert archive.problem == archives.OVERTAKEN
        archive.save(key, [], here.add(Turn("assistant", "yes", stop_reason="eos")))
        assert archive.problem is None
        kept = archive.open(key).conversation
    assert [turn.content for turn in kept.turns] == ["a", "here", "yes"]
    assert [turn.content for turn in kept.variants(kept.turns[1])] == ["there", "here"]


def test_a_window_reads_its_own_branch_and_is_told_after_that_too(
    file: Path, archive: Archive
) -> None:
    here = Conversation()
    key = archive.create("tiny", None, conversation=here)
    archive.save(key, [], here.add(Turn("user", "first")))
    with closing(Archive(file)) as other:
        there = other.open(key).conversation
        archive.save(key, [], here.add(Turn("user", "here")))
        other.save(key, [], there.add(Turn("user", "there")))
        assert [turn.content for turn in archive.read(key).conversation.turns] == ["first", "there"]
        assert archive.live(key).conversation is here and archive.live(key).title == "first"
        archive.save(key, [], here.add(Turn("user", "again")))
        assert archive.problem == archives.OVERTAKEN
