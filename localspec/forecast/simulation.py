"""Rehearsal: what `auto` would do, by running the real controller over texts already written.

Under the rule `coupled` a text does not depend on its drafts, so the real drafters and the real
controller can go over it with nothing but the target's passes left out: which drafts stand is read
off the text, and what passes and drafts take is what was measured.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter

from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import DrafterCost, Widths
from localspec.forecast.answers import Answer
from localspec.forecast.simulated_run import Course
from localspec.forecast.timing import Costs
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome
from localspec.speculation.policy import Plan, Step
from localspec.utils.tokens import common_prefix


class _Known(DrafterCost):
    """A cost that is known: what the rehearsal itself takes teaches nothing about it."""

    knows_further = True

    def learn_first(self, seconds: float, behind: int, growth: float = 1.0) -> None:
        """Nothing to learn."""

    def learn_further(self, seconds: float) -> None:
        """Nothing to learn."""


class Rehearsal:
    """One controller, as an engine keeps it from answer to answer.

    drafters: as an engine has them, the free ones first; `costs` has them all. guesses: as in
    AdaptivePolicy.
    """

    def __init__(
        self, drafters: Sequence[Drafter], costs: Costs, guesses: Mapping[str, float]
    ) -> None:
        self._costs = costs
        self._drafting: dict[str, DrafterCost] = {
            name: _Known(cost.first, cost.further, cost.backlog)
            for name, cost in costs.drafters.items()
        }
        self._passes = Widths(costs.passes)
        # What the controller learns as a pass's time is all of its step but the drafting.
        self._learnt = Widths({rows: each + costs.host for rows, each in costs.passes.items()})
        self._controller = AdaptivePolicy(drafters, self._learnt, self._drafting, guesses=guesses)
        self._rows = 0

    def course(self, answer: Answer) -> Course:
        """The steps over one answer."""
        self._controller.begin()
        for drafter in self._controller.drafters:
            drafter.begin(answer.prompt)
        prefix, done = answer.sampler.prefix(answer.prompt), 0
        calls = drafted = accepted = 0
        seconds = 0.0
        while done < len(answer.tokens):
            limit = Limit(answer.limit - done - 1, prefix, answer.sampler)
            step, stood, thinking = self._step(limit, answer.tokens[done:])
            calls, drafted, accepted = calls + 1, drafted + step.verified, accepted + stood
            seconds += step.seconds + thinking
            done += len(step.tokens)
            for token in step.tokens:
                prefix = prefix.then(token)
        return Course(len(answer.tokens), calls, drafted, accepted, seconds)

    def _step(self, limit: Limit, rest: Sequence[int]) -> tuple[Step, int, float]:
        """A step, how many drafted tokens stood, and the controller's own seconds.

        rest: the answer from here on.
        """
        began = perf_counter()
        plan = self._controller.plan(limit)
        planned = perf_counter()
        drafting, proposed = self._proposed(plan, limit)
        drafted = perf_counter()
        verified = self._controller.keep(proposed)
        stood = common_prefix(proposed.tokens[:verified], rest)
        tokens = list(rest[: stood + 1])
        rows = self._learnt.padded(verified + 1)
        switch = self._costs.switch if rows != self._rows else 0.0
        self._rows = rows
        seconds = self._passes.seconds(rows) + switch + len(tokens) * self._costs.host + drafting
        step = Step(proposed.tokens, verified, rows, tokens, seconds, drafting)
        self._controller.learn(step)
        thinking = perf_counter() - drafted + planned - began
        for drafter in self._controller.drafters:
            drafter.observe(Outcome(tokens, stood if drafter is plan.drafter else 0))
        return step, stood, thinking

    def _proposed(self, plan: Plan, limit: Limit) -> tuple[float, Draft]:
        """The draft, and what it takes."""
        if not plan.drafter:
            return 0.0, NOTHING
        behind = getattr(plan.drafter, "backlog", 0)
        draft = plan.draft or plan.drafter.propose(limit.to(plan.depth, plan.go_on))
        draft = draft.first(plan.depth)
        cost = self._drafting[plan.drafter.name]
        if getattr(plan.drafter, "free", False):
            return cost.first, draft
        if not len(draft):
            return 0.0, draft
        return cost.of(len(draft)) + cost.catching_up(behind), draft
