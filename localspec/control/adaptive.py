"""AdaptivePolicy: which drafter drafts the next step, how deep, or none.

It weighs what a draft is likely to bring against what it costs in time, both learnt from the steps
before, and takes what promises the most tokens per second; plain decoding is always among the
choices. A loss_budget bounds what wrong guesses can cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from localspec.control.acceptance import FIRST_GUESS
from localspec.control.candidate import Candidate, Clock
from localspec.control.cost_model import CostModel
from localspec.control.loss_budget import LossBudget
from localspec.control.pass_costs import WIDEST
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.policy import PLAIN_STEP, Decision, Step, may_draft

# Drafting has to promise this much more than plain decoding: estimates err.
_WORTH_IT = 1.02
# Beyond the chance of so little, deeper tokens are not looked at.
_HOPELESS = 0.02
# While drafting, the cost of a plain step is measured again after so many steps without one; as
# often as the second says, when there is reason to think that it has changed.
_PLAIN_EVERY = 256
_PLAIN_AT_MOST_EVERY = 4
# A drafter's reading of the prompt is not held against its first step, but weighed as an
# investment: it may cost what the coming tokens can save. To get to know a drafter it may cost this
# share of the time that they and all tokens without it take; less of it once it is known a little.
_CURIOSITY, _KNOWN = 0.02, 0.005
# Fewer tokens tell too little of it.
_TELLING = 24
# However many tokens a text may have, most end by themselves. So many are expected at first, then
# as many as the last ones had; and once it is long, as many again.
_USUAL = 128.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a step was decided as it was; rates in tokens per second."""

    drafter: str | None
    depth: int
    expected: float
    rate: float
    plain_rate: float
    reason: str


Explain = Callable[[Explanation], None]


@dataclass(slots=True)
class _Option:
    """The best depth of one candidate. rate: tokens per second, `reading` set aside. catching_up:
    seconds it will take to read what was written since. growth: by which both are more than in a
    short text.
    """

    candidate: Candidate
    depth: int
    expected: float
    rate: float
    reading: float
    catching_up: float
    growth: float


