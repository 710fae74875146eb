"""AdaptivePolicy: chooses the drafter and the depth with the most expected tokens per second.

For each drafter and depth it estimates the number of committed tokens and the seconds of the step,
both learnt from earlier steps. Plain decoding is always one of the choices. A loss budget bounds
the time that wrong estimates can cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from localspec.control.acceptance import FIRST_GUESS
from localspec.control.candidate import Candidate, DraftTimer
from localspec.control.cost_model import CostModel
from localspec.control.loss_budget import LossBudget
from localspec.control.pass_costs import WIDEST
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.policy import PLAIN_STEP, Decision, Step, may_draft

# The expected speed of drafting must be this many times that of plain decoding: estimates err.
_LEAST_GAIN = 1.02
# Depths whose last token is accepted with a lower probability are not considered.
_LEAST_SURVIVAL = 0.02
# After so many drafting steps in a row, one plain step measures the cost of a plain pass again; the
# second number holds while that cost is stale.
_PLAIN_EVERY = 256
_PLAIN_AT_MOST_EVERY = 4
# A drafter that has not read the prompt must read it before its first draft. Reading may take as
# many seconds as drafting can save on the coming tokens. To learn a drafter's acceptance rate, it
# may also take this share of the time of plain decoding; the smaller one after its first draft.
_EXPLORATION_SHARE, _KNOWN_SHARE = 0.02, 0.005
# With fewer tokens to come, a drafter's acceptance rate cannot be learnt.
_FEWEST_TOKENS = 24
# Most answers end long before `max_tokens`. The first answer is expected to have this many tokens,
# later ones as many as the answers before; a long answer is expected to double.
_EXPECTED_TOKENS = 128.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason of a decision.

    expected: the expected number of committed tokens. rate, plain_rate: expected tokens per second
    of the chosen step, and of a plain step.
    """

    drafter: str | None
    depth: int
    expected: float
    rate: float
    plain_rate: float
    reason: str


Explain = Callable[[Explanation], None]


@dataclass(slots=True)
class _Option:
    """The best depth of one candidate.

    expected: the expected number of committed tokens. rate: tokens per second, without `reading`.
    reading: seconds to read the unread part of the prompt. catching_up: seconds to read the unread
    part of the answer. slowdown: see `PassCosts.reading_slowdown`.
    """

    candidate: Candidate
    depth: int
    expected: float
    rate: float
    reading: float
    catching_up: float
    slowdown: float


