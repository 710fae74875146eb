"""Long conversations: only what is looked at is mounted."""

from itertools import pairwise
from pathlib import Path

from fakes.pilot import Chat, chatting, played
from fakes.scripted import Script

from localspec.conversation.turns import Conversation, Turn
from localspec_tui.archive import Archive

MESSAGES = 500


def kept(folder: Path, messages: int = MESSAGES) -> None:
    """A long session in the archive of a chat."""
    conversation = Conversation()
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        text = f"entry {number}\n\n" + "some words that fill a line or two of it. " * 5
        conversation.add(Turn(role, text, stop_reason="eos" if number % 2 else None))
    archive = Archive(folder / "sessions.sqlite3")
    key = archive.create("scripted", None)
    archive.save(key, conversation.turns, conversation.last)
    archive.close()


def shown(chat: Chat) -> list[int]:
    """The numbers of the messages that begin on the screen."""
    words = chat.text.split()
    return [int(b) for a, b in pairwise(words) if a == "entry"]


async def moved_on(chat: Chat, first: int) -> int:
    """The first of them, once it is another one, and stays where it is."""
    now = [first]
    while now[:1] in ([], [first]) or now != shown(chat):
        now = shown(chat)
        await chat.ready()
    return now[0]


def test_a_long_session_opens_with_its_end_and_goes_back_to_its_beginning(tmp_path: Path) -> None:
    kept(tmp_path)

    async def body() -> None:
        async with chatting(Script(context=200_000), tmp_path, latest=True) as chat:
            view = chat.screen.view
            await chat.until(lambda: shown(chat)[-1:] == [MESSAGES - 1])
            assert len(view.turn_views) < 30
            before = shown(chat)[0]
            while before > 440:
                view.scroll_page_up(animate=False)
                first = await moved_on(chat, before)
                # Mounting older ones moves nothing that is looked at.
                assert before - 6 <= first < before
                before = first
            assert len(view.turn_views) < 120
            view.scroll_end(animate=False)
            await chat.until(lambda: shown(chat)[-1:] == [MESSAGES - 1])
            await chat.ask("and now?")
            assert "Hello, I am a script." in chat.text

    played(body())


def test_what_is_far_above_is_unmounted_while_the_end_is_looked_at(tmp_path: Path) -> None:
    async def body() -> None:
        rows = "\n\n".join(f"line {number}" for number in range(300))
        async with chatting(Script([rows]), tmp_path) as chat:
            for number in range(6):
                await chat.ask(f"entry {number}")
            await chat.ready()
            assert chat.screen.view.virtual_size.height < 2500
            assert "line 299" in chat.text
            assert len(chat.screen.view.turn_views) < 12

    played(body())


def test_scrolled_up_the_view_stays_while_an_answer_is_written(tmp_path: Path) -> None:
    kept(tmp_path, 40)

    async def body() -> None:
        script = Script(["line\n\n" * 200])
        async with chatting(script, tmp_path, latest=True) as chat:
            script.rate = 100
            await chat.say("more")
            await chat.until(lambda: len(chat.contents) == 42)
            chat.screen.view.scroll_to(y=20, animate=False)
            await chat.until(lambda: shown(chat))
            looked_at = shown(chat)
            length = len(chat.contents[-1])
            await chat.until(lambda: len(chat.contents[-1]) > length + 100)
            assert shown(chat) == looked_at
            await chat.keys("escape")
            await chat.ready()
            assert shown(chat) == looked_at
            chat.screen.view.follow_end()
            await chat.until(lambda: "stopped" in chat.text)

    played(body())


def test_the_keys_reach_messages_that_were_not_mounted(tmp_path: Path) -> None:
    kept(tmp_path, 60)

    async def body() -> None:
        async with chatting(Script(), tmp_path, latest=True) as chat:
            for number in reversed(range(60)):
                await chat.keys("up")
                await chat.until(
                    lambda number=number: (
                        chat.screen.view.focused_turn_view
                        and chat.screen.view.focused_turn_view.turn.content.startswith(
                            f"entry {number}\n"
                        )
                    )
                )
            await chat.keys("up", *["down"] * 3)
            assert chat.screen.view.focused_turn_view.turn.content.startswith("entry 3\n")

    played(body())
