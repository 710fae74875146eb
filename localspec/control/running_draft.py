"""Running draft: the draft of the current step, and whether a further token is worth drawing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.control.candidate import Candidate
from localspec.control.draft_timer import DraftTimer
from localspec.control.joint_drafting import Drafting
from localspec.control.replays import replay_seconds
from localspec.control.round import Round
from localspec.control.round_plan import RoundPlan
from localspec.control.row_budget import RowShare

# Depths whose last token is accepted with a lower probability are not considered.
LEAST_SURVIVAL = 0.02
# So likely a token is if only what its pass takes can be against it.
LIKELY = 0.6


@dataclass(slots=True)
class Option:
    """The best depth of one candidate.

    plan: what all texts draft then. expected: the expected number of committed tokens. rate: tokens
    per second of all texts, by weight, without `reading`. survivals, drafting: as in Offer.
    reading: seconds to read the prompt and what was written since, before the first draft.
    catching_up: seconds to read the unread part of the answer, later. slowdown: see
    `PassCosts.reading_slowdown`.
    """

    candidate: Candidate
    plan: RoundPlan
    expected: float
    rate: float
    survivals: Sequence[float]
    drafting: Drafting
    reading: float
    catching_up: float
    slowdown: float

    @property
    def depth(self) -> int:
        """The tokens of the draft."""
        return self.plan.depth

    def of_one_token(self, round_: Round) -> "Option":
        """The same with one token: others pay for a trial too, and one tells enough."""
        passes, paid = round_.table(self.plan.others), round_.paid(self.plan, self.drafting)
        seconds = (self.plan.tokens + self.expected) / self.rate
        seconds -= passes[1 + self.depth] + paid[self.depth] - passes[2] - paid[1]
        plan, expected = self.plan._replace(depth=1), 1.0 + self.survivals[0]
        rate = (plan.tokens + expected) / seconds
        return replace(self, plan=plan, expected=expected, rate=rate)

    def gain_of_looking(self, passes: Sequence[float]) -> float:
        """As that of the candidate; 0 if it has the prompt to read."""
        if self.reading:
            return 0.0
        gain = self.candidate.gain_of_looking(passes, len(self.survivals))
        return gain - self.catching_up


class RunningDraft:
    """The draft of the current step, while the drafter draws it.

    plain_or_best_rate: tokens per second of the chosen step, or of plain decoding if that is more;
        a further token must bring more tokens per second than this.
    passes: seconds of a decode by the width of this text's pass. available: the most seconds that
        the step may take longer than a plain one. deepest: the most tokens of the draft. paid: see
        Round. takes_back: as in Limit. rows: the text's share. measures: whether one likely token
        is verified in any case, to see what its pass takes.
    reading, catching_up: see `Option`; only `catching_up` is charged to the loss budget.
    survivals: entry i is the probability that the first i + 1 drafted tokens are all accepted,
        estimated from the drafter's confidence in each.
    """

    def __init__(
        self,
        option: Option,
        plain_or_best_rate: float,
        passes: list[float],
        available: float,
        deepest: int,
        *,
        paid: Sequence[float],
        takes_back: int | None,
        clock: Callable[[], float],
        rows: RowShare,
        measures: bool = False,
    ) -> None:
        self.measures = measures
        self.candidate = candidate = option.candidate
        self.plain_or_best_rate = plain_or_best_rate
        self.reading, self.catching_up = option.reading, option.catching_up
        self.survivals: list[float] = []
        candidate.start_draft()
        self.timer = DraftTimer(candidate, deepest, option.slowdown, clock, rows)
        self.passes = passes
        self._ready, self._paid, self._takes_back = candidate.ready, paid, takes_back
        # The rates stay the same during one draft.
        self._acceptance_rates = candidate.acceptance_rates.chances(deepest)
        self._drafting = option.drafting
        self._available = available
        self._deepest = deepest
        self._survival = 1.0

    def cost_of(self, drafted: int) -> float:
        """Seconds of a draft of which so many tokens are drawn."""
        cost = self.candidate.cost
        if drafted < len(self._paid) and not self.candidate.parallel:
            return self._paid[drafted]
        if self._ready:
            return max(0, drafted - self._ready) * cost.further
        if not self.candidate.parallel:
            return cost.of(drafted)
        return cost.of(self._deepest) - (self._deepest - drafted) * cost.further

    def expected_seconds(self, drafted: int) -> float:
        """Seconds of the draft by now, with catching up."""
        return self.cost_of(max(1, drafted)) + self.catching_up

    def _seconds(self, drafted: int) -> float:
        """Seconds of the pass over such a draft, of drawing it, and of replays."""
        return self.passes[drafted + 1] + self.cost_of(drafted) + self._drafting.replay(drafted)

    def tokens_ahead(self, verified: int) -> int:
        """How many tokens to draw ahead while the target verifies so many."""
        if not verified or len(self._acceptance_rates) <= verified:
            return 0
        chance = self._acceptance_rates[verified]
        if len(self.survivals) > verified:
            chance = self.survivals[verified]
        elif self.survivals:
            chance *= self.survivals[-1]
        candidate, seconds = self.candidate, self.passes[verified + 1]
        return candidate.overlap.tokens(chance, verified, seconds, candidate.cost)

    def read_within(self, seconds: float) -> float:
        """Take `reading` for no longer than the whole draft took; returns it.

        One that is cancelled or proposes nothing has not read what it was expected to.
        """
        self.reading = min(self.reading, seconds)
        return self.reading

    def keep(self) -> int:
        """How many of the drawn tokens are worth verifying."""
        passes, rate = self.passes, self.plain_or_best_rate
        replays = replay_seconds(self.survivals, self._takes_back, passes)
        best, best_value, expected = 0, -rate * passes[1], 0.0
        for depth, survival in enumerate(self.survivals, start=1):
            expected += survival
            value = expected - rate * (passes[depth + 1] + replays[depth])
            if value > best_value:
                best, best_value = depth, value
        likely = self.measures and self.survivals[0] >= LIKELY
        return max(best, int(likely))

    def go_on(self, margin: float) -> bool:
        """Record a token drawn with this margin; return whether to draw another one."""
        self.timer.tick()
        self._survival *= self.candidate.add_margin(margin)
        self.survivals.append(self._survival)
        drafted = len(self.survivals)
        return (
            drafted < self._deepest
            and self._affordable(drafted + 1)
            and self._worth_drawing(drafted)
        )

    def _affordable(self, depth: int) -> bool:
        return self._seconds(depth) - self.passes[1] <= self._available

    def _worth_drawing(self, drafted: int) -> bool:
        """Whether another token pays, or is needed to measure the cost of a further token."""
        return not self.candidate.cost.knows_further or self._pays(drafted)

    def _pays(self, drafted: int) -> bool:
        """Whether some number of further tokens is worth its seconds."""
        now = self._seconds(drafted)
        expected, survival = 0.0, self._survival
        for more, rate in enumerate(self._acceptance_rates[drafted:], start=1):
            survival *= rate
            expected += survival
            if expected > self.plain_or_best_rate * (self._seconds(drafted + more) - now):
                return True
            if survival < LEAST_SURVIVAL:
                return False
        return False


def affordable_depth(
    survivals: Sequence[float], drafting: Drafting, round_: Round, most: float
) -> int:
    """How many tokens of a draft may be worth their seconds, and are within the budgets.

    survivals, drafting: as in Offer. most: how many seconds longer than a plain step it may take.
    """
    if not survivals:
        return 0
    passes, part = round_.table(), round_.part(drafting)
    for depth, survival in enumerate(survivals, start=1):
        seconds = passes[depth + 1] + drafting.seconds(depth, part)
        # What this decode has no room for, the next one may have: so it is offered.
        too_long = passes[1] + most < seconds < float("inf")
        if too_long or (depth > 1 and survival < LEAST_SURVIVAL):
            return depth - 1
    return len(survivals)