class AdaptivePolicy:
    """A Policy that drafts when, and as deep as, it pays.

    drafters: the cheap ones first; ties go to the earlier. costs: shared by the policies of a
    sequence.
    deepest: the most tokens of a draft. guesses: how often each one's tokens are right, by name,
    where something is known of it. explain: told of each decision, if given.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        costs: CostModel,
        *,
        deepest: int = WIDEST - 1,
        guesses: Mapping[str, float] | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.drafters = drafters
        self.explain = explain
        self._deepest = min(deepest, WIDEST - 1)
        self.loss_budget = LossBudget()
        self.candidates = [
            Candidate(
                drafter,
                costs.drafter(drafter.name),
                (guesses or {}).get(drafter.name, FIRST_GUESS),
            )
            for drafter in drafters
        ]
        self._passes = costs.passes
        self._drafting: _Drafting | None = None
        self._since_plain = 0
        self._generated = 0
        self._usual = _USUAL

    def begin(self) -> None:
        """A generation starts; what is learnt stays, but for what failed in the last ones."""
        if self._generated:
            self._usual = (self._usual + self._generated) / 2
        self._generated = 0
        for candidate in self.candidates:
            candidate.begins()

    def padded(self, rows: int) -> int:
        """With how many rows a pass over `rows` is quickest, up to that of the deepest draft."""
        return max(rows, min(self._passes.padded(rows), self._deepest + 1))

    def decide(self, limit: Limit) -> Decision:
        """The step that promises the most tokens per second."""
        passes = self._passes.table
        plain = passes[1]
        left = min(limit.depth + 1, self._usual + self._generated)
        limit = limit.to(min(limit.depth, self._deepest))
        self._drafting = None
        options = [
            option
            for candidate in self.candidates
            if limit.depth
            and may_draft(candidate.drafter, limit)
            and (option := self._option(candidate, limit, left, passes))
        ]
        chosen, reason = self._chosen(options, plain)
        if self.explain:
            self.explain(_explanation(chosen, plain, reason))
        if chosen is None:
            return PLAIN_STEP
        return self._start(chosen, limit, max(chosen.rate, 1 / plain), passes)

    def keep(self, draft: Draft) -> int:
        """How many of the drafted tokens are worth the target's time."""
        drafting = self._drafting
        if drafting is None or not drafting.survivals:
            return len(draft)
        passes = drafting.passes
        best, most, expected = 0, -drafting.price * passes[1], 0.0
        for depth, survival in enumerate(drafting.survivals, start=1):
            expected += survival
            value = expected - drafting.price * passes[depth + 1]
            if value > most:
                best, most = depth, value
        return best

    def learn(self, step: Step) -> None:
        """Costs, acceptance and the loss_budget."""
        # What drafts make the passes after them evaluate again is a price of drafting.
        if step.verified or not step.again:
            self._passes.learn(step.width, step.seconds - step.draft_seconds)
        self._generated += len(step.tokens)
        plain = self._passes.seconds(1)
        drafting = self._drafting
        if drafting is None:
            took = step.seconds if step.again else plain
            self.loss_budget.enter(took, plain, len(step.tokens), plain)
        else:
            cost = drafting.candidate.cost.of(max(1, len(step.drafted)))
            expected = self._passes.seconds(step.verified + 1) + cost + drafting.catching_up
            took = step.seconds - drafting.reading
            self.loss_budget.enter(took, expected, len(step.tokens), plain)
        self._since_plain = self._since_plain + 1 if step.verified else 0
        for candidate in self.candidates:
            if drafting and candidate is drafting.candidate:
                self._learn_of(drafting, step, plain)
            else:
                candidate.learn_from_afar(step.tokens)
                share = _KNOWN if candidate.told else _CURIOSITY
                candidate.curiosity += share * len(step.tokens) * plain

    def _learn_of(self, drafting: "_Drafting", step: Step, plain: float) -> None:
        candidate = drafting.candidate
        candidate.learn(step.drafted, step.tokens)
        if not candidate.told and step.drafted:
            candidate.cost.learn_whole(step.draft_seconds, len(step.drafted), cheap=candidate.cheap)
        gain = len(step.tokens) - (step.seconds - drafting.reading) / plain
        candidate.gained(gain)
        if not candidate.cheap:
            candidate.tried(paid=gain > 0)

    def _option(
        self, candidate: Candidate, limit: Limit, left: float, passes: list[float]
    ) -> _Option | None:
        """Its depth with the most tokens per second, within what the loss_budget allows.

        left: how many tokens are likely to come. passes: seconds by width. Reading the prompt is a
        price paid once, and worth it if the tokens that may follow save more. To have caught up
        with what was written since is of use for as many tokens to come, so a step bears its share.
        """
        cost, plain = candidate.cost, passes[1]
        behind = candidate.behind
        unread = max(0, behind - self._generated)
        growth = self._passes.growth
        reading = cost.reading(unread, growth)
        most = plain + self.loss_budget.allowed(plain)
        lag = behind - unread
        catching_up = cost.catching_up(lag, growth)
        drafting = cost.of(1)
        best, best_rate = 0, 0.0
        expected = best_expected = 1.0
        for depth, survival in enumerate(candidate.survivals(limit), start=1):
            expected += survival
            seconds = passes[depth + 1] + drafting
            if (depth > 1 and survival < _HOPELESS) or seconds + catching_up > most:
                break
            seconds += catching_up * min(1.0, expected / max(1, lag))
            if expected > best_rate * seconds:
                best, best_rate, best_expected = depth, expected / seconds, expected
            drafting += cost.further
        if not best:
            return None
        if reading:
            saved = left * max(0.0, plain - 1 / best_rate)
            if reading > max(saved, self._curiosity(candidate, left, plain)):
                return None
        return _Option(candidate, best, best_expected, best_rate, reading, catching_up, growth)

    def _curiosity(self, candidate: Candidate, left: float, plain: float) -> float:
        """Seconds that getting to know it may take."""
        if left < _TELLING:
            return 0.0
        coming = 0.0 if candidate.told else _CURIOSITY * left * plain
        return candidate.curiosity + coming

    def _chosen(self, options: list[_Option], plain: float) -> tuple[_Option | None, str]:
        if self._since_plain >= (
            _PLAIN_AT_MOST_EVERY if self._passes.is_stale(1) else _PLAIN_EVERY
        ):
            return None, "to see what a plain step costs now"
        best = max(options, key=lambda option: option.rate, default=None)
        if best and best.rate > _WORTH_IT / plain:
            return best, "promises most"
        for option in options:
            if not option.candidate.cheap:
                if option.candidate.gain > 0:
                    return option, "has paid lately"
                if option.candidate.is_due():
                    return option, "tried again"
        return None, "nothing promises more" if options else "nothing to draft, or no credit left"

    def _start(self, option: _Option, limit: Limit, price: float, passes: list[float]) -> Decision:
        candidate = option.candidate
        self._drafting = drafting = _Drafting(option, price, passes, self.loss_budget, limit.depth)
        if candidate.told:
            return Decision(candidate.drafter, limit.depth, drafting.go_on)
        # What tells nothing while it drafts is held to the depth that promises most.
        draft = candidate.ready(option.depth)
        return Decision(candidate.drafter, option.depth, drafting.go_on, draft)


