"""The keys that edit a text do in the text box what they do in every box of Textual."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import running_chat
from fakes.scripted import Script
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import TextArea

from localspec_tui.folded_lines import LONGEST

LINE = "the quick brown fox " * (LONGEST // 10)
# The text before the cursor, and behind it; Q stands for a line that is folded.
TEXTS = [
    ("", ""),
    ("one two", ""),
    ("one ", "two"),
    ("", "one two"),
    ("Q", ""),
    ("", "Q"),
    ("a Q", " b"),
    ("a ", "Q b"),
    ("one\n", ""),
    ("one\ntw", "o"),
    ("one", "\ntwo"),
    ("one\nQ", ""),
    ("one\n", "Q"),
    ("", "Q\ntwo"),
    ("Q\n", ""),
    ("one\n\n", "\n"),
]
KEYS = {
    binding.key.split(",")[0]: binding.action
    for binding in TextArea.BINDINGS
    if isinstance(binding, Binding) and binding.action.startswith("delete")
}
KILL, KILL_LINE = KEYS["ctrl+k"], KEYS["ctrl+shift+k"]
ROUNDS = [
    *([action] for action in KEYS.values()),
    ["cursor_line_start", KILL, KILL],
    [KILL, KILL, KILL],
    [KILL_LINE, KILL_LINE],
    ["cursor_left(True)", KILL],
    ["select_all", KILL_LINE],
    ["select_line", KILL],
]


class Plain(App[None]):
    """A box of Textual."""

    def compose(self) -> ComposeResult:
        yield TextArea()


async def changed(box: TextArea, line: str) -> list[tuple[str, ...]]:
    """For each text and each round its texts: after each action, one more letter, and undoing.

    line: what stands in the place of Q.
    """
    found = []
    for before, behind in TEXTS:
        for actions in ROUNDS:
            box.load_text("")
            for part in before.partition("Q"):
                box.insert(part.replace("Q", line))
            cursor = box.cursor_location
            for part in behind.partition("Q"):
                box.insert(part.replace("Q", line))
            box.move_cursor(cursor)
            box.history.clear()
            texts = []
            for action in (*actions, "insert", "undo", "undo", "undo"):
                if action == "insert":
                    box.history.checkpoint()
                    box.insert("x")
                else:
                    await box.run_action(action)
                texts.append(box.text.replace(line, "Q"))
            found.append((before, behind, *actions, *texts))
    return found


def test_they_change_the_text_as_everywhere(tmp_path: Path) -> None:
    async def body() -> None:
        plain = Plain()
        async with plain.run_test():
            expected = await changed(plain.query_one(TextArea), "Q")
        async with running_chat(Script(), tmp_path) as chat:
            found = await changed(chat.screen.composer, LINE)
        assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []

    asyncio.run(body())


@pytest.mark.parametrize("text", ["", "one line", "two\nlines", LINE])
def test_the_chat_goes_on_when_there_is_nothing_left_to_delete(tmp_path: Path, text: str) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            composer = chat.screen.composer
            for key in KEYS:
                composer.set_text(text)
                await chat.press(key)
            composer.set_text(text)
            await chat.press("ctrl+a", "ctrl+k", "ctrl+k", "ctrl+shift+k", "ctrl+shift+k", "x")
            assert composer.text == ("two\nx" if "\n" in text else "x")

    asyncio.run(body())
