"""Base costs: what a pass takes by its width, in a profile and as passes correct it."""

from collections.abc import Mapping
from itertools import pairwise

from localspec.speculation.draft import MAX_DEPTH

# The most rows of a pass; a policy drafts no deeper.
WIDEST = 32
# The most rows of a decode whose cost is learnt: several texts may share it.
WIDEST_DECODE = MAX_DEPTH + 1
# Passes of a width that take less than this part of what was expected are much quicker.
_MUCH_QUICKER = 0.9
# What a width takes beyond width 1, in plain passes: with less, it tells nothing of wider ones. And
# how much of that may be wrong.
_TELLING, _UNSURE = 0.25, 0.05


class BaseCosts:
    """Seconds of a pass by its width, before what slows all widths alike (see PassCosts).

    profile: seconds by width as measured at load, width 1 included; other widths are interpolated.

    A width of the profile of which no passes were seen is off as its neighbours of which some were,
    linear between them: a machine that has changed has changed for all widths. By as many times; or
    what it takes beyond width 1, where that makes it quicker, and they are much quicker than in the
    profile: passes that seem too dear are not measured, those that seem too cheap soon are.

    table: the seconds of every width from 1 to WIDEST_DECODE; entry 0 is unused.
    """

    def __init__(self, profile: Mapping[int, float]) -> None:
        self._profile = {width: each for width, each in profile.items() if width <= WIDEST}
        self._corrected: dict[int, float] = {}
        self._fixed = 1
        self.table = _interpolated(self._profile)

    @property
    def known(self) -> dict[int, float]:
        """By width: the seconds of those that are not interpolated."""
        widths = {*self._profile, *self._corrected, self._fixed}
        return {width: self.table[width] for width in sorted(widths)}

    def is_corrected(self, width: int) -> bool:
        """Whether passes of this width were seen."""
        return width in self._corrected

    def correct(self, seconds: Mapping[int, float], fixed: int) -> None:
        """Take over what passes of some widths take. fixed: a width that must not move with others.

        seconds: by width.
        """
        table, profile = self.table, self._profile
        self._corrected.update(seconds)
        self._fixed = fixed
        pinned = {1: table[1], fixed: table[fixed], **self._corrected}
        one = pinned[1]
        scaled = {width: one / profile[1] * each for width, each in profile.items()}
        off = {width: pinned[width] / each for width, each in scaled.items() if width in pinned}
        alike = _between(off)
        beyond = _between(
            {w: _beyond(one, scaled[w], each) for w, each in off.items() if w > 1} or off
        )
        supposed = {
            width: min(alike[width] * each, one + beyond[width] * (each - one))
            if alike[width] < _MUCH_QUICKER
            else alike[width] * each
            for width, each in scaled.items()
        }
        self.table = _interpolated({**supposed, **pinned})

    def with_least(self, rows: int) -> "BaseCosts":
        """Where every pass has at least so many rows, a plain pass too."""
        plain = self.table[rows]
        wider = {width: each for width, each in self.known.items() if width > rows}
        return BaseCosts({1: plain, rows: plain, **wider})


def _beyond(one: float, supposed: float, off: float) -> float:
    """As many times as a width is off in what it takes beyond width 1, if it is much quicker.

    one, supposed: seconds of width 1, and of this one before it was corrected by `off`.
    """
    expected, seen = supposed - one, off * supposed - one
    if off >= _MUCH_QUICKER or expected < _TELLING * one:
        return off
    return (max(0.0, seen) + _UNSURE * one) / expected


def _between(known: Mapping[int, float], widest: int = WIDEST) -> list[float]:
    """Values by width: linear between the known ones, and the outermost ones beyond them."""
    points = sorted(known.items())
    values = [points[0][1]] * (widest + 1)
    for (w0, v0), (w1, v1) in pairwise([*points, (widest + 1, points[-1][1])]):
        for width in range(w0, min(w1, widest) + 1):
            values[width] = v0 + (v1 - v0) * (width - w0) / (w1 - w0)
    return values


def _interpolated(measured: Mapping[int, float]) -> list[float]:
    """Seconds by width, entry 0 unused: linear between the measured widths, and beyond the last.

    Beyond it they rise as from half that width on, or as from the first one if that is steeper:
    what is a little wrong, or a step, would be far more so for wide passes.
    """
    known = sorted(measured.items())
    if len(known) == 1:
        known.insert(0, (0, 0.0))
    last, most = known[-1]
    half = max(each for each in known if each[0] <= last // 2)
    rise = max(0.0, *((most - below) / (last - before) for before, below in (known[0], half)))
    seconds = _between({0: 0.0, **measured}, WIDEST_DECODE)
    for width in range(last + 1, WIDEST_DECODE + 1):
        seconds[width] = most + rise * (width - last)
    return seconds
