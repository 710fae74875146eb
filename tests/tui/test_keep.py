"""What the model has read of a conversation outlasts the chat, and changes no text (--keep)."""

import asyncio
import io
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from fakes.command_line import localspec
from fakes.event_recorder import EventRecorder, events_of
from fakes.pilot import ChatPilot
from fakes.terminal import on_terminal

from localspec.cli.main import main
from localspec.conversation.events import Ended, Notice
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation
from localspec.engine import kept_store
from localspec.engine.kept_store import kept_folder
from localspec_tui import engine_host, engine_thread, kept_chats
from localspec_tui.app import ChatApp
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.keeping import wait_until_kept
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.sessions import SessionsScreen

LONG = "How do I list files by size? " * 20
OPTIONS: dict[str, Any] = {"context": 1024, "threads": 1, "max_tokens": 12, "temperature": 0}
Begin = Callable[..., EventRecorder]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home. However busy the machine is, there is time to save."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(kept_store, "_ALWAYS", 1000.0)
    monkeypatch.setattr(engine_host, "_UNNOTICED", 1000.0)
    return tmp_path


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins a chat that keeps what is read, with a conversation and its key."""
    made: list[EngineThread] = []

    def begin(
        conversation: Conversation | None = None, key: str | None = None, **options: Any
    ) -> EventRecorder:
        made.append(EngineThread(keeps=True))
        recorder = EventRecorder(made[-1])
        recorder.engine_thread.reset(conversation, key=key)
        recorder.engine_thread.load(**{**OPTIONS, **options})
        return recorder

    yield begin
    for each in made:
        each.close()


def leave(chat: EventRecorder, key: str | None) -> str | None:
    chat.engine_thread.end(key)
    return chat.engine_thread.wait()


def asked(chat: EventRecorder, text: str) -> tuple[str, int]:
    """The answer, and how many tokens of its prompt were in the cache."""
    (ended,) = events_of(Ended, chat.send(text))
    return chat.contents[-1], ended.stats.prompt_cached


@pytest.mark.parametrize("options", [{}, {"reproducible": True}, {"draft": "none"}], ids=str)
def test_a_conversation_goes_on_as_if_it_had_not_been_left(
    begin: Begin, options: dict[str, Any]
) -> None:
    stayed = begin(**options)
    stayed.wait_done()
    asked(stayed, LONG)
    expected = asked(stayed, "and now?")
    stayed.engine_thread.close()
    left = begin(**options)
    left.wait_done()
    asked(left, LONG)
    assert leave(left, "mine") is None
    again = begin(left.conversation, "mine", **options)
    assert not events_of(Notice, again.wait_done())
    assert asked(again, "and now?") == expected
    assert expected[1] > 150


def test_nothing_is_kept_where_nobody_asked(begin: Begin) -> None:
    chat = EventRecorder(EngineThread())
    chat.engine_thread.load(**OPTIONS)
    asked(chat, LONG)
    chat.engine_thread.reset(Conversation(), left="mine")
    chat.wait_done()
    assert leave(chat, "mine") is None
    assert not kept_folder().exists()


def test_other_conversations_and_back(begin: Begin) -> None:
    chat = begin()
    chat.wait_done()
    asked(chat, LONG)
    first, second = chat.conversation, Conversation()
    chat.engine_thread.reset(second, left="first")
    chat.wait_done()
    assert asked(chat, "Find " * 60)[1] < 40
    chat.engine_thread.reset(first, key="first", left="second")
    chat.wait_done()
    assert asked(chat, "and now?")[1] > 150
    # It was opened, and nothing was read.
    chat.engine_thread.reset(second, key="second", left="first")
    chat.engine_thread.reset(first, key="first", left="second")
    chat.wait_done()
    assert asked(chat, "and then?")[1] > 150
    assert leave(chat, "first") is None
    kept = kept_store.kept_store()
    assert kept.has("chat first") and kept.has("chat second")
    kept_chats.forget("first")
    assert not kept.has("chat first") and kept.has("chat second")
    assert len([*kept_folder().iterdir()]) == 2  # of the target and of the drafter


def test_a_conversation_that_is_deleted_while_it_is_saved_leaves_nothing(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = begin()
    chat.wait_done()
    asked(chat, LONG)
    begun, go_on, save = threading.Event(), threading.Event(), Session.save_state

    def slow(*arguments: Any) -> str | None:
        begun.set()
        assert go_on.wait(100)
        return save(*arguments)

    monkeypatch.setattr(kept_chats.Session, "save_state", slow)
    chat.engine_thread.reset(Conversation(), left="mine")
    assert begun.wait(100)
    chat.engine_thread.forget("mine")
    go_on.set()
    chat.wait_done()
    assert not [*kept_folder().iterdir()]


def test_a_conversation_that_a_command_deletes_leaves_nothing(talk: Callable[..., str]) -> None:
    talk(LONG, "--keep")
    with closing(Archive()) as archive:
        key = archive.list()[0].key
    assert len([*kept_folder().iterdir()]) == 2
    assert localspec("chats", "--delete", key, "--yes").code == 0
    assert not [*kept_folder().iterdir()]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kv_type": "f32"}, "the saved state is of another kv type"),
        ({"context": 128}, "it does not fit this context"),
        ({}, "the saved state is damaged; it was deleted"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_read_again(
    begin: Begin, options: dict[str, Any], complaint: str
) -> None:
    left = begin(draft="none")
    left.wait_done()
    asked(left, LONG)
    assert leave(left, "mine") is None
    if not options:
        (path,) = kept_folder().iterdir()
        path.write_bytes(path.read_bytes()[:-9])
    again = begin(left.conversation, "mine", draft="none", **options)
    (notice,) = events_of(Notice, again.wait_done())
    assert notice.line == f"the conversation has to be read again: {complaint}"
    if options.get("context") is None:
        assert asked(again, "and now?")[1] == 0


def test_a_model_that_was_changed_takes_no_place(begin: Begin) -> None:
    chat = begin(draft="none")
    chat.wait_done()
    asked(chat, LONG)
    assert leave(chat, "mine") is None
    again = begin(chat.conversation, "mine", draft="none")
    again.wait_done()
    asked(again, "and now?")
    again.engine_thread.switch(again.engine_thread.session.engine.model.path)  # type: ignore[union-attr]
    again.wait_done()
    assert leave(again, "mine") is None
    third = begin(chat.conversation, "mine", draft="none")
    third.wait_done()
    assert asked(third, "and now?")[1] > 150


def test_keeping_can_be_given_up(begin: Begin) -> None:
    chat = begin()
    chat.wait_done()
    asked(chat, LONG)
    chat.engine_thread.give_up_keeping()
    why = leave(chat, "mine")
    assert why and why.endswith("was not saved: it was stopped")
    assert not [*kept_folder().iterdir()]


def test_the_chat_with_a_screen(tmp_path: Path) -> None:
    """It keeps the conversation that is left, and deletes what is kept of one that is deleted."""

    @asynccontextmanager
    async def chat() -> AsyncIterator[ChatPilot]:
        archive = Archive(tmp_path / "sessions.sqlite3")
        begun = LaunchOptions(
            session=archive.latest(),
            runtime={"context": 1024, "threads": 1},
            sampling={"max_tokens": 4, "temperature": 0},
        )
        app = ChatApp(EngineThread(keeps=True), archive, begun)
        async with app.run_test() as pilot:
            chat = ChatPilot(app, pilot)
            await chat.until(lambda: chat.screen.event_handler.state != "loading")
            await chat.wait_idle()
            yield chat
        assert wait_until_kept(app.engine_thread) is None

    async def cached(chat: ChatPilot, text: str) -> int:
        await chat.ask(text)
        assert chat.app.engine_thread.stats
        return chat.app.engine_thread.stats.prompt_cached

    async def body() -> None:
        async with chat() as first:
            assert await cached(first, LONG) == 0
        async with chat() as second:
            assert await cached(second, "and now?") > 150
            await second.press("ctrl+n")
            await second.until(lambda: not second.screen.conversation.turns)
            await cached(second, "Find " * 60)
            assert len([*kept_folder().iterdir()]) == 2
            await second.press("ctrl+o")
            await second.until(lambda: second.is_on_top(SessionsScreen))
            await second.press("down", "ctrl+d")
            await second.until(lambda: second.is_on_top(ChoiceDialog))
            await second.press("down", "enter")
            await second.until(lambda: second.is_on_top(SessionsScreen))
            assert not [*kept_folder().iterdir()]
        async with chat() as third:
            assert await cached(third, "and then?") > 50

    asyncio.run(body())


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A plain chat over a pipe, from the command line; returns what it says beside its answers."""

    def run(typed: str, *arguments: str) -> str:
        options = ["--plain", "-n", "8", "--threads", "1", "--ctx", "1024", *arguments]
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(typed.encode())))
        )
        monkeypatch.setattr(sys, "argv", ["localspec", "chat", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().err

    return run


def test_the_plain_chat(talk: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in kept_folder().iterdir()}

    talk(LONG, "--keep")
    before = files()
    assert len(before) == 2
    monkeypatch.setenv("LOCALSPEC_KEEP", "on")
    talk(LONG, "--private")
    talk("more", "-c", "--no-keep")
    talk("", "-c")
    assert files() == before
    assert "read again" not in talk("and now?", "-c")
    assert files().keys() == before.keys() and files() != before
    talk(f"{LONG}\n/clear\n{LONG}", "-c")
    assert len(files()) == 4
    (path, *_) = sorted(before, key=lambda each: len(each.name))
    path.write_bytes(b"no state")
    with closing(Archive()) as archive:
        key = archive.list()[1].key
    said = talk("", "--resume", key)
    assert "(the conversation has to be read again: the saved state is damaged; it was" in said
    assert localspec("forget").code == 0
    assert not files()


def test_private_and_keep_contradict_each_other() -> None:
    code, shown = on_terminal("chat", "--private", "--keep")
    assert code == 2
    assert "--private keeps nothing, and --keep what is read; leave one out" in shown


def test_a_pass_that_takes_long_is_not_waited_for(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the user has given up keeping."""
    chat = begin()
    chat.wait_done()
    is_over = threading.Event()
    monkeypatch.setattr(engine_thread, "_CLOSE_TIMEOUT", 0.01)
    chat.engine_thread._put("wait", lambda: [is_over.wait(100)].clear())
    chat.engine_thread.end("mine")
    chat.engine_thread.give_up_keeping()
    assert chat.engine_thread.wait() is None
    assert not is_over.is_set() and chat.engine_thread.busy
    is_over.set()