class AdaptivePolicy:
    """A Policy that drafts only when drafting is faster, and chooses the fastest depth.

    drafters: the cheap ones first; the first of several equally fast drafters is chosen.
    costs: shared by all policies of a sequence.
    deepest: the most tokens of a draft.
    guesses: the known acceptance rates, by the drafter's name.
    explain: called with the Explanation of each decision.
    clock: returns the time in seconds, without the time in which other texts were computed.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        costs: CostModel,
        *,
        deepest: int = WIDEST - 1,
        guesses: Mapping[str, float] | None = None,
        explain: Explain | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.drafters = drafters
        self.explain = explain
        self.clock = clock
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
        self._running: _RunningDraft | None = None
        self._steps_since_plain = 0
        self._generated = 0
        self._expected_tokens = _EXPECTED_TOKENS

    def begin(self) -> None:
        """Start a generation. Costs and acceptance rates are kept, except of failed drafters."""
        if self._generated:
            self._expected_tokens = (self._expected_tokens + self._generated) / 2
        self._generated = 0
        for candidate in self.candidates:
            candidate.begin_text()

    def padded(self, rows: int) -> int:
        """The fastest number of rows for a pass over `rows`, at most that of the deepest draft."""
        return max(rows, min(self._passes.padded(rows), self._deepest + 1))

    def decide(self, limit: Limit) -> Decision:
        """Choose the step with the most expected tokens per second."""
        passes = self._passes.table
        plain = passes[1]
        tokens_left = min(limit.depth + 1, self._expected_tokens + self._generated)
        limit = limit.to(min(limit.depth, self._deepest))
        self._running = None
        options = [
            option
            for candidate in self.candidates
            if limit.depth
            and may_draft(candidate.drafter, limit)
            and (option := self._option(candidate, limit, tokens_left, passes))
        ]
        chosen, reason = self._chosen(options, plain)
        if self.explain:
            self.explain(_explanation(chosen, plain, reason))
        if chosen is None:
            return PLAIN_STEP
        return self._start(chosen, limit, max(chosen.rate, 1 / plain), passes)

    def keep(self, draft: Draft) -> int:
        """How many of the drafted tokens are worth verifying."""
        running = self._running
        if running is None or not running.survivals:
            return len(draft)
        passes = running.passes
        best, best_value, expected = 0, -running.plain_or_best_rate * passes[1], 0.0
        for depth, survival in enumerate(running.survivals, start=1):
            expected += survival
            value = expected - running.plain_or_best_rate * passes[depth + 1]
            if value > best_value:
                best, best_value = depth, value
        return best

    def learn(self, step: Step) -> None:
        """Update pass costs, acceptance rates and the loss budget."""
        # A plain pass that evaluates tokens again, because of an earlier draft, says nothing about
        # the cost of plain decoding; the loss budget is charged for it.
        if step.verified or not step.again:
            host = step.seconds - step.draft_seconds - step.share
            self._passes.learn(step.width, host + step.decode_seconds, step.others)
        self._generated += len(step.tokens)
        plain = self._passes.seconds(1)
        running = self._running
        seconds = self._own_seconds(step)
        if running is None:
            took = seconds if step.again else plain
            self.loss_budget.add_step(took, plain, len(step.tokens), plain)
        else:
            cost = running.candidate.cost.of(max(1, len(step.drafted)))
            expected = self._passes.seconds(step.verified + 1) + cost + running.catching_up
            took = seconds - running.reading
            self.loss_budget.add_step(took, expected, len(step.tokens), plain)
        self._steps_since_plain = self._steps_since_plain + 1 if step.verified else 0
        for candidate in self.candidates:
            if running and candidate is running.candidate:
                self._learn_draft(running, step, seconds, plain)
            else:
                candidate.score_shadow_draft(step.tokens)
                share = _KNOWN_SHARE if candidate.reports_confidence else _EXPLORATION_SHARE
                candidate.exploration_budget += share * len(step.tokens) * plain

    def _own_seconds(self, step: Step) -> float:
        """The seconds of a step, with the part of its decode that the step's own rows cost."""
        if not step.others:
            return step.seconds
        expected = self._passes.of_decode(step.width + sum(step.others))
        own = self._passes.seconds(step.width) * step.decode_seconds / expected
        return step.seconds - step.share + own

    def _learn_draft(
        self, running: "_RunningDraft", step: Step, seconds: float, plain: float
    ) -> None:
        candidate = running.candidate
        candidate.learn(step.drafted, step.tokens)
        if not candidate.reports_confidence and step.drafted:
            candidate.cost.learn_whole(step.draft_seconds, len(step.drafted), cheap=candidate.cheap)
        gain = len(step.tokens) - (seconds - running.reading) / plain
        candidate.learn_gain(gain)
        if not candidate.cheap:
            candidate.end_trial(paid=gain > 0)

    def _option(
        self, candidate: Candidate, limit: Limit, tokens_left: float, passes: list[float]
    ) -> _Option | None:
        """The candidate's depth with the most tokens per second, within the loss budget.

        tokens_left: the expected number of further tokens. passes: seconds by width. The prompt is
        read once; reading it pays if drafting saves more time on the further tokens. Catching up
        with N tokens of the answer serves about the next N tokens, so each step is charged only
        its share.
        """
        cost, plain = candidate.cost, passes[1]
        backlog = candidate.backlog
        prompt_backlog = max(0, backlog - self._generated)
        answer_backlog = backlog - prompt_backlog
        slowdown = self._passes.reading_slowdown
        reading = cost.reading_seconds(prompt_backlog, slowdown)
        most_seconds = plain + self.loss_budget.available(plain)
        catching_up = cost.catch_up_seconds(answer_backlog, slowdown)
        drafting = cost.of(1)
        best, best_rate = 0, 0.0
        expected = best_expected = 1.0
        for depth, survival in enumerate(candidate.survivals(limit), start=1):
            expected += survival
            seconds = passes[depth + 1] + drafting
            if (depth > 1 and survival < _LEAST_SURVIVAL) or seconds + catching_up > most_seconds:
                break
            seconds += catching_up * min(1.0, expected / max(1, answer_backlog))
            if expected > best_rate * seconds:
                best, best_rate, best_expected = depth, expected / seconds, expected
            drafting += cost.further
        if not best:
            return None
        if reading:
            saved = tokens_left * max(0.0, plain - 1 / best_rate)
            if reading > max(saved, self._exploration_budget(candidate, tokens_left, plain)):
                return None
        return _Option(candidate, best, best_expected, best_rate, reading, catching_up, slowdown)

    def _exploration_budget(self, candidate: Candidate, tokens_left: float, plain: float) -> float:
        """Seconds that may be spent to learn the candidate's acceptance rate."""
        if tokens_left < _FEWEST_TOKENS:
            return 0.0
        coming = 0.0 if candidate.reports_confidence else _EXPLORATION_SHARE * tokens_left * plain
        return candidate.exploration_budget + coming

    def _chosen(self, options: list[_Option], plain: float) -> tuple[_Option | None, str]:
        if self._steps_since_plain >= (
            _PLAIN_AT_MOST_EVERY if self._passes.is_stale(1) else _PLAIN_EVERY
        ):
            return None, "to see what a plain step costs now"
        best = max(options, key=lambda option: option.rate, default=None)
        if best and best.rate > _LEAST_GAIN / plain:
            return best, "promises most"
        for option in options:
            if not option.candidate.cheap:
                if option.candidate.gain > 0:
                    return option, "has paid lately"
                if option.candidate.is_trial_due():
                    return option, "tried again"
        return None, "nothing promises more" if options else "nothing to draft, or no credit left"

    def _start(self, option: _Option, limit: Limit, rate: float, passes: list[float]) -> Decision:
        candidate = option.candidate
        self._running = running = _RunningDraft(
            option, rate, passes, self.loss_budget, limit.depth, clock=self.clock
        )
        if candidate.reports_confidence:
            return Decision(candidate.drafter, limit.depth, running.go_on)
        # A drafter that reports no confidence never stops early: limit it to the best depth.
        draft = candidate.shadow_draft(option.depth)
        return Decision(candidate.drafter, option.depth, running.go_on, draft)


