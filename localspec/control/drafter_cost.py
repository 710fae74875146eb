"""Drafter cost: seconds of a drafter's tokens, learnt while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.control.base_costs import WIDEST
from localspec.control.pass_costs import PassCosts
from localspec.control.recent_median import ENOUGH, RecentMedian

# Texts that share nothing are drafted for one after the other.
_NOTHING_SHARED = {1: 1.0, WIDEST: float(WIDEST)}
# With a shorter backlog, the time of each of its tokens is too uncertain to be learnt.
_LONG_BACKLOG = 16
# Each token of a backlog up to this takes another time than one of a longer backlog.
_FEW = 80


@dataclass(slots=True)
class DrafterCost:
    """Seconds that a drafter takes.

    first: the first token of a draft, with a backlog of one or two tokens. further: each token
    after the first. reading: each token of a longer backlog; also of one of few tokens, until that
    is learnt by itself. change: what a longer backlog costs besides, on a GPU (see WidthChanges).
    These are of a text that drafts alone.

    Where several texts draft, a decode has a row of each. similar: seconds by rows of similar
    decodes, those of the target, from which their cost is guessed until it is learnt.

    Where all tokens come from one pass (Traits.parallel), `first` and `further` tell what the pass
    takes until it is learnt by its rows. Then `further` is what drawing a token takes.
    """

    first: float = 0.0
    further: float = 0.0
    reading: float = 0.0
    similar: Mapping[int, float] = field(default_factory=lambda: _NOTHING_SHARED)
    change: float = 0.0
    _first: RecentMedian = field(default_factory=RecentMedian)
    _further_seen: int = 0
    _decodes: PassCosts | None = None
    _reading: RecentMedian = field(default_factory=RecentMedian)
    _reading_few: RecentMedian = field(default_factory=RecentMedian)
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

    def part(self, texts: int) -> float:
        """What each of so many texts pays of a decode, as a part of one for a single text."""
        if texts == 1:
            return 1.0
        decodes = self._shared_decodes()
        return min(1.0, max(1 / texts, decodes.seconds(texts) / decodes.seconds(1) / texts))

    def catch_up_seconds(self, backlog: int, slowdown: float = 1.0) -> float:
        """Seconds to evaluate a backlog of tokens, except the two that `first` includes.

        slowdown: PassCosts.reading_slowdown.
        """
        return self.reading_seconds(max(0, backlog - 2), slowdown)

    def reading_seconds(self, tokens: int, slowdown: float = 1.0) -> float:
        """Seconds to evaluate this many tokens of text. slowdown: PassCosts.reading_slowdown."""
        few, each = self._reading_few, self.reading
        if tokens <= _FEW and len(few) >= ENOUGH:
            each = few.median
        return slowdown * tokens * each + (self.change if tokens else 0.0)

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
            self.first = self._learnt(self._first, seconds / self.part(texts), self.first)
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
        return self._further_seen >= ENOUGH

    def learn_further(self, seconds: float, texts: int = 1) -> None:
        """Learn from one further token, whose decode so many texts share."""
        self._further_seen += 1
        if not self.further:
            self.further, self._decodes = seconds / self.part(texts), None
        if self.further:
            decodes = self._shared_decodes()
            decodes.learn(texts, texts * seconds)
            self.further = decodes.seconds(1)

    def _shared_decodes(self) -> PassCosts:
        """Seconds of decodes of further tokens, by the texts that share them."""
        if self._decodes is None:
            scale = (self.further or 1.0) / self.similar[1]
            guess = {rows: scale * seconds for rows, seconds in self.similar.items()}
            self._decodes = PassCosts(guess, pads=False)
        return self._decodes

    def _learn_reading(self, seconds: float, backlog: int, slowdown: float) -> None:
        each = max(0.0, seconds - self.change) / (backlog - 2) / slowdown
        if backlog <= _FEW:
            self._reading_few.add(each)
        if backlog > _FEW or not self.reading:
            self.reading = self._learnt(self._reading, each, self.reading)

    @staticmethod
    def _learnt(recent: RecentMedian, seconds: float, known: float) -> float:
        """The median of `recent` once it has enough values, or if no value was known before."""
        recent.add(seconds)
        return recent.median if len(recent) >= ENOUGH or not known else known