class _Drafting:
    """A draft in the making by a drafter to which each token costs time.

    survivals: the chance that so many drafted tokens are all right, by what their confidences say.
    price: of a second, in tokens: what the best choice earns in it. passes: seconds of the target's
    by width. reading: seconds that the loss_budget is not charged with; catching_up: that it is.
    """

    def __init__(
        self, option: _Option, price: float, passes: list[float], loss_budget: LossBudget, most: int
    ) -> None:
        self.candidate = candidate = option.candidate
        self.price = price
        self.reading, self.catching_up = option.reading, option.catching_up
        self.survivals: list[float] = []
        self.clock: Clock = candidate.starts(option.growth)
        self.passes = passes
        # Nothing is learnt while it drafts.
        self._hazards = candidate.hazards.chances(most)
        self._loss_budget = loss_budget
        self._most = most
        self._survival = 1.0

    def go_on(self, margin: float) -> bool:
        """A token was drawn with this margin; whether another is worth its time."""
        self.clock.tick()
        self._survival *= self.candidate.sees(margin)
        self.survivals.append(self._survival)
        drafted = len(self.survivals)
        return drafted < self._most and self._affordable(drafted + 1) and self._tells(drafted)

    def _affordable(self, depth: int) -> bool:
        plain = self.passes[1]
        seconds = self.passes[depth + 1] + self.candidate.cost.of(depth)
        return seconds - plain <= self._loss_budget.allowed(plain)

    def _tells(self, drafted: int) -> bool:
        """Whether another token pays, or shows what that would take."""
        return not self.candidate.cost.knows_further or self._pays(drafted)

    def _pays(self, drafted: int) -> bool:
        """Whether some number of further tokens brings more than it costs."""
        further = self.candidate.cost.further
        now = self.passes[drafted + 1]
        brought, chance = 0.0, self._survival
        for more, hazard in enumerate(self._hazards[drafted:], start=1):
            chance *= hazard
            brought += chance
            costs = more * further + self.passes[drafted + more + 1] - now
            if brought > self.price * costs:
                return True
            if chance < _HOPELESS:
                return False
        return False


def _explanation(option: _Option | None, plain: float, reason: str) -> Explanation:
    if option is None:
        return Explanation(None, 0, 1.0, 1 / plain, 1 / plain, reason)
    name = option.candidate.drafter.name
    return Explanation(name, option.depth, option.expected, option.rate, 1 / plain, reason)