class _RunningDraft:
    """The draft of the current step, while the drafter draws it.

    plain_or_best_rate: tokens per second of the chosen step, or of plain decoding if that is more;
        a further token must bring more tokens per second than this.
    passes: seconds of a target pass by width. deepest: the most tokens of the draft.
    reading, catching_up: see `_Option`; only `catching_up` is charged to the loss budget.
    survivals: entry i is the probability that the first i + 1 drafted tokens are all accepted,
        estimated from the drafter's confidence in each.
    """

    def __init__(
        self,
        option: _Option,
        plain_or_best_rate: float,
        passes: list[float],
        loss_budget: LossBudget,
        deepest: int,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.candidate = candidate = option.candidate
        self.plain_or_best_rate = plain_or_best_rate
        self.reading, self.catching_up = option.reading, option.catching_up
        self.survivals: list[float] = []
        self.timer: DraftTimer = candidate.start_draft(option.slowdown, clock)
        self.passes = passes
        # The rates stay the same during one draft.
        self._acceptance_rates = candidate.acceptance_rates.chances(deepest)
        self._loss_budget = loss_budget
        self._deepest = deepest
        self._survival = 1.0

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
        plain = self.passes[1]
        seconds = self.passes[depth + 1] + self.candidate.cost.of(depth)
        return seconds - plain <= self._loss_budget.available(plain)

    def _worth_drawing(self, drafted: int) -> bool:
        """Whether another token pays, or is needed to measure the cost of a further token."""
        return not self.candidate.cost.knows_further or self._pays(drafted)

    def _pays(self, drafted: int) -> bool:
        """Whether some number of further tokens is worth its seconds."""
        further = self.candidate.cost.further
        now = self.passes[drafted + 1]
        expected, survival = 0.0, self._survival
        for more, rate in enumerate(self._acceptance_rates[drafted:], start=1):
            survival *= rate
            expected += survival
            seconds = more * further + self.passes[drafted + more + 1] - now
            if expected > self.plain_or_best_rate * seconds:
                return True
            if survival < _LEAST_SURVIVAL:
                return False
        return False


def _explanation(option: _Option | None, plain: float, reason: str) -> Explanation:
    if option is None:
        return Explanation(None, 0, 1.0, 1 / plain, 1 / plain, reason)
    name = option.candidate.drafter.name
    return Explanation(name, option.depth, option.expected, option.rate, 1 / plain, reason)
