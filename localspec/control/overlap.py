"""Overlap: what drawing tokens ahead saves, and what it costs, while the target computes.

A pass during which tokens are drawn ahead may take longer: both models may share a memory bus, and
the last drawn token is waited for. How much longer is learnt from the passes themselves, against
those without: one in `_ALONE_EVERY` stays alone.
"""

from collections.abc import Sequence

from localspec.control.drafter_cost import DrafterCost
from localspec.control.recent_median import RecentMedian

_ALONE_EVERY = 16
# Where drawing ahead does not pay, it is tried again after 1, 4, 16, ... drafts, at most so many.
_LONGER, _LONGEST_WAIT = 4, 512
# The weight of a new draft in the moving average of their lengths.
_NEWEST = 0.1


class Overlap:
    """What is known of drawing ahead with one drafter.

    slowdown: how many times longer a pass takes during which tokens are drawn ahead.
    """

    def __init__(self) -> None:
        self._slowdowns = RecentMedian()
        self._usual_depth = 1.0
        self._drafts = 0
        # Whether tokens are wanted in this step, and whether they were drawn when last wanted.
        self._wanted, self._happens = False, True
        self._waited, self._wait = 0, 1

    @property
    def slowdown(self) -> float:
        """1.0 until it was measured."""
        return max(1.0, self._slowdowns.median) if len(self._slowdowns) else 1.0

    def savings(
        self,
        survivals: Sequence[float],
        passes: Sequence[float],
        cost: DrafterCost,
        ready: int,
    ) -> list[float]:
        """The seconds that each depth from 0 may be expected to save the next draft.

        survivals: see RunningDraft. passes: seconds by rows. ready: how many tokens are drawn.
        """
        if not self._happens:
            return [0.0] * (len(survivals) + 1)
        last = len(survivals) - 1
        return [
            max(0.0, self._saving(survivals[min(depth, last)], depth, passes, cost, ready))
            for depth in range(len(survivals) + 1)
        ]

    def tokens(self, chance: float, depth: int, seconds: float, cost: DrafterCost) -> int:
        """How many tokens to draw ahead during a pass; 0 where that does not pay.

        chance: that the guess of the token after the draft is right. depth: the tokens of the
        draft. seconds: of the pass by itself.
        """
        self._usual_depth += _NEWEST * (depth - self._usual_depth)
        self._drafts += 1
        count = _fitting(seconds, cost)
        if count < 2 or self._drafts % _ALONE_EVERY == 0:
            return 0
        if chance * self._saved(count - 1, cost) > (self.slowdown - 1) * seconds:
            self._wait = 1
        elif self._waited < self._wait:
            self._waited += 1
            return 0
        else:
            self._wait = min(_LONGER * self._wait, _LONGEST_WAIT)
            # What was measured long ago says less than what is measured now.
            self._slowdowns = RecentMedian()
        self._waited, self._wanted = 0, True
        return count

    def learn(self, ahead: int, seconds: float, alone: float) -> None:
        """Learn from the pass of a step with its draft.

        ahead: how many tokens were drawn during it: none where whoever computes passes does not do
        that now, as beside other texts. alone: its expected seconds without.
        """
        if self._wanted:
            self._happens, self._wanted = ahead > 0, False
        if ahead:
            self._slowdowns.add(seconds / alone)

    def _saving(
        self, chance: float, depth: int, passes: Sequence[float], cost: DrafterCost, ready: int
    ) -> float:
        seconds = passes[depth + 1]
        left = max(depth, ready) + _fitting(seconds, cost) - depth - 1
        return chance * self._saved(left, cost) - (self.slowdown - 1) * seconds

    def _saved(self, ready: int, cost: DrafterCost) -> float:
        """The seconds of a draft that the next one need not take where so many are ready."""
        usual = max(1, round(self._usual_depth))
        return cost.of(min(ready, usual)) if ready > 0 else 0.0


def _fitting(seconds: float, cost: DrafterCost) -> int:
    """How many tokens are drawn in so many seconds."""
    return int(seconds / cost.further * (1 + 1e-9)) if cost.further else 0
