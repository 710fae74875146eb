"""Prompt lookup: copy the tokens after an earlier occurrence of the last n-gram (Saxena 2023)."""

from collections.abc import Sequence

from localspec.drafters.history import History
from localspec.errors import InvalidValueError
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

Gram = tuple[int, ...]


class PromptLookup:
    """Finds the longest last n-gram of the text that occurred before, and copies what followed.

    longest, shortest: the lengths of the n-grams tried, in tokens.

    It copies from the most recent earlier occurrence. An index is updated with each token, so the
    time of a proposal does not depend on the length of the text.
    """

    name = "lookup"
    traits = Traits(cheap=True, reads_media=True)

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        if not 1 <= shortest <= longest:
            raise InvalidValueError(f"shortest is {shortest}; it must be from 1 to {longest}")
        self._sizes = range(longest, shortest - 1, -1)
        self._index = _LastOccurrence(self._sizes)
        self._history = History(self._index)

    def begin(self, tokens: Sequence[int]) -> None:
        """Change to this text."""
        self._history.set_text(tokens)

    def propose(self, limit: Limit) -> Draft:
        """Copy up to `limit.depth` tokens."""
        text = self._history.text
        for size in self._sizes:
            start = self._index.before_last(text, size)
            if start is not None:
                return Draft(self._copied(start, limit.depth))
        return NOTHING

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens."""
        self._history.extend(outcome.tokens)

    def _copied(self, start: int, count: int) -> list[int]:
        """Copy `count` tokens from `start` on; at the end of the text, go on with the copy."""
        copied = self._history.text[start : start + count]
        period = len(self._history.text) - start
        while len(copied) < count:
            copied.append(copied[len(copied) - period])
        return copied


class _LastOccurrence:
    """For each n-gram the end of its last occurrence, and for each position the one before that."""

    def __init__(self, sizes: range) -> None:
        self._sizes = sizes
        self._ends: dict[Gram, int] = {}
        # One list per size. Entry i: where the n-gram that ends at token i ended before, or None.
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
        """Where the last n-gram ended before, which is where to copy from; None if it is new."""
        return self._before[size][-1] if len(text) >= size else None
