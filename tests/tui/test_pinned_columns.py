"""Texts whose width terminals do not agree on move nothing behind them."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from textual.driver import Driver

from localspec_tui.pinned_columns import pinned, with_pinned_columns

TEXTS = ["👩‍💻", "🇩🇪", "❤️", "🏳️‍🌈", "1️⃣", "👍🏽", "नमस्ते दुनिया", "สวัสดี", "😀😀", "⚠️⚠️"]
_CODE = re.compile(r"\x1b([78])|\x1b\[(\d+)C|([^\x1b])", re.DOTALL)


def drawn(data: str, width: Callable[[str], int]) -> dict[int, str]:
    """What a terminal shows in the columns of a row. width: of a letter that is not ASCII."""
    cells, column, saved = dict[int, str](), 0, 0
    for save, forward, text in (match.groups() for match in _CODE.finditer(data)):
        if save == "7":
            saved = column
        elif save == "8":
            column = saved
        elif forward:
            column += int(forward)
        else:
            cells[column] = text
            column += width(text) if not text.isascii() else 1
    return cells


@pytest.mark.parametrize("width", [cell_len, lambda _: 1, lambda _: 2], ids=["own", "1", "2"])
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_behind_stays_in_its_column(text: str, width: Callable[[str], int]) -> None:
    cells = drawn(pinned(f"a {text} b {text}|"), width)
    behind = 2 + cell_len(text)
    assert cells[behind + 1] == "b"
    assert cells[behind + 3 + cell_len(text)] == "|"


def test_cells_that_are_not_filled_are_blank() -> None:
    cells = drawn(pinned("❤️|"), lambda _: 1)
    assert cells[1] in (" ", "\ufe0f") and cells[2] == "|"


@pytest.mark.parametrize("text", ["plain", "日本語", "│ · …", "é ẹ́", "\x1b[1;38;5;12mbold\x1b[0m"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert pinned(text) == text


def test_escape_sequences_stay_whole() -> None:
    data = "\x1b[1m\ufe0f😀\x1b[0m1\x1b[3;4H"
    assert pinned(data).replace("\x1b7  \x1b8", "").replace("\x1b8\x1b[2C", "") == data


def test_a_driver_writes_them() -> None:
    class Terminal(Driver):
        def write(self, data: str) -> None:
            written.append(data)

    written: list[str] = []
    driver: Any = with_pinned_columns(Terminal)
    driver.write(None, "😀")
    assert written == [pinned("😀")] != ["😀"]
    assert issubclass(driver, Terminal)
