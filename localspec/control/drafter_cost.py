"""Drafter cost: seconds of a drafter's tokens, learnt while it runs."""

from dataclasses import dataclass, field

from localspec.control.recent_median import ENOUGH, RecentMedian


@dataclass(slots=True)
class DrafterCost:
    """Seconds that a drafter takes.

    first: the first token of a draft, with a backlog of one or two tokens. further: each token
    after the first. reading: each token of a longer backlog.
    """

    first: float = 0.0
    further: float = 0.0
    reading: float = 0.0
    _first: RecentMedian = field(default_factory=RecentMedian)
    _further: RecentMedian = field(default_factory=RecentMedian)
    _reading: RecentMedian = field(default_factory=RecentMedian)

    def of(self, depth: int) -> float:
        """Seconds of a draft of `depth` tokens."""
        return self.first + (depth - 1) * self.further

    def catch_up_seconds(self, backlog: int, slowdown: float = 1.0) -> float:
        """Seconds to evaluate a backlog of tokens, except the two that `first` includes.

        slowdown: PassCosts.reading_slowdown.
        """
        return self.reading_seconds(max(0, backlog - 2), slowdown)

    def reading_seconds(self, tokens: int, slowdown: float = 1.0) -> float:
        """Seconds to evaluate this many tokens of text. slowdown: PassCosts.reading_slowdown."""
        return slowdown * tokens * self.reading

    def learn_whole(self, seconds: float, tokens: int, *, cheap: bool) -> None:
        """Learn from a whole draft of `tokens` tokens. cheap: its time does not depend on depth."""
        self.learn_first(seconds if cheap else seconds / tokens, 0)
        self.learn_further(0.0 if cheap else seconds / tokens)

    def learn_first(self, seconds: float, backlog: int, slowdown: float = 1.0) -> None:
        """Learn from the first token of a draft, with this backlog before it.

        slowdown: PassCosts.reading_slowdown.
        """
        if backlog <= 2:
            self.first = self._learnt(self._first, seconds, self.first)
        elif backlog >= 16:  # with fewer tokens the time of each is too uncertain
            each = max(0.0, seconds - self.first) / (backlog - 2) / slowdown
            self.reading = self._learnt(self._reading, each, self.reading)

    @property
    def knows_further(self) -> bool:
        """Whether enough further tokens were measured while decoding."""
        return len(self._further) >= ENOUGH

    def learn_further(self, seconds: float) -> None:
        """Learn from one further token."""
        self.further = self._learnt(self._further, seconds, self.further)

    @staticmethod
    def _learnt(recent: RecentMedian, seconds: float, known: float) -> float:
        """The median of `recent` once it has enough values, or if no value was known before."""
        recent.add(seconds)
        return recent.median if len(recent) >= ENOUGH or not known else known
