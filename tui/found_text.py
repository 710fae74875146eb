"""Found text: where a text occurs in others."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from localspec.conversation.turns import Turn


class Hit(NamedTuple):
    """An occurrence in a turn. number: among those of the turn, from 0."""

    turn: Turn
    number: int


class Span(NamedTuple):
    """A part of a row that belongs to an occurrence. start, end: letters of the row."""

    start: int
    end: int
    number: int


def pattern_of(text: str) -> re.Pattern[str]:
    """What finds a text, however its letters are written, and where it is wrapped."""
    words = [re.escape(word) for word in text.split()]
    return re.compile(r"\s+".join(words), re.IGNORECASE)


def hits(turns: Iterable[Turn], pattern: re.Pattern[str]) -> list[Hit]:
    """The occurrences in the messages and answers, the first one first."""
    found = ((turn, pattern.finditer(turn.content)) for turn in turns)
    return [Hit(turn, number) for turn, each in found for number, _ in enumerate(each)]


def spans_by_row(
    rows: Sequence[tuple[str, str]], pattern: re.Pattern[str]
) -> dict[int, list[Span]]:
    """The occurrences in a text that is laid out, by the number of the row.

    rows: what stands between a row and the one above it, and the row.
    """
    starts = [*accumulate((len(between) + len(text) for between, text in rows), initial=0)]
    spans: dict[int, list[Span]] = {}
    for number, match in enumerate(pattern.finditer("".join(map("".join, rows)))):
        first = bisect_right(starts, match.start()) - 1
        for row in range(first, len(rows)):
            between, text = rows[row]
            begin = starts[row] + len(between)
            start, end = max(match.start() - begin, 0), min(match.end() - begin, len(text))
            if start < end:
                spans.setdefault(row, []).append(Span(start, end, number))
            if match.end() <= starts[row + 1]:
                break
    return spans
