"""Drafter cost: seconds of a drafter's tokens, learnt while it runs."""

from dataclasses import dataclass, field

from localspec.control.joint_drafting import Sharing
from localspec.control.pass_costs import WIDEST, PassCosts
from localspec.control.recent_median import ENOUGH, RecentMedian

# With a shorter backlog, the time of each of its tokens is too uncertain to be learnt.
_LONG_BACKLOG = 16


@dataclass(slots=True)
class DrafterCost:
    """Seconds that a drafter takes.

    first: the first token of a draft, with a backlog of one or two tokens. further: each token
    after the first. reading: each token of a longer backlog. These are of a text that drafts alone.
    sharing: what each of several texts pays of a decode that they share.

    Where all tokens come from one pass (Traits.parallel), `first` and `further` tell what the pass
    takes until it is learnt by its rows. Then `further` is what drawing a token takes.
    """

    first: float = 0.0
    further: float = 0.0
    reading: float = 0.0
    sharing: Sharing = field(default_factory=Sharing)
    _first: RecentMedian = field(default_factory=RecentMedian)
    _further: RecentMedian = field(default_factory=RecentMedian)
    _reading: RecentMedian = field(default_factory=RecentMedian)
    _passes: PassCosts | None = None

    def of(self, depth: int) -> float:
        """Seconds of a draft of `depth` tokens."""
        drawn = self._passes.seconds(depth) if self._passes else self.first
        return drawn + (depth - 1) * self.further

    def table(self, deepest: int) -> list[float]:
        """`of` every depth from 0, which takes no time, to `deepest`."""
        drawn = self._passes.table if self._passes else [self.first] * (deepest + 1)
        return [
            0.0,
            *(
                seconds + (depth - 1) * self.further
                for depth, seconds in enumerate(drawn[1 : deepest + 1], start=1)
            ),
        ]

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

    def learn_first(
        self, seconds: float, backlog: int, slowdown: float = 1.0, texts: int = 1
    ) -> None:
        """Learn from the first token of a draft, with this backlog before it.

        slowdown: PassCosts.reading_slowdown. texts: how many texts share its decode.
        """
        if backlog <= 2:
            self.first = self._learnt(self._first, seconds, self.first, texts)
        elif backlog >= _LONG_BACKLOG:
            self._learn_reading(seconds - self.first, backlog, slowdown)

    def learn_pass(self, seconds: float, rows: int, backlog: int, slowdown: float = 1.0) -> None:
        """Learn from the pass of a whole draft, with a row for each token.

        A backlog of more than two tokens is read in the same pass. slowdown: as in `learn_first`.
        """
        if backlog >= _LONG_BACKLOG:
            self._learn_reading(seconds - self.of(rows), backlog, slowdown)
            return
        if self._passes is None:
            known = {1: self.of(1) or seconds, WIDEST: self.of(WIDEST) or seconds}
            self._passes, self.further = PassCosts(known), 0.0
        self._passes.learn(rows, seconds - self.catch_up_seconds(backlog, slowdown))

    @property
    def knows_further(self) -> bool:
        """Whether enough further tokens were measured while decoding."""
        return len(self._further) >= ENOUGH

    def learn_further(self, seconds: float, texts: int = 1) -> None:
        """Learn from one further token, whose decode so many texts share."""
        self.further = self._learnt(self._further, seconds, self.further, texts)

    def _learn_reading(self, seconds: float, backlog: int, slowdown: float) -> None:
        each = max(0.0, seconds) / (backlog - 2) / slowdown
        self.reading = self._learnt(self._reading, each, self.reading)

    def _learnt(self, recent: RecentMedian, seconds: float, known: float, texts: int = 1) -> float:
        """The median of `recent` once it has enough values, or if no value was known before.

        What tokens cost alone is known, as a rule, before several texts share their decodes.
        """
        if texts > 1 and known:
            self.sharing.learn(texts, seconds / known)
            return known
        recent.add(seconds / self.sharing.part(texts))
        return recent.median if len(recent) >= ENOUGH or not known else known
