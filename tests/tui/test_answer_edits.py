"""Edited answers in both chats: variants, origins, what is saved, and what goes on."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from fakes.pilot import running_chat
from fakes.plain_chat import Chat
from fakes.scripted import Script

from localspec_tui.archive import Archive
from localspec_tui.export import as_json, as_markdown
from localspec_tui.origins import EDITED, Origins, OriginSegment
from localspec_tui.plain import commands

ANSWER, MORE = "The sky is blue today.", " of course."


def test_an_answer_is_edited_and_goes_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([ANSWER, MORE]), tmp_path) as chat:
            await chat.ask("what colour?")
            await chat.press("shift+tab", "e")
            composer = chat.screen.composer
            assert composer.text == ANSWER and "Edit the answer" in chat.text
            composer.set_text("The sky is red @noon.txt")
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["what colour?", "The sky is red @noon.txt"]
            assert "Answer 2/2, edited" in chat.text and "Ctrl-G goes on from here" in chat.text
            assert composer.text == "" and "Edit the answer" not in chat.text
            # It is no message of the user's.
            await chat.press("up")
            assert composer.text == "what colour?"
            composer.load_text("")
            await chat.press("ctrl+g")
            await chat.wait_idle()
            assert chat.contents[-1] == "The sky is red @noon.txt of course."
            assert "Answer 2/2, edited" in chat.text and "Ctrl-G" not in chat.text
            # The model's words up to the first difference, then the user's, then the model's again.
            await chat.press("ctrl+t")
            await chat.pilot.pause()
            entry = chat.screen.view.last_turn
            said = [each for each in entry.origins.segments if each.origin == EDITED]
            assert said == [OriginSegment("red @noon.txt", EDITED)]
            assert "".join(each.text for each in entry.origins.segments) == entry.turn.content
            assert entry.origins.counts[EDITED] == 0 and entry.origins.drafted > 0
            legend = next(row for row in chat.text.splitlines() if "· edited" in row)
            assert "suffix" in legend
            # The old answer can be reached.
            await chat.press("ctrl+t", "shift+tab", "left")
            await chat.wait_idle()
            assert chat.contents == ["what colour?", ANSWER]
            await chat.press("right")
            await chat.wait_idle()
            assert chat.contents[-1].endswith(MORE)

    asyncio.run(body())


def test_an_edit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The archive takes the tokens of no larger vocabulary.
    monkeypatch.setattr("fakes.scripted._BYTES_PER_TOKEN", 3)

    async def body() -> None:
        async with running_chat(Script([ANSWER]), tmp_path) as chat:
            await chat.ask("what colour?")
            await chat.send("/edit-answer The sky is red")
            await chat.wait_idle()
            assert chat.screen.conversation.last.stop_reason == EDITED

    asyncio.run(body())
    with closing(Archive(tmp_path / "sessions.sqlite3")) as archive:
        session = archive.open(archive.latest())
    turn = session.conversation.last
    assert (turn.content, turn.stop_reason) == ("The sky is red", EDITED)
    assert turn.edited == len(turn.written.tokens) > 0 and turn.written.text == turn.raw
    assert session.origins[turn.key][-1] == OriginSegment("red", EDITED)
    record = as_json(session.conversation, "t", "m")["turns"]
    assert [each["edited"] for each in record] == [0, 0, turn.edited]
    assert "*(edited by the user)*" in as_markdown(session.conversation, "t", "m")
    json.dumps(record)

    async def again() -> None:
        options = {"session": session.key}
        async with running_chat(Script([MORE]), tmp_path, **options) as chat:
            await chat.wait_idle()
            await chat.send("/continue")
            await chat.wait_idle()
            assert chat.contents == ["what colour?", "The sky is red of course."]

    asyncio.run(again())


@pytest.mark.parametrize("key", ["ctrl+n", "ctrl+r"])
@pytest.mark.parametrize("typed", ["", "!"])
def test_an_edit_ends_with_its_conversation_or_variant(
    tmp_path: Path, key: str, typed: str
) -> None:
    async def body() -> None:
        async with running_chat(Script([ANSWER, MORE]), tmp_path) as chat:
            await chat.ask("what colour?")
            composer, edited = chat.screen.composer, chat.screen.conversation.turns[1]
            composer.set_text("half typed")
            await chat.press("shift+tab", "e", *typed)
            await chat.until(lambda: composer.text == ANSWER + typed)
            await chat.press(key)
            await chat.until(lambda: edited not in chat.screen.conversation.turns)
            await chat.wait_idle()
            assert composer.text == "half typed" and "Edit the answer" not in chat.text
            composer.load_text("")
            await chat.press("up")
            assert composer.text == (ANSWER + typed if typed else "what colour?")
            assert any("Up brings your text back" in note for note in chat.notes) == bool(typed)

    asyncio.run(body())


@pytest.mark.parametrize("is_shown", [True, False])
def test_an_edit_of_a_question_ends_with_its_variant(tmp_path: Path, is_shown: bool) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("one")
            chat.screen.outbox.edit(chat.screen.conversation.turns[0], "two")
            await chat.wait_idle()
            await chat.press("shift+tab", "up", "e")
            await chat.until(lambda: chat.screen.composer.text == "two")
            chat.screen.composer.set_text("three")
            if is_shown:
                await chat.press("shift+tab", "up", "left")
                await chat.until(lambda: chat.screen.composer.text == "")
            else:
                conversation = chat.screen.conversation
                conversation.choose(conversation.variants(conversation.turns[0])[0])
                await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[0] == "one" and len(chat.contents) == 2
            assert chat.screen.composer.text == "" and chat.screen.unsent.edited is None
            chat.screen.composer.focus()
            await chat.press("up")
            assert chat.screen.composer.text == "three"

    asyncio.run(body())


def test_an_edit_that_is_refused_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([ANSWER]), tmp_path) as chat:
            await chat.send("/edit-answer x")
            assert "there is no answer yet" in chat.notes[-1]
            chat.screen.composer.load_text("")
            await chat.ask("what colour?")
            chat.screen.composer.set_text("half a thought")
            await chat.press("shift+tab", "e")
            chat.screen.composer.set_text("broken \ud800")
            await chat.press("enter")
            await chat.wait_idle()
            assert "no valid Unicode" in chat.notes[-1]
            assert chat.screen.composer.text == "broken \ud800" and "Edit the answer" in chat.text
            # It would be a message if it were kept with the session.
            assert chat.screen.unsent.text == "half a thought"
            await chat.press("escape")
            assert chat.screen.composer.text == "half a thought"
            assert chat.contents == ["what colour?", ANSWER]

    asyncio.run(body())


def test_the_plain_chat_edits_answers_too(chat: Chat, file: Path) -> None:
    typed = 'q\n/edit-answer """The sky\nis red"""\n/continue\n/edit-answer\n/edit-answer  \n'
    done = chat(Script([ANSWER, MORE]), f"/edit-answer x\n{typed}")
    assert "there is no answer yet" in done.notes
    assert "(edited: /continue goes on from its end, or send a message)" in done.notes
    assert done.out == f"{ANSWER}\n{MORE}\n"
    assert "/edit-answer: say the new text of the last answer behind it" in done.notes
    with closing(Archive(file)) as archive:
        turns = archive.open(archive.latest()).conversation.turns
    assert [turn.content for turn in turns] == ["q", "The sky\nis red of course."]


def test_the_indentation_of_an_edited_answer_is_kept(chat: Chat, tmp_path: Path) -> None:
    code = "    x = 1\n    y = 2  "
    done = chat(Script([ANSWER]), f'q\n/edit-answer """{code}"""\n')
    assert done.turns[-1].content == code
    done = chat(Script([ANSWER]), "q\n/edit-answer   one\n")
    assert done.turns[-1].content == "one"

    async def body() -> None:
        async with running_chat(Script([ANSWER]), tmp_path) as opened:
            await opened.ask("q")
            await opened.ask("/edit-answer     x = 1")
            assert opened.contents[-1] == "    x = 1"

    asyncio.run(body())


def test_the_plain_chat_opens_an_editor(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "edit", lambda text: (f"{text[:7]} is red", None))
    monkeypatch.setattr("localspec_tui.plain.chat.PlainChat.is_typed", True)
    done = chat(Script([ANSWER, MORE, "ok"]), "first q\n/edit-answer\n/continue\n/edit\n")
    assert done.out == f"{ANSWER}\n{MORE}\nok\n"


def test_origins_of_an_edited_text() -> None:
    origins = Origins.of([("ab", "suffix"), ("cd", "plain")])
    assert origins.edited("abcX").segments == [("ab", "suffix"), ("c", "plain"), ("X", EDITED)]
    assert origins.edited("ab").segments == [("ab", "suffix")]
    assert Origins().edited("ab").segments == [("ab", EDITED)]
    assert origins.edited("abX").names == ["suffix", EDITED]
