"""What a terminal would show of an app that runs without one."""

import re
from typing import Any

from rich.cells import cell_len
from textual._compositor import CompositorUpdate
from textual.app import App

_MOVE = re.compile(r"\x1b\[(\d+);(\d+)H")
_OTHER_CODES = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")


class DrawnScreen:
    """Puts each update where it belongs, over what was drawn before. updates: how many there were.

    What was drawn before this object was made is not known.
    """

    def __init__(self, app: App[Any]) -> None:
        width, height = app.size
        self.updates = 0
        self._cells: list[list[str | None]] = [[None] * width for _ in range(height)]
        self._app = app
        self._display = app._display
        app._display = self._draw  # type: ignore[method-assign]

    def differences(self, rows: list[str]) -> list[str]:
        """Those of the rows, which should be on the screen, that were drawn otherwise."""
        return [row for y, row in enumerate(rows) if not self._shows(y, row)]

    def _shows(self, y: int, row: str) -> bool:
        expected = _cells(row.ljust(len(self._cells[y])))
        return all(
            drawn in (None, cell) for drawn, cell in zip(self._cells[y], expected, strict=False)
        )

    def _draw(self, screen: Any, update: Any) -> None:
        if isinstance(update, CompositorUpdate):
            self.updates += 1
            _before, *moved = _MOVE.split(update.render_segments(self._app.console))
            for row, column, text in zip(moved[::3], moved[1::3], moved[2::3], strict=True):
                cells = _cells(_OTHER_CODES.sub("", text).rstrip("\n"))
                start = int(column) - 1
                self._cells[int(row) - 1][start : start + len(cells)] = cells
        self._display(screen, update)


def _cells(text: str) -> list[str]:
    """One string for each cell; the second cell of a wide character is empty."""
    cells: list[str] = []
    for character in text:
        cells += [character, ""][: cell_len(character)]
    return cells
