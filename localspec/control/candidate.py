"""Candidate: a drafter that a policy may choose, with its cost and its acceptance rates."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import cast

from localspec.control.acceptance import (
    FIRST_GUESS,
    NO_PRIOR,
    AcceptancePrior,
    AcceptanceRates,
    ConfidenceTable,
    DraftCounts,
    Tally,
    correctness,
    from_end_name,
)
from localspec.control.drafter_cost import DrafterCost
from localspec.control.joint_drafting import Drafting
from localspec.control.looking import gain_of_looking
from localspec.control.overlap import Overlap
from localspec.control.pause import Pause
from localspec.control.row_budget import Offer, RowShare
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import ComputedDrafter, Drafter, Limit, backlog, ready_for
from localspec.speculation.policy import may_draft

# The weight of a new step in the moving average of the gain.
_GAIN_RATE = 0.1
# A drafter that does not pay is tried again after 1, 2, 4, ... steps, at most after this many.
_LONGEST_WAIT = 128
# A drafter of which so many tokens were seen is known.
_KNOWN = 12
# What it drafts behind the end of a prompt tells as much as so many tokens of what it drafts behind
# all of it, and the other way round.
_OF_OTHER_WAY = 4.0
# A drafter that waits so many steps has failed in this text.
_FAILED = 8
# To learn a drafter's acceptance rate, reading a prompt may take this share of the time of plain
# decoding; the smaller one after its first draft. With fewer tokens to come it cannot be learnt.
_EXPLORATION_SHARE, _KNOWN_SHARE = 0.02, 0.005
# What was saved up for that in earlier texts may take this share of one text's.
_SAVED_SHARE = 0.15
_FEWEST_TOKENS = 24
# Where reading a prompt did not pay, it hardly does in the next steps.
_PAUSE = 4
# How likely the first token of a copy must be to be asked about in a round in which texts rest,
# where its row does not pay sooner, and how much likelier than when it was asked last.
_LIKELY, _LIKELIER = 0.5, 0.1
# A head may read hidden rows for as long as so many plain steps take, before its drafts save time.
_MOST_READING = 4.0


class Candidate:
    """A drafter, and what the policy has learnt about it.

    from_end: as in Limit. Then it is another candidate, beside the drafter that reads all: it has
        rates of its own, and there must be something to leave out. other_way: the other candidate.
    gain: the moving average of the time that a step with its draft saves, in plain steps; below 0
        where drafting costs time.
    reports_confidence: whether the drafter calls `Limit.go_on` for each token; known after its
        first draft.
    parallel: see Traits. counts: of all its drafts. overlap: of its drawing ahead, if it can.
    is_shown: whether it was shown the hidden rows of the last step, if it reads them.
    cheap: see Traits. A cheap drafter is asked at every step, so every draft of it is scored.
    """

    def __init__(
        self,
        drafter: Drafter,
        cost: DrafterCost,
        prior: AcceptancePrior = NO_PRIOR,
        *,
        from_end: bool = False,
    ) -> None:
        self.from_end = from_end
        self.other_way: Candidate | None = None
        self.move_to(drafter, cost)
        usual = prior.rates.get(drafter.name, FIRST_GUESS)
        self._guess = guess = prior.rates.get(self.name, usual)
        self._earlier = earlier = prior.counts.get(self.name)
        self.reports_confidence = earlier is not None and earlier.reports_confidence
        self.acceptance_rates = AcceptanceRates(guess, earlier)
        self.counts = DraftCounts()
        self.overlap = Overlap()
        self.gain = 0.0
        self._exploration_budget = 0.0
        self._pause: Pause | None = None
        self._confidence_table = ConfidenceTable(earlier)
        self._margins: list[float] = []
        # What reading took since it last paid.
        self.is_shown = True
        self._unpaid = 0.0
        self._stopped = self._resumed = False
        self._first_chance = self._found_chance = 0.0
        self._waited = 0
        self._wait = 1
        # Whether the drafter has drafted nothing in this text.
        self._idle = False
        self._texts_waited, self._wait_texts = 0, 1

    def move_to(self, drafter: Drafter, cost: DrafterCost) -> None:
        """Go on with what was learnt, for the same drafter in another text."""
        self.drafter, self.cost = drafter, cost
        traits = drafter.traits
        self.cheap, self.parallel = traits.cheap, traits.parallel
        self._chances, self._deepest = traits.chances, traits.deepest
        self._reads_hidden, self._only_last_row = bool(traits.reads_hidden), traits.only_last_row
        self._shadow: Draft | None = None

    @property
    def name(self) -> str:
        """Tells candidates apart: the drafter's name, or one for what drafts from the end."""
        return from_end_name(self.drafter.name) if self.from_end else self.drafter.name

    @property
    def backlog(self) -> int:
        """The number of text tokens that the drafter must evaluate before it can draft."""
        return backlog(self.drafter, from_end=self.from_end)

    def has_prompt_to_read(self, generated: int) -> bool:
        """Whether its backlog is of the prompt, too. generated: the tokens of the answer."""
        return (self.from_end and self._idle) or self.backlog > generated

    @property
    def is_known(self) -> bool:
        """Whether some of its tokens were seen, here, in other texts, or in earlier runs."""
        earlier = self._earlier.total.tried if self._earlier else 0.0
        return self.acceptance_rates.observed + earlier >= _KNOWN

    @property
    def known(self) -> Tally:
        """Its tokens that were seen lately, or else in earlier runs."""
        seen = self.acceptance_rates.seen
        return seen if seen.tried or not self._earlier else self._earlier.total

    @property
    def ready(self) -> int:
        """How many tokens of its next draft are drawn already."""
        return ready_for(self.drafter, from_end=self.from_end)

    def drafting(self, deepest: int, unread: float = 0.0) -> Drafting:
        """What drafts of every depth from 0 to `deepest` take; ready tokens take no time.

        unread: see Drafting.
        """
        if drawn := self.ready:
            alone = [max(0, depth - drawn) * self.cost.further for depth in range(deepest + 1)]
        else:
            alone = self.cost.table(deepest)
        # Passes that draw a whole draft have as many rows as it has tokens, in each text.
        computer = None if self.parallel else self.drafter.traits.computer
        return Drafting(alone, computer and computer(), self.cost, unread, self.name)

    def savings(self, survivals: Sequence[float], passes: Sequence[float]) -> list[float]:
        """See Overlap; empty for a drafter that draws no tokens ahead."""
        if self.drafter.traits.ready is None or not survivals:
            return []
        return self.overlap.savings(survivals, passes, self.cost, self.ready)

    def depth(self, limit: Limit) -> int:
        """The most tokens that it can draft within this limit."""
        return min(limit.depth, self._deepest or limit.depth)

    def survivals(self, limit: Limit) -> list[float]:
        """The probabilities that the first 1, 2, ... tokens of a draft now are all accepted."""
        depth = self.depth(limit)
        if self._chances:
            chances = self._chances(limit.to(depth))
        elif self.cheap:  # it runs no model
            self._shadow = cast(ComputedDrafter, self.drafter).propose(limit)
            chances = self.acceptance_rates.chances(len(self._shadow))
        else:
            chances = self.acceptance_rates.chances(depth)
        survivals = list(accumulate(chances, mul))
        # What was found in a rest counts too, or a chance that comes and goes is found again.
        self._first_chance = max([self._found_chance, *survivals[:1]])
        self._found_chance = 0.0
        return survivals

    @property
    def is_shown_for_trial(self) -> bool:
        """Whether it was shown a row for a trial, which must come now."""
        return self._stopped and self.is_shown

    def has_likely_copy(self, limit: Limit, row: float = 1.0, *, place: int = 1) -> bool:
        """Whether it must be asked in a rest: the token at this place of its draft is likely now.

        row: the cost of a further row, in plain passes.
        """
        if self._stopped or not self.cheap or limit.depth < place:
            return False
        before = self._first_chance
        survivals = self.survivals(limit.to(place))
        now, self._first_chance = survivals[-1] if len(survivals) == place else 0.0, before
        self._found_chance = now if now >= max(min(_LIKELY, row), before + _LIKELIER) else 0.0
        return self._found_chance > 0

    def rest(self, others: Sequence[Offer]) -> None:
        """Rest in this round. Trials and pauses end as soon as if it were asked.

        others: the offers of the other texts.
        """
        self._waited += not self._stopped
        self.take_pause(others)

    def learn_from_others(self, rows: RowShare) -> None:
        """What other texts see of it is what this one expects before it has seen much.

        rows: of this text.
        """
        name, rates = self.name, self.acceptance_rates
        # One that begins anew has seen nothing yet, but the text before it has.
        if rates.seen.tried:
            rows.seen[name] = rates.seen
        others = rows.seen_by_others(name)
        if self.other_way:
            others.extend(self.other_way.known.few(_OF_OTHER_WAY))
        rates.expect(others)

    def shadow_draft(self, depth: int) -> Draft | None:
        """The draft that `survivals` requested to estimate its chances, cut to `depth`; or None."""
        return self._shadow.first(depth) if self._shadow is not None else None

    def begin_text(self) -> None:
        """Start another text. A drafter that failed in the last text may do better in this one.

        In the 1st, 4th, 13th, ... text after a failure, the drafter starts again from its first
        acceptance rates. Not in every text, as each trial costs time.
        """
        failed = self._wait >= _FAILED or self._stopped or (self._idle and self.gain < 0)
        self._idle, self._resumed = True, False
        self._pause = None
        if failed and not self.cheap:
            self._begin_after_failure()
        self.is_shown = not self._stopped

    def _begin_after_failure(self) -> None:
        self._texts_waited += 1
        if self._texts_waited >= self._wait_texts:
            self.acceptance_rates = AcceptanceRates(self._guess, self._earlier)
            self._waited, self._wait = 0, 1
            self._texts_waited, self._wait_texts = 0, 3 * self._wait_texts
            self._resumed, self._stopped, self._unpaid = self._stopped, False, 0.0

    # Reading the prompt, before its first draft.

    def collect(self, seconds: float) -> None:
        """Save up from the time of plain decoding, to learn its acceptance rate some time."""
        share = _KNOWN_SHARE if self.reports_confidence else _EXPLORATION_SHARE
        self._exploration_budget += share * seconds

    def affordable(self, tokens: float, plain: float) -> float:
        """Seconds in which it may read to learn its acceptance rate, as saved since its last draft.

        tokens: the expected number of further ones. plain: seconds of each without drafts. Texts
        that are written at the same time learn for each other, so each has its share of them.
        """
        if tokens < _FEWEST_TOKENS:
            return 0.0
        coming = 0.0 if self.reports_confidence else _EXPLORATION_SHARE * tokens * plain
        return min(self._exploration_budget, _SAVED_SHARE * tokens * plain) + coming

    def pause(
        self, others: Sequence[Offer], survivals: Sequence[float], drafting: Drafting
    ) -> None:
        """Do not ask for some steps whether to read. others: the offers of the other texts.

        survivals, drafting: what it would draft, see Offer.
        """
        self._pause = Pause(_PAUSE, self._company(others), survivals, drafting)

    def take_pause(self, others: Sequence[Offer]) -> Pause | None:
        """Take a step of the pause, if there is one. A text alone makes none."""
        pause = self._pause
        if not others or not pause or not pause.steps or pause.company != self._company(others):
            return None
        self._pause = pause._replace(steps=pause.steps - 1)
        return pause

    def _company(self, others: Sequence[Offer]) -> tuple[int, int]:
        return len(others), sum(self.name in each.read for each in others)

    # Reading hidden rows, which a head must be shown whether it drafts or not.

    @property
    def reads(self) -> bool:
        """Whether to show it the hidden rows of this step.

        A head that has not paid for long is shown none for the rest of the text. One that needs the
        last row alone is shown it before its next trial.
        """
        return not self._stopped or (self._only_last_row and self._waited >= self._wait)

    def may_draft(self, limit: Limit) -> bool:
        """Whether it can draft in this step, and has the time to read what it must read first."""
        return self.is_shown and may_draft(self.drafter, limit, from_end=self.from_end)

    def resume(self, seconds: float, affordable: float) -> None:
        """Stop again if it would cost much to read what it has missed in earlier texts.

        seconds: the target evaluates those tokens again. affordable: the most seconds.
        """
        if self._resumed and seconds > affordable:
            self._stopped, self.is_shown = True, False

    def learn_reading(self, reading: Mapping[str, float], plain: float, *, drafted: bool) -> None:
        """Charge it for the hidden rows of a step.

        reading: see Step. plain: as in LossBudget. drafted: whether it drafted in this step.
        """
        if not self._reads_hidden:
            return
        missed, self.is_shown = not self.is_shown, self.drafter.name in reading
        if self._stopped and missed:
            self._waited += 1
        elif self._stopped and not drafted:
            # It could have been tried, but that was not affordable.
            self.end_trial(paid=False)
        self._unpaid += reading.get(self.drafter.name, 0.0)
        if self._unpaid > _MOST_READING * plain:
            self._stopped = True

    # While it drafts.

    def start_draft(self) -> None:
        """Note that a draft starts now."""
        self._exploration_budget = 0.0
        self._idle = False
        self._margins = []

    def add_margin(self, margin: float) -> float:
        """Record a token drawn with this margin; return the probability that it is accepted."""
        self.reports_confidence = True
        self._margins.append(margin)
        position = len(self._margins) - 1
        return self._confidence_table.chance(margin, self.acceptance_rates.pooled, position)

    def gain_of_looking(self, passes: Sequence[float], deepest: int) -> float:
        """Seconds that it gains to draw one token, whose confidence decides about the rest.

        passes: seconds by rows, entry 0 unused. deepest: the most tokens of the draft. 0 if the
        drafter reports no confidence, draws all tokens at once, or may draw none.
        """
        if not self.reports_confidence or self.parallel or not deepest:
            return 0.0
        outcomes = self._confidence_table.outcomes(self.acceptance_rates.pooled)
        behind, cost = self.acceptance_rates.chances(deepest)[1:], self.cost
        return gain_of_looking(outcomes, behind, passes, cost.first, cost.further)

    # After a step.

    def learn(self, drafted: Sequence[int], tokens: Sequence[int]) -> None:
        """Learn from the `drafted` tokens, where `tokens` were committed."""
        for position, right in enumerate(correctness(drafted, tokens)):
            self.acceptance_rates.learn(position, right)
            margin = self._margins[position] if position < len(self._margins) else None
            self.counts.add(position, right, margin)
            if margin is not None:
                self._confidence_table.learn(margin, right, position)
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

    def begins_trial(self) -> bool:
        """Whether a trial comes due in a rest; call it once per step. It is told once."""
        due = not self.cheap and self._waited == self._wait
        self._waited += due
        return due

    def is_trial_due(self, patience: float = 1.0, *, in_company: bool = False) -> bool:
        """Whether to try the drafter although it does not seem to pay; call it once per step.

        patience: how many times longer it waits. in_company: whether another text tries one now; a
        trial that is nearly due then comes at once, as rows and drafts cost less together.
        """
        self._waited += 1
        return self._waited > self._wait * patience * (0.5 if in_company else 1.0)

    def end_trial(self, *, paid: bool) -> None:
        """End a trial. paid: whether its step was faster than plain decoding."""
        self._waited = 0
        self._wait = 1 if paid else min(2 * self._wait, _LONGEST_WAIT)
        if paid:
            self._wait_texts = 1
            self._unpaid, self._stopped = 0.0, False
        elif self._stopped:
            # The row of a trial that failed is not for another one.
            self.is_shown = False
