"""Cost profile: seconds of target passes and drafts, as measured or estimated once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts

# Where wide passes seem too dear to be made, nothing could show that they are not: after so many
# runs without one, what was learnt of them is forgotten.
_MOST_PLAIN_RUNS = 3


@dataclass(frozen=True, slots=True)
class DrafterSeconds:
    """Seconds of a drafter: its first token, each further token, each token of text it reads."""

    first: float
    further: float
    reading: float

    def cost(self, passes: Mapping[int, float]) -> DrafterCost:
        """A cost to start learning from. passes: of the target, see DrafterCost."""
        return DrafterCost(self.first, self.further, self.reading, passes)


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Seconds of the passes of one target, and of its drafters.

    passes: seconds by rows, 1 row included; other row counts are interpolated. drafters: the
    drafters that run a model, by name. busy: whether other programs kept cores busy meanwhile.
    learnt: the seconds of passes at the end of an earlier run; empty if none has learnt any.
    plain_runs: the runs since then in which only plain passes were made.
    """

    passes: Mapping[int, float]
    drafters: Mapping[str, DrafterSeconds] = field(default_factory=dict)
    busy: bool = False
    learnt: Mapping[int, float] = field(default_factory=dict)
    plain_runs: int = 0

    @property
    def is_plausible(self) -> bool:
        """Whether a token of each drafter takes less time than a token of the target.

        Otherwise the drafter would never draft, and a wrong measurement, for instance on a busy
        machine, would never be corrected.
        """
        return all(each.further < self.passes[1] for each in self.drafters.values())

    @property
    def expected(self) -> Mapping[int, float]:
        """Seconds by rows to start from: as learnt, else as measured at load."""
        return self.learnt or self.passes

    def after(self, run: PassCosts) -> "CostProfile":
        """The profile for the next run. run: what the passes of this one took."""
        if run.has_learnt:
            return replace(self, learnt=run.now, plain_runs=0)
        if not self.learnt or not run.knows(1):
            return self
        if self.plain_runs >= _MOST_PLAIN_RUNS:
            return replace(self, learnt={}, plain_runs=0)
        return replace(self, plain_runs=self.plain_runs + 1)

    def step(self, drafter: str, depth: int) -> float:
        """The time of a step with a draft of `depth` tokens, in plain steps."""
        passes, cost = PassCosts(self.expected), self.drafters[drafter].cost(self.expected)
        return (passes.seconds(depth + 1) + cost.of(depth)) / passes.seconds(1)
