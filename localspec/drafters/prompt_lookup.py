"""Prompt lookup: copy what followed the last time the text ended like this (Saxena 2023)."""

from collections.abc import Sequence

from localspec.drafters.history import History
from localspec.errors import InvalidValueError
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

Gram = tuple[int, ...]


class PromptLookup:
    """Finds the longest of the text's last n-grams that occurred before, and copies on from there.

    longest: the longest n-gram tried, in tokens. shortest: the shortest.

    The most recent earlier occurrence is taken; it is looked up in an index kept up per token, so
    a proposal costs the same at any length of text.
    """

    name = "lookup"
    traits = Traits(cheap=True)

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        if not 1 <= shortest <= longest:
            raise InvalidValueError(f"shortest is {shortest}; it must be from 1 to {longest}")
        self._sizes = range(longest, shortest - 1, -1)
        self._index = _LastOccurrence(self._sizes)
        self._history = History(self._index)

    def begin(self, tokens: Sequence[int]) -> None:
        """The text is now exactly this."""
        self._history.become(tokens)

    def propose(self, limit: Limit) -> Draft:
        """Copy up to `limit.depth` tokens."""
        text = self._history.text
        for size in self._sizes:
            start = self._index.before_last(text, size)
            if start is not None:
                return Draft(self._copied(start, limit.depth))
        return NOTHING

    def observe(self, outcome: Outcome) -> None:
        """Take in what was committed."""
        self._history.extend(outcome.tokens)

    def _copied(self, start: int, count: int) -> list[int]:
        """Tokens from `start` on, running on into the copy itself where the text ends."""
        copied = self._history.text[start : start + count]
        period = len(self._history.text) - start
        while len(copied) < count:
            copied.append(copied[len(copied) - period])
        return copied


class _LastOccurrence:
    """For each n-gram, where it last ended, and for each position where the one before it ended."""

    def __init__(self, sizes: range) -> None:
        self._sizes = sizes
        self._ends: dict[Gram, int] = {}
        # One list per size; entry i: where the n-gram ending at token i had ended before, or None.
        self._before: dict[int, list[int | None]] = {size: [] for size in sizes}

    def push(self, text: list[int]) -> None:
        end = len(text)
        for size in self._sizes:
            gram = tuple(text[-size:])
            self._before[size].append(self._ends.get(gram))
            if end >= size:
                self._ends[gram] = end

    def pop(self, text: list[int]) -> None:
        for size in self._sizes:
            before = self._before[size].pop()
            if len(text) < size:
                continue
            gram = tuple(text[-size:])
            if before is None:
                del self._ends[gram]
            else:
                self._ends[gram] = before

    def before_last(self, text: list[int], size: int) -> int | None:
        """Where the text's last n-gram ended the time before: the place to copy from."""
        return self._before[size][-1] if len(text) >= size else None
