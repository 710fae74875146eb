"""Marks: copies of a text's states, to come back to where a cache cannot be cut; and their memory.

A long conversation has many places to come back to, and a state may take hundreds of megabytes. So
texts keep as many marks as main memory allows, and where one must go, it is the one that saves the
least: the nearest to the mark before it.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from threading import Lock
from weakref import WeakSet

from localspec.llama.state import Copy
from localspec.utils.host_memory import spare_memory

MAX_MARKS = 16
# The marks of all texts take at most this, and this part of the memory that is free without them.
_MOST_BYTES, _PART = 8 * 2**30, 4


class Marks(Mapping[int, Copy]):
    """The marks of a text by their number of tokens, added in ascending order.

    refused: the bytes of the latest mark that there was no room for; 0 if there was.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._copies: dict[int, Copy] = {}

    def __getitem__(self, length: int) -> Copy:
        return self._copies[length]

    def __iter__(self) -> Iterator[int]:
        return iter(self._copies)

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._copies)

    def __len__(self) -> int:
        return len(self._copies)

    # Texts are told apart, not compared.
    __eq__, __hash__ = object.__eq__, object.__hash__

    @property
    def longest(self) -> int:
        return max(self, default=0)

    @property
    def copies(self) -> list[Copy]:
        """All copies, at one moment: texts of other engines are written in other threads."""
        return [*self._copies.values()]

    @property
    def size(self) -> int:
        """The bytes of all."""
        return sum(copy.size for copy in self.copies)

    def longest_within(self, length: int) -> int:
        """The longest of at most so many tokens; 0 without one."""
        return max((each for each in self if each <= length), default=0)

    def latest(self, most_bytes: int) -> list[tuple[int, Copy]]:
        """The longest, in ascending order, that take at most so many bytes; at least one."""
        sizes = accumulate(self[length].size for length in reversed(self))
        count = max(1, sum(size <= most_bytes for size in sizes))
        return [*self.items()][-count:]

    def make_room(self, size: int) -> bool:
        """Drop marks until one of so many bytes fits; False, and nothing is dropped, if none can.

        One mark always may be kept, if it takes no more than half of the memory that is free.
        """
        free = spare_memory()
        self.refused = size if size > (free + self.size) // 2 else 0
        if not size or self.refused:
            return False
        most = _TEXTS.most_bytes(self, free) - size
        while self and (len(self) >= MAX_MARKS or self.size > most):
            del self._copies[self._least_useful()]
        return True

    def add(self, length: int, copy: Copy) -> None:
        """Keep a mark, for which there is room."""
        self._copies[length] = copy
        _TEXTS.add(self)

    def drop_beyond(self, length: int) -> None:
        """Drop all of more tokens."""
        for longer in [each for each in self if each > length]:
            del self._copies[longer]

    def clear(self) -> None:
        """Drop all."""
        self._copies.clear()

    def _least_useful(self) -> int:
        """The mark without which the fewest tokens would have to be read again."""
        before = dict(zip(self, (0, *self), strict=False))
        return min(self, key=lambda length: length - before[length])


class _MarkedTexts:
    """The texts of this process that have marks."""

    def __init__(self) -> None:
        self._marks = WeakSet[Marks]()
        self._lock = Lock()

    def add(self, marks: Marks) -> None:
        with self._lock:
            self._marks.add(marks)

    def most_bytes(self, own: Marks, free: int) -> int:
        """How many bytes the marks of a text may take: what others leave, or its equal part.

        free: the bytes that are free beside all marks.
        """
        with self._lock:
            marked = [each for each in self._marks if each and each is not own]
        copies = {id(copy): copy.size for each in marked for copy in each.copies}
        # Texts that begin alike have the same copies.
        others = sum(copies[each] for each in copies.keys() - {id(each) for each in own.copies})
        most = min(_MOST_BYTES, (free + others + own.size) // _PART)
        return max(most - others, most // (1 + len(marked)))


_TEXTS = _MarkedTexts()
