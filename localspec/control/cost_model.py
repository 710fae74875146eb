"""Costs: what a target pass of each width takes, and a drafter's tokens, learnt while running.

A pass over n rows does not cost n times a pass over one: on a CPU the cost climbs in steps (kernels
take four rows at once), on a GPU it hardly climbs at first. Only measuring tells.
"""

from bisect import insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

# Passes of up to so many rows are told apart; a controller drafts no deeper.
WIDEST = 32
# The last so many observations of a width count: the median of them is its cost.
_REMEMBERED = 9
# Before so many, a single slow pass would count.
_ENOUGH = 3
# How fast it is forgotten which widths were seen.
_FADING = 0.98
# A width seen so many times as often as the anchor becomes the anchor.
_TAKES_OVER = 1.5
# A factor that moved by more than this makes costs stale.
_MUCH = 1.1
# And a profile that far off was wrong.
_WRONG = 3.0
# A cost is said to have changed when it moved by this share.
_NOTABLE = 0.01


class Recent:
    """The median of the last few observations."""

    __slots__ = ("_order", "_sorted")

    def __init__(self) -> None:
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._order)

    def add(self, value: float) -> None:
        """One more; the oldest of too many goes."""
        self._order.append(value)
        insort(self._sorted, value)
        if len(self._order) > _REMEMBERED:
            self._sorted.remove(self._order.popleft())

    @property
    def median(self) -> float:
        """The middle one; with an even number of them the smaller."""
        return self._sorted[(len(self._sorted) - 1) // 2]


class Widths:
    """Seconds of a target pass by its width, and the width at which it is done best.

    profile: seconds of some widths, 1 among them, as measured at load; the rest is interpolated.

    A cost is the product of a factor that all widths share, for what slows them alike (a longer
    text, a busier machine), and of each width's own part. The width seen most often of late, the
    anchor, tells the factor; any other that is seen corrects its own part. What the factor says of
    a width not seen for long is a guess: `is_stale` tells when it is worth a look.
    """

    def __init__(self, profile: Mapping[int, float]) -> None:
        self._base = _interpolated(profile)
        self._profiled = self._base[1]
        self._factor = 1.0
        self._narrowest = 1
        self._seen = [Recent() for _ in self._base]
        self._relative = [Recent() for _ in self._base]
        # The factor when a width's own part was last looked at.
        self._under = [1.0] * len(self._base)
        self._frequency = [0.0] * len(self._base)
        self._anchor = 1
        # The factor when a width's own part was last known to be right.
        self._confirmed = [1.0] * len(self._base)
        self._best = list(self._base)
        self._padded = list(range(len(self._base)))
        self._rank()

    @property
    def table(self) -> list[float]:
        """`seconds` of every width up to the widest; entry 0 means nothing."""
        factor = self._factor
        return [factor * best for best in self._best]

    def seconds(self, width: int) -> float:
        """Of a pass over `width` rows, padded where that is quicker."""
        return self._factor * self._best[min(width, WIDEST)]

    def padded(self, width: int) -> int:
        """With how many rows a pass over `width` is quickest."""
        return self._padded[width] if width <= WIDEST else width

    def none_below(self, narrowest: int) -> None:
        """From here on every pass has at least so many rows: a plain one, too, takes their time."""
        if narrowest == self._narrowest:
            return
        self._narrowest = narrowest
        self._base[1:narrowest] = [self._base[narrowest]] * (narrowest - 1)
        self._profiled = self._base[1]
        self._rank()

    def learn(self, width: int, seconds: float) -> None:
        """A pass over so many rows took this long, all that belongs to the step included."""
        if not 1 <= width <= WIDEST or seconds <= 0:
            return
        if width == self._narrowest:
            width = 1
        self._frequency = [_FADING * each for each in self._frequency]
        self._frequency[width] += 1
        self._seen[width].add(seconds)
        if self._frequency[width] > _TAKES_OVER * self._frequency[self._anchor]:
            self._anchor = width
        # Until the factor is known, it could pass for a width's own part.
        if len(self._seen[self._anchor]) < _ENOUGH:
            return
        if width == self._anchor:
            self._factor = self._seen[width].median / self._base[width]
            self._confirmed[width] = self._factor
        else:
            self._learn_part(width, seconds / self._factor)

    @property
    def growth(self) -> float:
        """How much longer reading the text takes a model than if it had stayed as short as in the
        profile: at its end as much as a plain pass takes longer, on average half of that.
        """
        return max(1.0, (1 + self._slowdown) / 2)

    @property
    def proved_wrong(self) -> bool:
        """Whether plain passes take much more, or less, than the profile said."""
        return len(self._seen[1]) >= _ENOUGH and not 1 / _WRONG < self._slowdown < _WRONG

    @property
    def _slowdown(self) -> float:
        return self.seconds(1) / self._profiled

    def is_stale(self, width: int) -> bool:
        """Whether the factor has moved much since this width was seen."""
        return self._moved(self._confirmed[width])

    def _learn_part(self, width: int, relative: float) -> None:
        """A width's own part, by observations under about the same factor."""
        if self._moved(self._under[width]):
            self._relative[width] = Recent()
        self._under[width] = self._factor
        self._relative[width].add(relative)
        if len(self._relative[width]) < _ENOUGH:
            return
        if abs(self._relative[width].median / self._base[width] - 1) > _NOTABLE:
            self._base[width] = self._relative[width].median
            self._rank()
        self._confirmed[width] = self._factor

    def _moved(self, before: float) -> bool:
        return not 1 / _MUCH < self._factor / before < _MUCH

    def _rank(self) -> None:
        """For each width, the cheapest that is at least as wide; a plain pass stays what it is."""
        best = WIDEST
        for width in range(WIDEST, 0, -1):
            if self._base[width] <= self._base[best] or width == 1:
                best = width
            self._best[width], self._padded[width] = self._base[best], best


def _interpolated(profile: Mapping[int, float]) -> list[float]:
    """Seconds by width, entry 0 unused: straight lines between what is known, and on from there."""
    known = sorted((width, seconds) for width, seconds in profile.items() if width <= WIDEST)
    seconds = [0.0] * (WIDEST + 1)
    if len(known) == 1:
        known.append((WIDEST, known[0][1] * WIDEST / known[0][0]))
    for width in range(1, WIDEST + 1):
        following = next((i for i, (w, _) in enumerate(known) if w >= width), len(known) - 1)
        (w0, s0), (w1, s1) = known[max(following, 1) - 1], known[max(following, 1)]
        seconds[width] = max(s0 + (s1 - s0) * (width - w0) / (w1 - w0), min(s0, s1) / 2)
    return seconds


@dataclass(slots=True)
class DrafterCost:
    """Seconds a drafter takes.

    first: the first token of a proposal, what it has to catch up on included. further: each token
    after it. backlog: each token of text it has not seen, beyond the usual one or two.
    """

    first: float = 0.0
    further: float = 0.0
    backlog: float = 0.0
    _first: Recent = field(default_factory=Recent)
    _further: Recent = field(default_factory=Recent)
    _backlog: Recent = field(default_factory=Recent)

    def of(self, depth: int) -> float:
        """Of a proposal so deep."""
        return self.first + (depth - 1) * self.further

    def catching_up(self, behind: int, growth: float = 1.0) -> float:
        """Of the tokens before that, so many behind the text; `growth` as of Widths."""
        return self.reading(max(0, behind - 2), growth)

    def reading(self, tokens: int, growth: float = 1.0) -> float:
        """Of taking in so much text; `growth` as of Widths."""
        return growth * tokens * self.backlog

    def learn_whole(self, seconds: float, tokens: int, *, cheap: bool) -> None:
        """A proposal of so many tokens took this long; a cheap one does, whatever its depth."""
        self.learn_first(seconds if cheap else seconds / tokens, 0)
        self.learn_further(0.0 if cheap else seconds / tokens)

    def learn_first(self, seconds: float, behind: int, growth: float = 1.0) -> None:
        """The first token came after so long, so many tokens behind; `growth` as of Widths."""
        if behind <= 2:
            self.first = self._learnt(self._first, seconds, self.first)
        elif behind >= 16:  # fewer say nothing
            each = max(0.0, seconds - self.first) / (behind - 2) / growth
            self.backlog = self._learnt(self._backlog, each, self.backlog)

    @property
    def knows_further(self) -> bool:
        """Whether it was seen while decoding what a further token takes."""
        return len(self._further) >= _ENOUGH

    def learn_further(self, seconds: float) -> None:
        """One more token took so long."""
        self.further = self._learnt(self._further, seconds, self.further)

    @staticmethod
    def _learnt(recent: Recent, seconds: float, known: float) -> float:
        """The median, once there is enough of it; what was known before, if anything was."""
        recent.add(seconds)
        return recent.median if len(recent) >= _ENOUGH or not known else known
