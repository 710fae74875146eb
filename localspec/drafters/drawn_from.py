"""What the target drew the tokens of texts from: the likely tokens of each place, in columns."""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.sampling.distribution import Distribution

# A score is kept as the number of such parts of 1 that it lies below the largest one, in a byte. In
# a shortlist it lies at most about 4 below it.
PARTS, _MOST_PARTS = 64, 255
# Hotter ones are kept as this one, so that no quotient of two temperatures is 0.
_HOTTEST = 1e30
# In bytes: the numbers of temperatures, likely tokens and places; and for each of the former two.
_HEAD, _PER_TEMPERATURE, _PER_TOKEN = 12, 12, 5


class Choice(NamedTuple):
    """The tokens that were likely where one was drawn.

    below: by how many parts of 1 / PARTS the score of each lies below the largest one.
    temperature: of these scores; 0: they are adaptive-p's, which have none.
    """

    ids: Sequence[int]
    below: Sequence[int]
    temperature: float


class DrawnText(NamedTuple):
    """A text, and what its tokens were drawn from, as far as that is known."""

    tokens: Sequence[int]
    drawn_from: "DrawnFrom"


class DrawnFrom:
    """What the target drew the tokens of an index or of a text from, by their places there.

    Scores are rounded to a 64th. No text depends on them, as a copy is only a draft.

    Memory: 5 bytes per token, and 5 per likely token where there was a choice, so 85 at most; and
    12 wherever the temperature is another one.
    """

    def __init__(self) -> None:
        # By place, how many tokens were likely; 0: not known. It grows after all else, as another
        # thread may take a part meanwhile.
        self._counts = bytearray()
        # How many likely tokens there are before each place with a choice, and in all.
        self._before = array("I", [0])
        self._ids = array("i")
        self._below = bytearray()
        self._temperatures = _Temperatures()
        self._has_choice = False

    def __bool__(self) -> bool:
        """Whether some token had a choice, here or in what this is a part of."""
        return self._has_choice

    def __len__(self) -> int:
        """The number of places, up to the last one that was added."""
        return len(self._counts)

    @property
    def size(self) -> int:
        """In bytes, without those of each place."""
        return self._size_from(0)

    def add(self, place: int, distribution: Distribution) -> None:
        """Keep the distribution of the token at a place, which lies behind those added before."""
        shortlist = distribution.shortlist()
        self._reach(place)
        if len(shortlist) > 1:
            self._add_choice(place, shortlist)
            self._has_choice = True
        self._before.append(len(self._ids))
        self._counts.append(len(shortlist))

    def extend(self, place: int, part: "DrawnFrom") -> None:
        """Add a part from a place on, which lies behind those added before.

        A text at temperature 0 never had a choice, however unsure the target was: nothing is known.
        """
        if not part:
            return
        self._reach(place)
        self._temperatures.extend(place, part._temperatures)
        self._before += _moved(part._before[1:], len(self._ids))
        self._ids += part._ids
        self._below += part._below
        self._has_choice = True
        self._counts += part._counts

    def part(self, first: int, after: int) -> "DrawnFrom":
        """The places from `first` to `after`, which count from 0."""
        part = DrawnFrom()
        part._has_choice = self._has_choice
        part._counts = counts = self._counts[first:after]
        if counts:
            before = self._before[first : first + len(counts) + 1]
            part._before = _moved(before, -before[0])
            part._ids = self._ids[before[0] : before[-1]]
            part._below = self._below[before[0] : before[-1]]
            part._temperatures = self._temperatures.part(first, first + len(counts))
        return part

    def completed(self, other: "DrawnFrom") -> "DrawnFrom":
        """What is known here, and of places where nothing is, what is known elsewhere."""
        if not self:
            return other
        known, counts = DrawnFrom(), bytes(self._counts)
        for run in re.finditer(rb"\0+|[^\0]+", counts):
            source = self if counts[run.start()] else other
            known.extend(run.start(), source.part(*run.span()))
        known.extend(len(counts), other.part(len(counts), len(other)))
        return known

    def latest(self, size: int) -> "DrawnFrom":
        """What is known of the last places, as many as have at most this size."""
        if self.size <= size:
            return self
        first = bisect_left(range(len(self)), -size, key=lambda place: -self._size_from(place))
        known = DrawnFrom()
        known.extend(first, self.part(first, len(self)))
        return known

    def choice_at(self, place: int) -> Choice | None:
        """The tokens that were likely at a place; None where that was one, or is not known."""
        count = self._counts[place] if place < len(self._counts) else 0
        if count < 2:
            return None
        first = self._before[place]
        after = first + count
        temperature = self._temperatures.at(place)
        return Choice(self._ids[first:after].tolist(), self._below[first:after], temperature)

    def was_sure(self, place: int) -> bool:
        """Whether only one token was likely at a place."""
        return place < len(self._counts) and self._counts[place] == 1

    def columns(self) -> list[bytes | bytearray]:
        """For a file: what `of_columns` reads, one after the other."""
        values, places = self._temperatures.values, self._temperatures.places
        return [
            np.array([len(places), len(self._ids), len(self)], "<u4").tobytes(),
            np.array(values, "<f8").tobytes(),
            np.array(places, "<u4").tobytes(),
            np.array(self._ids, "<i4").tobytes(),
            self._below,
            self._counts,
        ]

    @classmethod
    def of_columns(cls, data: bytes | memoryview) -> "DrawnFrom":
        """Raises InvalidValueError, which says what is wrong with the bytes of a file."""
        head = bytes(data[:_HEAD]).ljust(_HEAD, b"\0")
        temperatures, likely, places = np.frombuffer(head, "<u4").tolist()
        size = _HEAD + _PER_TEMPERATURE * temperatures + _PER_TOKEN * likely + places
        if len(data) != size:
            raise InvalidValueError("has another length than it says")
        known, at = cls(), _HEAD

        def column(kind: str, count: int) -> NDArray[Any]:
            nonlocal at
            found = np.frombuffer(data, kind, count, at)
            at += found.nbytes
            return found.astype(kind[1:])

        known._temperatures.values.frombytes(column("<f8", temperatures).tobytes())
        known._temperatures.places.frombytes(column("<u4", temperatures).tobytes())
        known._ids.frombytes(column("<i4", likely).tobytes())
        known._below += column("=u1", likely).tobytes()
        counts = column("=u1", places)
        known._before.frombytes(np.where(counts > 1, counts, 0).cumsum(dtype="u4").tobytes())
        known._has_choice = bool(counts.any())
        known._counts += counts.tobytes()
        if not known._is_possible():
            raise InvalidValueError("holds impossible distributions")
        return known

    def _is_possible(self) -> bool:
        """Whether tokens can be drawn from all choices."""
        ids, counts = np.array(self._ids), np.array(self._counts, "i8")
        fits = int(counts[counts > 1].sum()) == ids.size and not (ids < 0).any()
        first_choice = int(np.append(counts > 1, True).argmax())
        return fits and self._temperatures.are_possible(len(self), first_choice)

    def _size_from(self, place: int) -> int:
        changes = self._temperatures.places
        temperatures = len(changes) - max(0, bisect_right(changes, place) - 1)
        return _PER_TEMPERATURE * temperatures + _PER_TOKEN * (len(self._ids) - self._before[place])

    def _add_choice(self, place: int, shortlist: Distribution) -> None:
        assert shortlist.ids is not None
        logits, temperature = shortlist.logits.tolist(), shortlist.temperature
        top, parts = max(logits), PARTS / temperature
        below = [int((top - each) * parts + 0.5) for each in logits]
        if max(below) > _MOST_PARTS:
            below = [min(each, _MOST_PARTS) for each in below]
        self._temperatures.add(place, 0.0 if shortlist.adaptive else min(temperature, _HOTTEST))
        self._ids.extend(shortlist.ids.tolist())
        self._below += bytes(below)

    def _reach(self, place: int) -> None:
        """Nothing is known of the places up to this one that were not added."""
        missing = place - len(self._counts)
        self._before.extend([len(self._ids)] * missing)
        self._counts += bytes(missing)


