"""Pass costs: seconds of a target pass by its rows, learnt while running.

A pass over n rows does not cost n times a pass over one: on a CPU the cost climbs in steps (kernels
take four rows at once), on a GPU it hardly climbs at first. Only measuring tells.
"""

from collections.abc import Mapping

from localspec.control.recent_median import ENOUGH, RecentMedian

# Passes of up to so many rows are told apart; a policy drafts no deeper.
WIDEST = 32
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


class PassCosts:
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
        self._seen = [RecentMedian() for _ in self._base]
        self._relative = [RecentMedian() for _ in self._base]
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
        if len(self._seen[self._anchor]) < ENOUGH:
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
        return len(self._seen[1]) >= ENOUGH and not 1 / _WRONG < self._slowdown < _WRONG

    @property
    def _slowdown(self) -> float:
        return self.seconds(1) / self._profiled

    def is_stale(self, width: int) -> bool:
        """Whether the factor has moved much since this width was seen."""
        return self._moved(self._confirmed[width])

    def _learn_part(self, width: int, relative: float) -> None:
        """A width's own part, by observations under about the same factor."""
        if self._moved(self._under[width]):
            self._relative[width] = RecentMedian()
        self._under[width] = self._factor
        self._relative[width].add(relative)
        if len(self._relative[width]) < ENOUGH:
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
