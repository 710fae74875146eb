"""Candidate: a drafter that a policy may choose, with its cost and its acceptance rates."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import cast

from localspec.control.acceptance import FIRST_GUESS, AcceptanceRates, ConfidenceTable, correctness
from localspec.control.drafter_cost import DrafterCost
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import ComputedDrafter, Drafter, Limit, backlog

# The weight of a new step in the moving average of the gain.
_GAIN_RATE = 0.1
# A drafter that does not pay is tried again after 1, 2, 4, ... steps, at most after this many.
_LONGEST_WAIT = 128
# A drafter that waits so many steps has failed in this text.
_FAILED = 8


class Candidate:
    """A drafter, and what the policy has learnt about it.

    gain: the moving average of the time that a step with its draft saves, in plain steps; below 0
        where drafting costs time.
    exploration_budget: the seconds that may be spent to learn its acceptance rate, as collected
        since its last draft.
    reports_confidence: whether the drafter calls `Limit.go_on` for each token; known after its
        first draft.
    cheap: see Traits. A cheap drafter is asked at every step, so every draft of it is scored.
    """

    def __init__(self, drafter: Drafter, cost: DrafterCost, guess: float = FIRST_GUESS) -> None:
        self.drafter = drafter
        self.cost = cost
        self.reports_confidence = False
        self.cheap = drafter.traits.cheap
        self.acceptance_rates = AcceptanceRates(guess)
        self._guess = guess
        self.gain = 0.0
        self.exploration_budget = 0.0
        self._confidence_table = ConfidenceTable()
        self._chances = drafter.traits.chances
        self._margins: list[float] = []
        self._shadow: Draft | None = None
        self._waited = 0
        self._wait = 1
        # Whether the drafter has drafted nothing in this text.
        self._idle = False
        self._texts_waited = 0
        self._wait_texts = 1

    @property
    def backlog(self) -> int:
        """The number of text tokens that the drafter must evaluate before it can draft."""
        return backlog(self.drafter)

    def survivals(self, limit: Limit) -> list[float]:
        """The probabilities that the first 1, 2, ... tokens of a draft now are all accepted."""
        if self._chances:
            chances = self._chances(limit.depth)
        elif self.cheap:
            # Cheap drafters run no model.
            self._shadow = cast(ComputedDrafter, self.drafter).propose(limit)
            chances = self.acceptance_rates.chances(len(self._shadow))
        else:
            chances = self.acceptance_rates.chances(limit.depth)
        return list(accumulate(chances, mul))

    def shadow_draft(self, depth: int) -> Draft | None:
        """The draft that `survivals` requested to estimate its chances, cut to `depth`; or None."""
        return self._shadow.first(depth) if self._shadow is not None else None

    def begin_text(self) -> None:
        """Start another text. A drafter that failed in the last text may do better in this one.

        In the 1st, 4th, 13th, ... text after a failure, the drafter starts again from its first
        acceptance rates. Not in every text, as each trial costs time.
        """
        failed = self._wait >= _FAILED or (self._idle and self.gain < 0)
        self._idle = True
        if self.cheap or not failed:
            return
        self._texts_waited += 1
        if self._texts_waited >= self._wait_texts:
            self.acceptance_rates = AcceptanceRates(self._guess)
            self._waited, self._wait = 0, 1
            self._texts_waited, self._wait_texts = 0, 3 * self._wait_texts

    # While it drafts.

    def start_draft(self, slowdown: float, clock: Callable[[], float]) -> "DraftTimer":
        """Return a timer for a draft that starts now.

        slowdown: PassCosts.reading_slowdown. clock: returns the time in seconds.
        """
        self.exploration_budget = 0.0
        self._idle = False
        self._margins = []
        return DraftTimer(self.cost, self.backlog, slowdown, clock)

    def add_margin(self, margin: float) -> float:
        """Record a token drawn with this margin; return the probability that it is accepted."""
        self.reports_confidence = True
        self._margins.append(margin)
        return self._confidence_table.chance(margin, self.acceptance_rates.pooled)

    # After a step.

    def learn(self, drafted: Sequence[int], tokens: Sequence[int]) -> None:
        """Learn from the `drafted` tokens, where `tokens` were committed."""
        for position, right in enumerate(correctness(drafted, tokens)):
            self.acceptance_rates.learn(position, right)
            if position < len(self._margins):
                self._confidence_table.learn(self._margins[position], right)
        self._margins = []
        self._shadow = None

    def score_shadow_draft(self, tokens: Sequence[int]) -> None:
        """Score its shadow draft, although it did not draft in this step. tokens: committed."""
        if self._shadow is not None:
            self.learn(self._shadow.tokens, tokens)

    def learn_gain(self, plain_tokens: float) -> None:
        """Learn the gain of a step with its draft: the time saved, in plain steps."""
        self.gain += _GAIN_RATE * (plain_tokens - self.gain)

    # Trials of a drafter that does not pay.

    def is_trial_due(self) -> bool:
        """Whether to try the drafter although it does not seem to pay; call it once per step."""
        self._waited += 1
        return self._waited > self._wait

    def end_trial(self, *, paid: bool) -> None:
        """End a trial. paid: whether its step was faster than plain decoding."""
        self._waited = 0
        self._wait = 1 if paid else min(2 * self._wait, _LONGEST_WAIT)
        if paid:
            self._wait_texts = 1


class DraftTimer:
    """Measures the seconds of each token of one draft, for the drafter's cost."""

    def __init__(
        self, cost: DrafterCost, backlog: int, slowdown: float, clock: Callable[[], float]
    ) -> None:
        self._cost = cost
        self._backlog = backlog
        self._slowdown = slowdown
        self._count = 0
        self._clock = clock
        self._last = clock()

    def tick(self) -> None:
        """Record that a token was drawn just now."""
        now = self._clock()
        if self._count:
            self._cost.learn_further(now - self._last)
        else:
            self._cost.learn_first(now - self._last, self._backlog, self._slowdown)
        self._count += 1
        self._last = now
