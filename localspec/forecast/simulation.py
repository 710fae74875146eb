"""Simulation: real policies over answers that are already generated.

With the rule `coupled` a text does not depend on its drafts. So the real policy and the real
drafters run over the answer, without the target: the answer tells which drafts are accepted, and
the measured costs how long passes and drafts take.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from localspec.control.acceptance import AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget, RowShare
from localspec.control.width_changes import PARTS, EqualPasses
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.rounds import Rounds, Writer
from localspec.forecast.simulated_run import SimulatedStep
from localspec.forecast.timing import StepCosts
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome, backlog
from localspec.speculation.policy import Policy, Step


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


def cost_model(costs: StepCosts, *, unequal_apart: bool = False) -> CostModel:
    """What a policy knows of the costs: those of drafters for good, passes to start from.

    What it learns as the time of a pass is that of its step, without the drafting.
    """
    passes = {rows: each + costs.host for rows, each in costs.passes.items()}
    drafters: dict[str, DrafterCost] = {
        name: _Known(cost.first, cost.further, cost.reading, cost.similar, cost.change)
        for name, cost in costs.drafters.items()
    }
    change = costs.switch if costs.unsettled > 1 else 0.0
    return CostModel(PassCosts(passes, unequal_apart=unequal_apart, change=change), drafters)


class Decodes:
    """Seconds of decodes of the target by their rows, one after the other.

    switching: what the last one took longer because the rows have changed.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._passes = PassCosts(costs.passes)
        parts = PARTS if costs.unsettled > 1 else (1.0,)
        self._more = [costs.switch * part for part in parts]
        self._equal, self.switching = EqualPasses(), 0.0

    def seconds(self, rows: int) -> float:
        """Seconds of the next one."""
        before = self._equal.add(rows)
        self.switching = self._more[before] if before < len(self._more) else 0.0
        return self._passes.unpadded(rows) + self.switching


class SimulatedWriter(Writer):
    """Writes answers, one after the other, in rounds.

    model: what the policy knows of the costs, and what its drafts really take. host: as in
    StepCosts. steps: of the answer so far. clock: measures how long the policy decides.
    """

    def __init__(
        self,
        policy: Policy,
        share: RowShare,
        model: CostModel,
        decodes: Decodes,
        *,
        host: float,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        super().__init__(policy, share)
        self.steps: list[SimulatedStep] = []
        self._model, self._decodes, self._host, self._clock = model, decodes, host, clock
        self._answer: RecordedAnswer | None = None
        self._done = self._unread = 0
        self._reading = self._drawing = self._began = 0.0

    def begin(self, answer: RecordedAnswer, cache: object = None) -> None:
        """Start on an answer. cache: only texts of one cache share decodes."""
        self.share.begin(cache)
        self.policy.begin()
        for drafter in self.policy.drafters:
            drafter.begin(answer.prompt)
        self._answer, self._done, self.steps = answer, 0, []
        self._prefix = answer.sampler.prefix(answer.prompt)

    @property
    def is_written(self) -> bool:
        """Whether tokens of the answer are left."""
        return self._answer is not None and self._done < len(self._answer.tokens)

    def limit(self) -> Limit:
        """As in an engine: the first step does not wait until a drafter has read the prompt."""
        assert self._answer
        left = self._answer.limit - self._done - 1
        return Limit(left, self._prefix, self._answer.sampler, hurried=not self._done)

    def coming(self, count: int) -> Sequence[int]:
        """The next tokens of the answer."""
        assert self._answer
        return self._answer.tokens[self._done : self._done + count]

    def outcome(self, step: Step, accepted: int) -> Outcome:
        """With what the tokens were drawn from, if the answer tells."""
        assert self._answer
        return self._answer.outcome(self._done, len(step.tokens), accepted)

    def host_seconds(self, tokens: int) -> float:
        """As measured."""
        return tokens * self._host

    def decide(self) -> None:
        """Decide about a draft and draw it; only deciding takes the policy's time."""
        self._unread, self._reading, self._drawing = 0, 0.0, 0.0
        began = self._clock()
        super().decide()
        self.deciding = self._clock() - began - self._drawing

    def draw(self, drafter: Drafter, limit: Limit) -> Draft:
        """Draw what was decided."""
        from_end = self.decision.from_end
        began, self._unread = self._clock(), backlog(drafter, from_end=from_end)
        draft = super().draw(drafter, limit)
        self._drawing = self._clock() - began
        return draft

    def draft_seconds(self, texts: Sequence[int]) -> float:
        """Those of the known costs, with what the drafter had to read."""
        drafter = self.decision.drafter
        assert drafter
        cost = self._model.drafter(drafter.name)
        if drafter.traits.cheap:
            return cost.first
        if not texts:
            return 0.0
        self._reading = cost.catch_up_seconds(self._unread)
        if drafter.traits.parallel:
            return self._reading + cost.of(self.decision.depth)
        first, *further = (cost.part(each) for each in texts)
        return self._reading + cost.first * first + cost.further * sum(further)

    def learn(self, others: Sequence[int], padding: int, seconds: float) -> None:
        """Commit what is right; learning takes the policy's time too."""
        self._began = self._clock()
        super().learn(others, padding, seconds)

    def commit(self, step: Step, accepted: int) -> None:
        """Note the step, and go on behind it: the policy has learnt."""
        learning = self._clock() - self._began
        self.beside += learning
        drafter = self.decision.drafter
        self.steps.append(
            SimulatedStep(
                drafter.name if drafter else None,
                self.verified,
                accepted,
                len(step.tokens),
                step.seconds - self.deciding,
                self._reading,
                self._decodes.switching,
                self.deciding + learning,
            )
        )
        super().commit(step, accepted)
        self._done += len(step.tokens)
        for token in step.tokens:
            self._prefix = self._prefix.then(token)


class Simulation:
    """One adaptive policy, which learns from answer to answer as in an engine.

    drafters: as an engine has them, the model-free ones first; `costs` has all of them. guesses: as
    in AcceptancePrior.rates. clock: as in SimulatedWriter.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        costs: StepCosts,
        guesses: Mapping[str, float],
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        model, share = cost_model(costs), RowBudget().new_share()
        self.policy = AdaptivePolicy(drafters, model, prior=AcceptancePrior(guesses), rows=share)
        self._decodes = Decodes(costs)
        self._writer = SimulatedWriter(
            self.policy, share, model, self._decodes, host=costs.host, clock=clock
        )

    def run(self, answer: RecordedAnswer) -> list[SimulatedStep]:
        """Simulate the steps of one answer."""
        self._writer.begin(answer)
        Rounds([self._writer], self._decodes.seconds).run()
        return self._writer.steps
