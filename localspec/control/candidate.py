"""Candidate: a drafter a controller may choose, with what it costs and how often it is right."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from time import perf_counter

from localspec.control.acceptance import FIRST_GUESS, AcceptanceRates, ConfidenceTable, right_ones
from localspec.control.drafter_cost import DrafterCost
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, backlog

# How fast the gain of past drafts is forgotten.
_GAIN_RATE = 0.1
# Without success, a drafter that costs time is tried again after 1, 2, 4, ... steps, up to this.
_LONGEST_WAIT = 128
# One that waits this long has failed in this text.
_FAILED = 8


class Candidate:
    """One drafter's record.

    gain: what its drafts brought lately, in plain tokens' time per step, or below zero what they
    cost. curiosity: seconds that getting to know it may take, since it drafted last.
    """

    def __init__(self, drafter: Drafter, cost: DrafterCost, guess: float = FIRST_GUESS) -> None:
        self.drafter = drafter
        self.cost = cost
        # Whether it tells of its tokens one by one; known after its first draft.
        self.told = False
        # Cheap drafters may be asked at every step, and so are always scored.
        self.cheap = drafter.traits.cheap
        self.hazards = AcceptanceRates(guess)
        self._guess = guess
        self.gain = 0.0
        self.curiosity = 0.0
        self._confidence_table = ConfidenceTable()
        self._chances = drafter.traits.chances
        self._margins: list[float] = []
        self._shadow: Draft | None = None
        self._waited = 0
        self._wait = 1
        # Whether it drafted nothing in this text.
        self._idle = False
        self._texts_waited = 0
        self._wait_texts = 1

    @property
    def behind(self) -> int:
        """How many tokens of the text it has to take in before it can draft."""
        return backlog(self.drafter)

    def survivals(self, limit: Limit) -> list[float]:
        """The chance that 1, 2, ... of the tokens it would draft now are all right."""
        if self._chances:
            chances = self._chances(limit.depth)
        elif self.cheap:
            self._shadow = self.drafter.propose(limit)
            chances = self.hazards.chances(len(self._shadow))
        else:
            chances = self.hazards.chances(limit.depth)
        return list(accumulate(chances, mul))

    def ready(self, depth: int) -> Draft | None:
        """The draft `survivals` was about, if it had to be made for that."""
        return self._shadow.first(depth) if self._shadow is not None else None

    def begins(self) -> None:
        """Another text: where it failed in those before, that may be over.

        Then it is taken for what it was before anything was known of it; in the 1st, 4th, 13th, ...
        text after one in which it failed, as each trial costs time.
        """
        failed = self._wait >= _FAILED or (self._idle and self.gain < 0)
        self._idle = True
        if self.cheap or not failed:
            return
        self._texts_waited += 1
        if self._texts_waited >= self._wait_texts:
            self.hazards = AcceptanceRates(self._guess)
            self._waited, self._wait = 0, 1
            self._texts_waited, self._wait_texts = 0, 3 * self._wait_texts

    # While it drafts.

    def starts(self, growth: float) -> "Clock":
        """A clock for its coming draft; `growth` as of PassCosts."""
        self.curiosity = 0.0
        self._idle = False
        self._margins = []
        return Clock(self.cost, self.behind, growth)

    def sees(self, margin: float) -> float:
        """A token was drawn with this margin: the chance that it is right."""
        self.told = True
        self._margins.append(margin)
        return self._confidence_table.chance(margin, self.hazards.pooled)

    # Afterwards.

    def learn(self, drafted: Sequence[int], tokens: Sequence[int]) -> None:
        """It drafted these, and these were committed."""
        for position, right in enumerate(right_ones(drafted, tokens)):
            self.hazards.learn(position, right)
            if position < len(self._margins):
                self._confidence_table.learn(self._margins[position], right)
        self._margins = []
        self._shadow = None

    def learn_from_afar(self, tokens: Sequence[int]) -> None:
        """Another one drafted, or none; what it would have drafted may be known all the same."""
        if self._shadow is not None:
            self.learn(self._shadow.tokens, tokens)

    def gained(self, plain_tokens: float) -> None:
        """A step with its draft brought so much, against plain steps."""
        self.gain += _GAIN_RATE * (plain_tokens - self.gain)

    # Trying again what does not pay.

    def is_due(self) -> bool:
        """Whether to try it, though by what is known it does not pay; asked once per step."""
        self._waited += 1
        return self._waited > self._wait

    def tried(self, *, paid: bool) -> None:
        """A trial is over."""
        self._waited = 0
        self._wait = 1 if paid else min(2 * self._wait, _LONGEST_WAIT)
        if paid:
            self._wait_texts = 1


class Clock:
    """Times the tokens of one draft as they come."""

    def __init__(self, cost: DrafterCost, behind: int, growth: float) -> None:
        self._cost = cost
        self._behind = behind
        self._growth = growth
        self._count = 0
        self._last = perf_counter()

    def tick(self) -> None:
        """Another token was drawn."""
        now = perf_counter()
        if self._count:
            self._cost.learn_further(now - self._last)
        else:
            self._cost.learn_first(now - self._last, self._behind, self._growth)
        self._count += 1
        self._last = now