class _Temperatures:
    """Temperatures, and the places from which on they hold; 0: the logits are adaptive-p's."""

    def __init__(self) -> None:
        self.values, self.places = array("d"), array("I")

    def at(self, place: int) -> float:
        return self.values[bisect_right(self.places, place) - 1]

    def add(self, place: int, temperature: float) -> None:
        if not self.values or self.values[-1] != temperature:
            self.values.append(temperature)
            self.places.append(place)

    def extend(self, place: int, part: "_Temperatures") -> None:
        for own, temperature in zip(part.places, part.values, strict=True):
            self.add(place + own, temperature)

    def part(self, first: int, after: int) -> "_Temperatures":
        part = _Temperatures()
        begin, end = bisect_right(self.places, first), bisect_left(self.places, after)
        if begin:
            part.add(0, self.values[begin - 1])
        for number in range(begin, end):
            part.add(self.places[number] - first, self.values[number])
        return part

    def are_possible(self, places: int, needed: int) -> bool:
        """Whether they can be those of so many places. needed: the first that has one, or all."""
        values, changes = np.array(self.values), np.append(np.array(self.places, "i8"), places)
        increasing = bool((np.diff(changes) > 0).all())
        between = bool(((values >= 0) & (values <= _HOTTEST)).all())
        return increasing and between and bool(changes[0] <= needed)


def _moved(numbers: "array[int]", by: int) -> "array[int]":
    return array("I", (np.array(numbers, "i8") + by).astype("u4").tobytes())
