"""Digits probe: try out in which passes a model gives a token logits of equal bits.

A backend chooses its kernels by the rows of a pass, by its threads, and by the cells in use; each
kernel adds in an order of its own. docs/exact.md says which do so. The trial repeats the same few
tokens in passes of several widths, behind a text that is long enough for the kernels of long texts.
"""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.probe_cache import OTHER, OWN, THIRD, ProbeCache
from localspec.speculation.equal_digits import EqualDigits, Groups

# Seconds for the trial of a slow model: what is needed is tried in any case, the rest until then.
BUDGET = 0.3
# The first are tried in any case.
_WIDTHS = (4, 1, 2, 8, 3, 16, 5, 6, 7, 12)
_NEEDED = 3
# From 512 cells on, the CPU splits attention of a single row among its threads.
_BEHIND = 512
# Room for the text, another as long, and the tokens that are tried.
CELLS = 1280
# The trial's text: where passes are quick, parts of _MANY tokens, evaluated one after the other;
# else _FEW tokens, which are doubled. Both are odd: as a third text, they shift the cells behind
# them by a part of a vector register.
_FEW, _MANY = 5, 47
_SLOW_PASS = 0.03
_LEAST_TOKENS, _MOST_TOKENS = 2, 64
# Positions of the trial beyond the text that it lies behind.
_MOST_POSITIONS = _MANY + _MOST_TOKENS + 16
# The passes of all widths over one token take about as long as these passes over _FEW tokens.
_PASSES_PER_TOKEN = 2.4

_Digests = list[bytes]


def find_equal_digits(
    model: Model, params: ContextParams, *, budget: float = BUDGET
) -> EqualDigits | None:
    """Try out widths and company; None if the library cannot compute the trial.

    params: of the trial's cache, usually of CELLS tokens. budget: seconds.
    """
    # A sliding window has no room for a long text whose tokens all are within the window. Behind
    # its last position, a model with a table of positions ends the process.
    for behind in (_BEHIND, 0):
        # Doubling the text ends a quarter beyond.
        if behind + behind // 4 + _MOST_POSITIONS > model.n_ctx_train:
            continue
        with suppress(LocalspecError), ProbeCache(model, params) as cache:
            return _Trial(cache, model.n_vocab, behind, budget).run()
    return None


class _Trial:
    """Passes over the same tokens, behind the same text."""

    def __init__(self, cache: ProbeCache, n_vocab: int, behind: int, budget: float) -> None:
        self._cache = cache
        self._deadline = perf_counter() + budget
        numbers = np.random.default_rng(0).integers(0, n_vocab, _MOST_POSITIONS)
        self._first, self._tokens = numbers[:_MANY].tolist(), numbers[_MANY:].tolist()
        took = self._seconds_of_first(_FEW)
        if took < _SLOW_PASS:  # the first pass of a cache takes longer than others
            took = self._seconds_of_first(_FEW)
        self._count = _tokens_within(budget, took)
        self._is_quick = self._count == _MOST_TOKENS
        self._behind = _FEW
        if self._is_quick:
            self._behind = _MANY
            self._seconds_of_first(_MANY)
        # The text, the text one step before, and its first part.
        self._base = self._before = self._part = cache.copy()
        while self._behind < behind and self._lengthen():
            self._before, self._base = self._base, cache.copy()

    def run(self) -> EqualDigits:
        """Try widths, then company, then further widths while time is left."""
        found = {width: self._rows(width) for width in self._widths(_WIDTHS[:_NEEDED])}
        company = self._keeps_digits_in_company(found)
        for width in self._widths(_WIDTHS[_NEEDED:]):
            if perf_counter() > self._deadline:
                break
            found[width] = self._rows(width)
        return EqualDigits(_groups(found), self._behind, company)

    def _lengthen(self) -> bool:
        """Lengthen the text in the cache by a step; returns whether there was room."""
        if self._is_quick:
            self._cache.evaluate((OWN, self._first))
            self._behind += _MANY
            return True
        doubled = self._cache.double()
        self._behind *= 1 + doubled
        return doubled

    def _seconds_of_first(self, count: int) -> float:
        """Evaluate the text's first tokens."""
        self._cache.clear()
        began = perf_counter()
        self._cache.evaluate((OWN, self._first[:count]))
        return perf_counter() - began

    def _widths(self, widths: tuple[int, ...]) -> Iterator[int]:
        return (width for width in widths if width <= max(self._count, _WIDTHS[0]))

    def _rows(self, width: int) -> _Digests:
        """Digests of the logits after each token, in passes of `width` rows, behind the text."""
        self._restore()
        return self._rows_here(width)

    def _rows_here(self, width: int) -> _Digests:
        """Digests as `_rows`, in the cache as it is."""
        found = list[bytes]()
        while len(found) < self._count:
            part = self._tokens[len(found) : len(found) + width]
            found += _digests(self._cache.evaluate((OWN, part)))
        return found

    def _keeps_digits_in_company(self, alone: dict[int, _Digests]) -> bool | None:
        """Whether one row, and a pass that is shared, give the same beside other texts.

        One row is also tried where another text has left: there its cell lies in front of the text,
        and attention adds in the order of the cells. None without room for others.
        """
        if not self._restore_in_company():
            return None
        widest = max(alone)
        half = widest // 2
        parts = (OWN, self._tokens[:half]), (OTHER, self._first[: widest - half])
        shared = _digests(self._cache.evaluate(*parts)[:half])
        if not _agree(shared, alone[widest]):
            return False
        for restore in (self._restore_in_company, self._restore_behind_a_gap):
            restore()
            if not _agree(self._rows_here(1), alone[1]):
                return False
        return True

    def _restore(self) -> None:
        """Return to the text before the trial's tokens."""
        self._cache.clear()
        self._cache.put(self._base, OWN)

    def _restore_in_company(self) -> bool:
        """Return to the text, with others beside it; False if they have no room."""
        self._restore()
        return self._cache.put(self._before, OTHER) and self._cache.put(self._part, THIRD)

    def _restore_behind_a_gap(self) -> None:
        """Return to the text, with free cells of another one in front of it."""
        self._cache.clear()
        self._cache.put(self._part, OTHER)
        self._cache.put(self._base, OWN)
        self._cache.remove(OTHER)


def _tokens_within(budget: float, seconds: float) -> int:
    """How many tokens each width is tried with: a power of 2."""
    count = _MOST_TOKENS
    while count > _LEAST_TOKENS and _PASSES_PER_TOKEN * count * seconds > budget:
        count //= 2
    return count


def _digests(logits: NDArray[np.float32]) -> _Digests:
    return [blake2b(row.tobytes(), digest_size=16).digest() for row in logits]


def _agree(one: _Digests, other: _Digests) -> bool:
    """Whether the rows of the tokens that both have are equal."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _groups(found: dict[int, _Digests]) -> Groups:
    """Widths in groups, each of which agrees with every other of its group."""
    groups: list[list[int]] = []
    for width in sorted(found):
        fitting = (
            group for group in groups if all(_agree(found[width], found[each]) for each in group)
        )
        if (group := next(fitting, None)) is None:
            groups.append(group := [])
        group.append(width)
    return tuple(tuple(group) for group in groups)
