"""Simulation: the adaptive policy over answers that are already generated.

With the rule `coupled` a text does not depend on its drafts. So the real policy and the real
drafters run over the answer, without the target: the answer tells which drafts are accepted, and
the measured costs how long passes and drafts take.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter

from localspec.control.acceptance import AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.forecast.answers import Answer
from localspec.forecast.simulated_run import SimulatedStep
from localspec.forecast.timing import StepCosts
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome, backlog, proposal
from localspec.speculation.passes import run
from localspec.speculation.policy import Decision, Step
from localspec.utils.tokens import common_prefix


class _Known(DrafterCost):
    """A cost that is known: the time of the simulation itself must not change it."""

    knows_further = True

    def learn_first(
        self, seconds: float, backlog: int, slowdown: float = 1.0, texts: int = 1
    ) -> None:
        """Nothing to learn."""

    def learn_further(self, seconds: float, texts: int = 1) -> None:
        """Nothing to learn."""

    def learn_pass(self, seconds: float, rows: int, backlog: int, slowdown: float = 1.0) -> None:
        """Nothing to learn."""


class Simulation:
    """One adaptive policy, which learns from answer to answer as in an engine.

    drafters: as an engine has them, the model-free ones first; `costs` has all of them. guesses: as
    in AcceptancePrior.rates.
    """

    def __init__(
        self, drafters: Sequence[Drafter], costs: StepCosts, guesses: Mapping[str, float]
    ) -> None:
        self._costs = costs
        self._drafting: dict[str, DrafterCost] = {
            name: _Known(cost.first, cost.further, cost.reading)
            for name, cost in costs.drafters.items()
        }
        self._passes = PassCosts(costs.passes)
        # What the policy learns as the time of a pass is that of its step, without the drafting.
        self._learnt = PassCosts({rows: each + costs.host for rows, each in costs.passes.items()})
        self._policy = AdaptivePolicy(
            drafters, CostModel(self._learnt, self._drafting), prior=AcceptancePrior(guesses)
        )
        self._rows = 0

    def run(self, answer: Answer) -> list[SimulatedStep]:
        """Simulate the steps of one answer."""
        self._policy.begin()
        for drafter in self._policy.drafters:
            drafter.begin(answer.prompt)
        prefix, done = answer.sampler.prefix(answer.prompt), 0
        steps = []
        while done < len(answer.tokens):
            limit = Limit(answer.limit - done - 1, prefix, answer.sampler)
            step = self._step(limit, answer.tokens[done:])
            steps.append(step)
            for token in answer.tokens[done : done + step.tokens]:
                prefix = prefix.then(token)
            done += step.tokens
        return steps

    def _step(self, limit: Limit, rest: Sequence[int]) -> SimulatedStep:
        """One step. rest: the answer from here on."""
        began = perf_counter()
        decision = self._policy.decide(limit)
        planned = perf_counter()
        drafting, reading, proposed = self._draft(decision, limit)
        drafted = perf_counter()
        verified = self._policy.keep(proposed)
        accepted = common_prefix(proposed.tokens[:verified], rest)
        tokens = list(rest[: accepted + 1])
        rows = self._learnt.padded(verified + 1)
        switching = self._costs.switch if rows != self._rows else 0.0
        self._rows = rows
        drafting += reading
        seconds = (
            self._passes.unpadded(rows) + switching + len(tokens) * self._costs.host + drafting
        )
        self._policy.learn(Step(proposed.tokens, verified, rows, tokens, seconds, drafting))
        deciding = perf_counter() - drafted + planned - began
        for drafter in self._policy.drafters:
            drafter.observe(Outcome(tokens, accepted if drafter is decision.drafter else 0))
        return SimulatedStep(
            decision.drafter.name if decision.drafter else None,
            verified,
            accepted,
            len(tokens),
            seconds,
            reading,
            switching,
            deciding,
        )

    def _draft(self, decision: Decision, limit: Limit) -> tuple[float, float, Draft]:
        """The seconds of the draft and of what the drafter had to read, and the draft."""
        if not decision.drafter:
            return 0.0, 0.0, NOTHING
        unread = backlog(decision.drafter)
        draft = decision.draft or run(
            proposal(decision.drafter, limit.to(decision.depth, decision.go_on))
        )
        draft = draft.first(decision.depth)
        cost = self._drafting[decision.drafter.name]
        if decision.drafter.traits.cheap:
            return cost.first, 0.0, draft
        if not len(draft):
            return 0.0, 0.0, draft
        parallel = decision.drafter.traits.parallel
        rows = decision.depth if parallel else len(draft)
        return cost.of(rows), cost.catch_up_seconds(unread), draft
