"""The chat, as somebody uses it: said, stopped, said otherwise, opened again."""

import threading
from pathlib import Path

from fakes.pilot import Chat, chatting, played
from fakes.scripted import Script

from localspec.conversation.events import Reading
from localspec_tui.archive import Archive
from localspec_tui.widgets.turn_view import TurnView

LONG = "one two three four five six seven eight nine ten " * 40


def marks(chat: Chat) -> list[str]:
    """What is said of the answers on the screen beside their texts."""
    found = [view.query_one("#stop-reason") for view in chat.screen.view.query(TurnView)]
    return [str(mark.render()) for mark in found if mark.display]


def test_an_answer_appears_and_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["Hello, **you**."]), tmp_path) as chat:
            await chat.ask("hi")
            assert "hi" in chat.text
            assert "Hello, you." in chat.text
            assert "tok/s" in chat.text
            assert "draft: suffix" in chat.text
            [summary] = chat.app.archive.list()
            assert summary.title == "hi"
            kept = chat.app.archive.open(summary.key)
        assert [turn.content for turn in kept.conversation.turns] == ["hi", "Hello, **you**."]
        assert "".join(text for text, _ in kept.origins[kept.conversation.turns[1].key]) == (
            "Hello, **you**."
        )

    played(body())


def test_the_box_is_there_before_the_model(tmp_path: Path) -> None:
    async def body() -> None:
        script, loaded = Waiting(), threading.Event()
        script.loaded = loaded
        async with chatting(script, tmp_path, loaded=False) as chat:
            await chat.until(lambda: "loading" in chat.text)
            await chat.say("said early")
            assert "draft: off" not in chat.text
            loaded.set()
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.ready()
            assert chat.contents == ["said early", "Hello, I am a script."]

    played(body())


def test_what_was_said_is_there_before_the_model(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["Said long ago."]), tmp_path) as chat:
            await chat.ask("hi")
        script, loaded = Waiting(), threading.Event()
        script.loaded = loaded
        async with chatting(script, tmp_path, latest=True, loaded=False) as chat:
            await chat.until(lambda: "Said long ago." in chat.text)
            assert chat.screen.event_handler.state == "loading"
            loaded.set()
            await chat.until(lambda: chat.screen.event_handler.ready)
            await chat.ask("and now?")
            assert chat.contents == ["hi", "Said long ago.", "and now?", "Hello, I am a script."]

    played(body())


def test_answers_of_a_model_without_a_template_are_shown_as_they_are(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["\n    # no heading\n    return n"], template=None)
        async with chatting(script, tmp_path) as chat:
            await chat.ask("def f(n):")
            assert "\n       # no heading\n       return n" in chat.text
        async with chatting(script, tmp_path, latest=True) as chat:
            assert "\n       # no heading\n       return n" in chat.text
            script.answers = [""]
            await chat.ask("more")
            assert marks(chat) == ["nothing was said"]

    played(body())


def test_how_much_of_a_prompt_is_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            chat.screen.event_handler.handle(Reading(1024, 4096))
            await chat.pilot.pause()
            assert "██████░░░░░░░░░░░░░░░░░░ tokens of the prompt read 1,024 of 4,096" in chat.text

    played(body())


