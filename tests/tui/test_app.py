"""The chat: messages, stop, variants, branches, sessions, comparison and origin view."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import Script
from textual import events
from textual.timer import Timer

from localspec.conversation.events import Dropped, Gauge, Piece, Reading
from localspec.conversation.turns import Turn
from localspec.engine.generation import Token
from localspec.utils.busy_cores import BusyCores
from localspec_tui import event_handler
from localspec_tui.app import ChatApp
from localspec_tui.archive import OVERTAKEN, Archive
from localspec_tui.widgets.turn_view import TurnView

LONG = "one two three four five six seven eight nine ten " * 40


def stop_reasons(chat: ChatPilot) -> list[str]:
    """The stop reasons on the screen."""
    labels = [view.query_one("#stop-reason") for view in chat.screen.view.query(TurnView)]
    return [str(label.render()) for label in labels if label.display]


def test_an_answer_is_shown_and_saved(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["Hello, **you**."]), tmp_path) as chat:
            await chat.ask("hi")
            assert "hi" in chat.text
            await chat.until(lambda: "Hello, you." in chat.text)
            assert "tok/s" in chat.text
            assert "draft: suffix" in chat.text
            [summary] = chat.app.archive.list()
            assert summary.title == "hi"
            kept = chat.app.archive.open(summary.key)
        assert [turn.content for turn in kept.conversation.turns] == ["hi", "Hello, **you**."]
        assert "".join(text for text, _ in kept.origins[kept.conversation.turns[1].key]) == (
            "Hello, **you**."
        )

    asyncio.run(body())


def test_a_message_can_be_sent_while_the_model_loads(tmp_path: Path) -> None:
    async def body() -> None:
        script, loaded = WaitingScript(), threading.Event()
        script.loaded = loaded
        async with running_chat(script, tmp_path, loaded=False) as chat:
            await chat.until(lambda: "loading" in chat.text)
            await chat.send("said early")
            assert "draft: off" not in chat.text
            loaded.set()
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.wait_idle()
            assert chat.contents == ["said early", "Hello, I am a script."]

    asyncio.run(body())


def test_a_resumed_session_is_shown_while_the_model_loads(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["Said long ago."]), tmp_path) as chat:
            await chat.ask("hi")
        script, loaded = WaitingScript(), threading.Event()
        script.loaded = loaded
        async with running_chat(script, tmp_path, latest=True, loaded=False) as chat:
            await chat.until(lambda: "Said long ago." in chat.text)
            assert chat.screen.event_handler.state == "loading"
            loaded.set()
            await chat.until(lambda: chat.screen.event_handler.ready)
            await chat.ask("and now?")
            assert chat.contents == ["hi", "Said long ago.", "and now?", "Hello, I am a script."]

    asyncio.run(body())


def test_answers_without_a_chat_template_are_plain_text(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["\n    # no heading\n    return n"], template=None)
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("def f(n):")
            assert "\n       # no heading\n       return n" in chat.text
        async with running_chat(script, tmp_path, latest=True) as chat:
            assert "\n       # no heading\n       return n" in chat.text
            script.answers = [""]
            await chat.ask("more")
            assert stop_reasons(chat) == ["nothing was said"]

    asyncio.run(body())


def test_prompt_evaluation_shows_its_progress(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            chat.screen.event_handler.handle(Reading(1024, 4096))
            await chat.pilot.pause()
            assert "██████░░░░░░░░░░░░░░░░░░ tokens of the prompt read 1,024 of 4,096" in chat.text

    asyncio.run(body())


def test_a_prompt_that_is_read_again_in_an_answer_is_told_only_as_long_as_that(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            handler = chat.screen.event_handler
            handler.state = "answering"
            handler.handle(Dropped(2, 300))
            handler.handle(Reading(128, 300))
            await chat.pilot.pause()
            assert "tokens of the prompt read 128 of 300" in chat.text
            token = Token("more", 1, "plain", None)
            handler.handle(Piece(token, "more", "", Gauge(5, 100)))
            await chat.pilot.pause()
            assert "tokens of the prompt read" not in chat.text
            assert handler.state == "answering"

    asyncio.run(body())


@pytest.mark.parametrize(("share", "rate"), [(0.5, 20), (1.0, 8)])
def test_events_are_handled_less_often_while_an_answer_is_written_without_idle_cores(
    share: float, rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: dict[str, set[float]] = {"ready": set(), "answering": set()}
    set_timer = ChatApp.set_timer

    def noted(app: ChatApp, delay: float, callback: Callable[[], None]) -> Timer:
        is_poll = callback == app.main.event_handler.poll_regularly
        if is_poll and app.main.figures.is_busy == (share == 1.0):
            waits.setdefault(app.main.event_handler.state, set()).add(round(1 / delay))
        return set_timer(app, delay, callback)

    monkeypatch.setattr(BusyCores, "share", lambda _self: share)
    monkeypatch.setattr(ChatApp, "set_timer", noted)

    async def body() -> None:
        async with running_chat(Script([LONG], rate=100), tmp_path) as chat:
            await chat.send("hi")
            await chat.until(lambda: waits["answering"])
            await chat.press("escape")
            waits["ready"].clear()
            await chat.until(lambda: waits["ready"])
            assert waits["answering"] == {rate}
            assert waits["ready"] == {20}

    asyncio.run(body())


class WaitingScript(Script):
    """Loads once the event `loaded` is set."""

    loaded: threading.Event

    def load(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
        self.loaded.wait()
        return super().load(*arguments, **options)  # type: ignore[arg-type]


def test_escape_keeps_the_partial_answer_and_marks_it(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "The end."], rate=200)
        async with running_chat(script, tmp_path) as chat:
            await chat.send("count")
            await chat.until(lambda: len(chat.contents) == 2 and len(chat.contents[1]) > 20)
            await chat.press("escape")
            await chat.wait_idle()
            partial = chat.contents[1]
            assert 20 < len(partial) < len(LONG)
            assert stop_reasons(chat) == ["stopped"]
            [summary] = chat.app.archive.list()
            kept = chat.app.archive.open(summary.key).conversation.turns[1]
            assert (kept.content, kept.stop_reason) == (partial, "cancelled")
            script.rate = 0
            await chat.ask("go on")
            prompt = chat.app.engine_thread.session.engine.slots.own._running.prompt
            model = chat.app.engine_thread.session.engine.model
            told = b"".join(map(model.piece, prompt)).decode()
            assert f"<user>count\n<assistant>{partial}\n<user>go on" in told
            assert chat.contents == ["count", partial, "go on", "The end."]

    asyncio.run(body())


def test_ctrl_c_stops_and_a_second_one_quits(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG], rate=200), tmp_path) as chat:
            await chat.send("count")
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.press("ctrl+c")
            await chat.wait_idle()
            assert stop_reasons(chat) == ["stopped"]
            assert chat.app.is_running
            await chat.press("ctrl+c")
            await chat.until(lambda: not chat.app.is_running)

    asyncio.run(body())


def test_a_second_ctrl_c_does_not_quit_where_an_answer_was_begun_meanwhile(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG], rate=200), tmp_path) as chat:
            await chat.press("ctrl+c", "x", "enter")
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.press("ctrl+c")
            await chat.wait_idle()
            assert stop_reasons(chat) == ["stopped"]
            assert chat.app.is_running

    asyncio.run(body())


def test_ctrl_c_moves_a_text_to_the_earlier_messages_first(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            composer = chat.screen.composer
            composer.set_text("half a thought")
            await chat.press("ctrl+c")
            assert composer.text == ""
            assert "Up brings it back" in [*chat.app._notifications][-1].message
            await chat.press("up")
            assert composer.text == "half a thought"
            await chat.press("ctrl+c", "ctrl+c")
            assert chat.app.is_running
            await chat.press("ctrl+c")
            await chat.until(lambda: not chat.app.is_running)
            assert chat.app.lost_text == ""

    asyncio.run(body())


def test_ctrl_c_copies_selected_text(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            chat.screen.composer.set_text("some words")
            await chat.press("shift+home", "ctrl+c", "ctrl+c")
            assert chat.app.clipboard == "some words"
            assert chat.app.is_running

    asyncio.run(body())


def test_quick_arrows_each_lead_to_the_next_variant(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["one", "two", "three", "four"]), tmp_path) as chat:
            await chat.ask("count")
            for _ in range(3):
                await chat.press("ctrl+r")
                await chat.wait_idle()
            assert chat.contents == ["count", "four"]
            await chat.press("shift+tab")
            for keys, answer in ((["left"] * 2, "two"), (["right"] * 3, "one"), (["left"], "four")):
                await chat.press(*keys)
                await chat.wait_idle()
                assert chat.contents == ["count", answer]
                await chat.until(lambda answer=answer: answer in chat.text)
                await chat.until(lambda: chat.screen.view.focused_turn)
            assert not chat.app._notifications
            shown = chat.screen.conversation.last
            assert shown
            for _ in range(3):
                chat.screen.switch.choose_variant(shown, 1)
            await chat.wait_idle()
            assert chat.contents == ["count", "three"]

    asyncio.run(body())


def test_variants_are_kept_and_can_be_chosen_again(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["first", "second", "third"])
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("say something")
            await chat.press("ctrl+r")
            await chat.wait_idle()
            assert chat.contents == ["say something", "second"]
            assert "Answer 2/2" in chat.text
            # Only the last token of the question is evaluated again.
            assert chat.app.engine_thread.stats.prompt_evaluated == 1
            await chat.press("shift+tab", "left")
            await chat.wait_idle()
            assert chat.contents == ["say something", "first"]
            assert "first" in chat.text
            assert "second" not in chat.text
            await chat.press("left")
            await chat.wait_idle()
            assert chat.contents[1] == "second"
            [summary] = chat.app.archive.list()
            kept = chat.app.archive.open(summary.key).conversation
            assert [turn.content for turn in kept.turns] == ["say something", "second"]
            assert len(list(kept.everything())) == 3

    asyncio.run(body())


@pytest.mark.slow
def test_an_edited_question_starts_a_branch(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["red", "blue", "green"]), tmp_path) as chat:
            await chat.ask("a colour")
            await chat.ask("another")
            await chat.press("shift+tab", "up", "up", "up")
            assert chat.screen.view.focused_turn_view.turn.content == "a colour"
            chat.screen.composer.load_text("half a thought")
            await chat.press("e")
            assert chat.screen.composer.text == "a colour"
            assert "Edit your question" in chat.text
            await chat.press("escape")
            assert chat.screen.composer.text == "half a thought"
            chat.screen.composer.load_text("")
            await chat.press("shift+tab", "up", "up", "up", "e")
            chat.screen.composer.set_text("a dark colour")
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["a dark colour", "green"]
            assert "Edit your question" not in chat.text
            await chat.press("shift+tab", "up", "left")
            await chat.wait_idle()
            assert chat.contents == ["a colour", "red", "another", "blue"]
            assert "blue" in chat.text

    asyncio.run(body())


def test_turns_and_their_code_are_copied(tmp_path: Path) -> None:
    async def body() -> None:
        answer = "So:\n\n```python\nx = 1\n```\n\nor\n\n```\nx = 2\n```\n"
        async with running_chat(Script([answer]), tmp_path) as chat:
            await chat.ask("x?")
            await chat.press("shift+tab", "y")
            assert chat.app.clipboard == answer
            await chat.press("c")
            assert chat.app.clipboard == "x = 2\n"
            await chat.press("c")
            assert chat.app.clipboard == "x = 1\n"
            await chat.until(
                lambda: any("block 1 of 2" in each.message for each in chat.app._notifications)
            )
            await chat.press("c")
            assert chat.app.clipboard == "x = 2\n"
            await chat.press("y", "c")
            assert chat.app.clipboard == "x = 2\n"
            await chat.press("up", "y")
            assert chat.app.clipboard == "x?"
            await chat.press("c")
            assert chat.app.clipboard == "x?"

    asyncio.run(body())


def test_a_new_chat_is_another_session_and_the_latest_is_resumed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("the first")
            await chat.press("ctrl+n")
            await chat.wait_idle()
            assert chat.contents == []
            assert "the first" not in chat.text
            await chat.ask("the second")
            assert [each.title for each in chat.app.archive.list()] == ["the second", "the first"]

        async with running_chat(Script(["three"]), tmp_path, latest=True) as chat:
            assert chat.contents == ["the second", "two"]
            assert "two" in chat.text
            assert "draft: suffix" in chat.text and "ctx" not in chat.text
            await chat.ask("and on")
            assert "ctx" in chat.text
            assert [each.turns for each in chat.app.archive.list()] == [4, 2]

    asyncio.run(body())


def test_a_new_chat_stops_the_answer_and_saves_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG, "short"], rate=200), tmp_path) as chat:
            await chat.send("count")
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.send("/clear")
            await chat.wait_idle()
            assert chat.contents == []
            chat.app.archive.close()
            kept = Archive(tmp_path / "sessions.sqlite3")
            [summary] = kept.list()
            answer = kept.open(summary.key).conversation.turns[1]
            assert answer.stop_reason == "cancelled"
            assert LONG.startswith(answer.content)
            chat.app.archive = kept

    asyncio.run(body())


def test_a_system_prompt_from_the_command_line(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, system="Be brief.") as chat:
            await chat.ask("x?")
            assert chat.app.engine_thread.session.system == "Be brief."
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            assert chat.app.engine_thread.session.system == "Be brief."
        async with running_chat(Script(), tmp_path, latest=True, system="Be long.") as chat:
            assert chat.app.engine_thread.session.system == "Be long."

    asyncio.run(body())


def test_a_new_chat_right_after_a_question_is_empty(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script([LONG], rate=200), tmp_path) as chat:
            for number in range(5):
                chat.app.engine_thread.send(f"question {number}")
                chat.screen.switch.begin_new()
                await chat.wait_idle()
                assert chat.contents == []
                assert f"question {number}" not in chat.text

    asyncio.run(body())


def test_a_comparison_shows_both_speeds_and_whether_the_texts_are_identical(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["The same again."]), tmp_path) as chat:
            await chat.ask("x?")
            await chat.press("ctrl+b")
            await chat.wait_idle()
            assert "identical: yes" in chat.notes[-1]
            assert chat.notes[-1].count("tok/s") == 2
            assert chat.contents == ["x?", "The same again."]

    asyncio.run(body())


def test_an_empty_chat_has_nothing_to_compare_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["x"]), tmp_path) as chat:
            await chat.press("ctrl+b")
            await chat.wait_idle()
            assert [each.message for each in chat.app._notifications] == [
                "there is no answer to compare yet"
            ]
            assert chat.notes == []

    asyncio.run(body())


def test_origin_view_and_live_panel_can_be_shown_and_hidden(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["A longer answer, with a few tokens."]), tmp_path) as chat:
            await chat.ask("x?")
            await chat.press("ctrl+t", "ctrl+l")
            await chat.pilot.pause()
            assert "corrected" in chat.text
            assert "accepted" in chat.text
            await chat.press("ctrl+t", "ctrl+l")
            await chat.pilot.pause()
            assert "corrected" not in chat.text
            assert "accepted" not in chat.text

    asyncio.run(body())


def test_a_resumed_session_has_its_origins(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["A longer answer, with a few tokens."]), tmp_path) as chat:
            await chat.ask("x?")
        async with running_chat(Script(), tmp_path, latest=True) as chat:
            await chat.press("ctrl+t")
            await chat.pilot.pause()
            assert "corrected" in chat.text

    asyncio.run(body())


def test_the_first_launch_explains_the_chat_and_suggests_a_message(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["\n    return n"], template=None)
        async with running_chat(script, tmp_path, bundled=True) as chat:
            assert "localspec pull qwen3-8b" in chat.text
            await chat.press("tab", "enter")
            await chat.wait_idle()
            assert chat.contents == ["How do I list files by size?", "\n    return n"]
            assert "    return n" in chat.text

    asyncio.run(body())


def test_origin_view_of_answers_that_are_complete_before_they_are_mounted(tmp_path: Path) -> None:
    """A turn view gets its first tokens before it is mounted."""

    async def body() -> None:
        async with running_chat(
            Script(answers=["<think>hm</think>One.", "Two.", "Three."]), tmp_path
        ) as chat:
            await chat.ask("Hi")
            await chat.press("ctrl+t")
            for _ in range(6):
                await chat.press("ctrl+r")
            await chat.wait_idle()
            await chat.ask("More")
            assert len(chat.screen.view.turn_views) == 4

    asyncio.run(body())


def test_a_chat_says_that_another_window_goes_on_with_its_conversation(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("a")
            with closing(Archive(tmp_path / "sessions.sqlite3")) as other:
                session = other.open(chat.app.autosave.key)
                other.save(session.key, [], session.conversation.add(Turn("user", "there")))
            for text in ("here", "again"):
                await chat.ask(text)
            assert chat.notes.count(OVERTAKEN) == 1

    asyncio.run(body())


@pytest.mark.slow
def test_the_end_of_a_long_answer_rings_where_nobody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []

    async def body() -> None:
        async with running_chat(Script([LONG], rate=200), tmp_path) as chat:
            monkeypatch.setattr(chat.app, "bell", lambda: rung.append(chat.contents[-2]))
            for seconds, focus in ((600, False), (0, False), (0, True)):
                monkeypatch.setattr(event_handler, "_LONG_ANSWER", seconds)
                await chat.send(f"{seconds} {focus}")
                await chat.until(lambda: not chat.screen.composer.text)
                chat.app.post_message(events.AppFocus() if focus else events.AppBlur())
                await chat.wait_idle()

    asyncio.run(body())
    assert rung == ["0 False"]
