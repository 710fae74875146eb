"""Entry heights: about how many rows each entry of a list fills."""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class HasText(Protocol):
    """An entry. text: fills about as many rows as its view."""

    @property
    def text(self) -> str: ...


_Entry = TypeVar("_Entry", bound=HasText)


class EntryHeights(Generic[_Entry]):
    """Rows as they were last measured, else an estimate; of one width at a time."""

    def __init__(self) -> None:
        self._width = 0
        self._rows: dict[_Entry, int] = {}

    def at_width(self, width: int) -> None:
        """Forget all rows if they were of another width."""
        if width != self._width:
            self._width = width
            self._rows.clear()

    def of(self, entry: _Entry) -> int:
        """The rows of an entry."""
        if entry not in self._rows:
            width = max(20, self._width - 4)
            lines = entry.text.split("\n")
            self._rows[entry] = 2 + sum(1 + len(line) // width for line in lines)
        return self._rows[entry]

    def keep(self, entry: _Entry, rows: int) -> None:
        """Take note of the rows that an entry fills."""
        self._rows[entry] = rows

    def forget(self, entries: Iterable[_Entry]) -> None:
        """Forget the rows of entries that are gone, or that change."""
        for entry in entries:
            self._rows.pop(entry, None)