class Waiting(Script):
    """Loads when it is told to."""

    loaded: threading.Event

    def load(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
        self.loaded.wait()
        return super().load(*arguments, **options)  # type: ignore[arg-type]


def test_escape_keeps_what_was_said_marked(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script([LONG, "The end."], rate=200)
        async with chatting(script, tmp_path) as chat:
            await chat.say("count")
            await chat.until(lambda: len(chat.contents) == 2 and len(chat.contents[1]) > 20)
            await chat.keys("escape")
            await chat.ready()
            partial = chat.contents[1]
            assert 20 < len(partial) < len(LONG)
            assert marks(chat) == ["stopped"]
            [summary] = chat.app.archive.list()
            kept = chat.app.archive.open(summary.key).conversation.turns[1]
            assert (kept.content, kept.stop_reason) == (partial, "cancelled")
            script.rate = 0
            await chat.ask("go on")
            prompt = chat.app.engine_thread.session.engine.slot._running.prompt
            model = chat.app.engine_thread.session.engine.model
            told = b"".join(map(model.piece, prompt)).decode()
            assert f"<user>count\n<assistant>{partial}\n<user>go on" in told
            assert chat.contents == ["count", partial, "go on", "The end."]

    played(body())


def test_ctrl_c_stops_and_the_second_one_quits(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script([LONG], rate=200), tmp_path) as chat:
            await chat.say("count")
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.keys("ctrl+c")
            await chat.ready()
            assert marks(chat) == ["stopped"]
            assert chat.app.is_running
            await chat.keys("ctrl+c")
            await chat.until(lambda: not chat.app.is_running)

    played(body())


def test_ctrl_c_copies_what_is_selected(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            chat.screen.composer.set_text("some words")
            await chat.keys("shift+home", "ctrl+c", "ctrl+c")
            assert chat.app.clipboard == "some words"
            assert chat.app.is_running

    played(body())


def test_variants_are_kept_and_reached_again(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["first", "second", "third"])
        async with chatting(script, tmp_path) as chat:
            await chat.ask("say something")
            await chat.keys("ctrl+r")
            await chat.ready()
            assert chat.contents == ["say something", "second"]
            assert "Answer 2/2" in chat.text
            # Only what is new is read: of the answer nothing, of the question its last token.
            assert chat.app.engine_thread.stats.prompt_evaluated == 1
            await chat.keys("up", "left")
            await chat.ready()
            assert chat.contents == ["say something", "first"]
            assert "first" in chat.text
            assert "second" not in chat.text
            await chat.keys("left")
            await chat.ready()
            assert chat.contents[1] == "second"
            [summary] = chat.app.archive.list()
            kept = chat.app.archive.open(summary.key).conversation
            assert [turn.content for turn in kept.turns] == ["say something", "second"]
            assert len(list(kept.everything())) == 3

    played(body())


def test_an_edited_question_is_a_branch(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["red", "blue", "green"]), tmp_path) as chat:
            await chat.ask("a colour")
            await chat.ask("another")
            await chat.keys("up", "up", "up", "up")
            assert chat.screen.view.focused_turn_view.turn.content == "a colour"
            chat.screen.composer.load_text("half a thought")
            await chat.keys("e")
            assert chat.screen.composer.text == "a colour"
            assert "otherwise" in chat.text
            await chat.keys("escape")
            assert chat.screen.composer.text == "half a thought"
            chat.screen.composer.load_text("")
            await chat.keys("up", "up", "up", "up", "e")
            chat.screen.composer.set_text("a dark colour")
            await chat.keys("enter")
            await chat.ready()
            assert chat.contents == ["a dark colour", "green"]
            assert "otherwise" not in chat.text
            await chat.keys("up", "up", "left")
            await chat.ready()
            assert chat.contents == ["a colour", "red", "another", "blue"]
            assert "blue" in chat.text

    played(body())


def test_messages_and_their_code_are_copied(tmp_path: Path) -> None:
    async def body() -> None:
        answer = "So:\n\n```python\nx = 1\n```\n\nor\n\n```\nx = 2\n```\n"
        async with chatting(Script([answer]), tmp_path) as chat:
            await chat.ask("x?")
            await chat.keys("up", "y")
            assert chat.app.clipboard == answer
            await chat.keys("c")
            assert chat.app.clipboard == "x = 2\n"
            await chat.keys("up", "y")
            assert chat.app.clipboard == "x?"
            await chat.keys("c")
            assert chat.app.clipboard == "x?"

    played(body())


def test_a_new_chat_and_the_old_one_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("the first")
            await chat.keys("ctrl+n")
            await chat.ready()
            assert chat.contents == []
            assert "the first" not in chat.text
            await chat.ask("the second")
            assert [each.title for each in chat.app.archive.list()] == ["the second", "the first"]

        async with chatting(Script(["three"]), tmp_path, latest=True) as chat:
            assert chat.contents == ["the second", "two"]
            assert "two" in chat.text
            await chat.ask("and on")
            assert [each.turns for each in chat.app.archive.list()] == [4, 2]

    played(body())


def test_a_new_chat_while_an_answer_is_written(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script([LONG, "short"], rate=200), tmp_path) as chat:
            await chat.say("count")
            await chat.until(lambda: len(chat.contents) == 2)
            await chat.keys("ctrl+n")
            await chat.ready()
            assert chat.contents == []
            chat.app.archive.close()
            kept = Archive(tmp_path / "sessions.sqlite3")
            [summary] = kept.list()
            answer = kept.open(summary.key).conversation.turns[1]
            assert answer.stop_reason == "cancelled"
            assert LONG.startswith(answer.content)
            chat.app.archive = kept

    played(body())


def test_a_system_prompt_from_the_start(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path, system="Be brief.") as chat:
            await chat.ask("x?")
            assert chat.app.engine_thread.session.system == "Be brief."
        async with chatting(Script(), tmp_path, latest=True) as chat:
            assert chat.app.engine_thread.session.system == "Be brief."
        async with chatting(Script(), tmp_path, latest=True, system="Be long.") as chat:
            assert chat.app.engine_thread.session.system == "Be long."

    played(body())


def test_a_new_chat_right_after_a_question(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script([LONG], rate=200), tmp_path) as chat:
            for number in range(5):
                chat.app.engine_thread.send(f"question {number}")
                chat.screen.action_new()
                await chat.ready()
                assert chat.contents == []
                assert f"question {number}" not in chat.text

    played(body())


def test_comparing_says_both_speeds_and_whether_texts_are_the_same(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["The same again."]), tmp_path) as chat:
            await chat.ask("x?")
            await chat.keys("ctrl+b")
            await chat.ready()
            assert "identical: yes" in chat.notes[-1]
            assert chat.notes[-1].count("tok/s") == 2
            assert chat.contents == ["x?", "The same again."]

    played(body())


def test_origins_and_the_live_panel(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["A longer answer, with a few tokens."]), tmp_path) as chat:
            await chat.ask("x?")
            await chat.keys("ctrl+t", "ctrl+l")
            await chat.pilot.pause()
            assert "corrected" in chat.text
            assert "accepted" in chat.text
            await chat.keys("ctrl+t", "ctrl+l")
            await chat.pilot.pause()
            assert "corrected" not in chat.text
            assert "accepted" not in chat.text

    played(body())


def test_origins_of_an_opened_session(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["A longer answer, with a few tokens."]), tmp_path) as chat:
            await chat.ask("x?")
        async with chatting(Script(), tmp_path, latest=True) as chat:
            await chat.keys("ctrl+t")
            await chat.pilot.pause()
            assert "corrected" in chat.text

    played(body())


def test_the_first_block_and_what_the_box_suggests(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["\n    return n"], template=None)
        async with chatting(script, tmp_path, bundled=True) as chat:
            assert "localspec pull qwen3-8b" in chat.text
            await chat.keys("tab", "enter")
            await chat.ready()
            assert chat.contents == ["def fibonacci(n):", "\n    return n"]
            assert "    return n" in chat.text

    played(body())


def test_origins_of_answers_that_come_at_once(tmp_path: Path) -> None:
    """Each is told of its first tokens before it stands on the screen."""

    async def body() -> None:
        async with chatting(
            Script(answers=["<think>hm</think>One.", "Two.", "Three."]), tmp_path
        ) as chat:
            await chat.ask("Hi")
            await chat.keys("ctrl+t")
            for _ in range(6):
                await chat.keys("ctrl+r")
            await chat.ready()
            await chat.ask("More")
            assert len(chat.screen.view.turn_views) == 4

    played(body())
