"""Drafter cost: seconds of a drafter's tokens, learnt while running."""

from dataclasses import dataclass, field

from localspec.control.recent_median import ENOUGH, RecentMedian


@dataclass(slots=True)
class DrafterCost:
    """Seconds a drafter takes.

    first: the first token of a proposal, what it has to catch up on included. further: each token
    after it. backlog: each token of text it has not seen, beyond the usual one or two.
    """

    first: float = 0.0
    further: float = 0.0
    backlog: float = 0.0
    _first: RecentMedian = field(default_factory=RecentMedian)
    _further: RecentMedian = field(default_factory=RecentMedian)
    _backlog: RecentMedian = field(default_factory=RecentMedian)

    def of(self, depth: int) -> float:
        """Of a proposal so deep."""
        return self.first + (depth - 1) * self.further

    def catching_up(self, behind: int, growth: float = 1.0) -> float:
        """Of the tokens before that, so many behind the text; `growth` as of PassCosts."""
        return self.reading(max(0, behind - 2), growth)

    def reading(self, tokens: int, growth: float = 1.0) -> float:
        """Of taking in so much text; `growth` as of PassCosts."""
        return growth * tokens * self.backlog

    def learn_whole(self, seconds: float, tokens: int, *, cheap: bool) -> None:
        """A proposal of so many tokens took this long; a cheap one does, whatever its depth."""
        self.learn_first(seconds if cheap else seconds / tokens, 0)
        self.learn_further(0.0 if cheap else seconds / tokens)

    def learn_first(self, seconds: float, behind: int, growth: float = 1.0) -> None:
        """The first token came after so long, so many tokens behind; `growth` as of PassCosts."""
        if behind <= 2:
            self.first = self._learnt(self._first, seconds, self.first)
        elif behind >= 16:  # fewer say nothing
            each = max(0.0, seconds - self.first) / (behind - 2) / growth
            self.backlog = self._learnt(self._backlog, each, self.backlog)

    @property
    def knows_further(self) -> bool:
        """Whether it was seen while decoding what a further token takes."""
        return len(self._further) >= ENOUGH

    def learn_further(self, seconds: float) -> None:
        """One more token took so long."""
        self.further = self._learnt(self._further, seconds, self.further)

    @staticmethod
    def _learnt(recent: RecentMedian, seconds: float, known: float) -> float:
        """The median, once there is enough of it; what was known before, if anything was."""
        recent.add(seconds)
        return recent.median if len(recent) >= ENOUGH or not known else known
