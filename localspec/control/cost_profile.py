"""Cost profile: seconds of target passes and drafts, as measured or estimated once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts

# A width that seems too dear is not used, so nothing would show that it is not: what was learnt of
# it is forgotten after so many runs that did not measure it.
_MOST_RUNS = 3


@dataclass(frozen=True, slots=True)
class DrafterSeconds:
    """Seconds of a drafter: its first token, each further token, each token of text it reads.

    change: see DrafterCost.
    """

    first: float
    further: float
    reading: float
    change: float = 0.0

    def cost(self, passes: Mapping[int, float]) -> DrafterCost:
        """A cost to start learning from. passes: of the target, see DrafterCost."""
        return DrafterCost(self.first, self.further, self.reading, passes, self.change)


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Seconds of the passes of one target, and of its drafters.

    passes: seconds by rows, 1 row included; other row counts are interpolated. drafters: the
    drafters that run a model, by name. busy: whether other programs kept cores busy meanwhile.
    learnt: the seconds of passes as earlier runs found them, by rows, as if a plain pass took what
    `passes` says. unseen: how many runs have not measured such a pass since. change: seconds that
    it costs when the rows of passes change; then `passes` are of passes that follow others as wide.
    """

    passes: Mapping[int, float]
    drafters: Mapping[str, DrafterSeconds] = field(default_factory=dict)
    busy: bool = False
    learnt: Mapping[int, float] = field(default_factory=dict)
    unseen: Mapping[int, int] = field(default_factory=dict)
    change: float = 0.0

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
        return {**self.passes, **self.learnt}

    def after(self, run: PassCosts) -> "CostProfile":
        """The profile for the next run. run: what the passes of this one took.

        Also what it only believed is kept for a while: beside learnt costs, those of the profile
        may seem far too low.
        """
        seen = run.confirmed
        if not seen or not (self.learnt or seen - {1}):
            return self
        found = run.relative
        unseen = {rows: 0 if rows in seen else self.unseen.get(rows, 0) + 1 for rows in found}
        kept = {rows: runs for rows, runs in unseen.items() if runs < _MOST_RUNS}
        learnt = {rows: self.passes[1] * found[rows] for rows in kept}
        return replace(self, learnt=learnt, unseen=kept)

    def step(self, drafter: str, depth: int) -> float:
        """The time of a step with a draft of `depth` tokens, in plain steps."""
        expected = self.expected
        passes, cost = PassCosts(expected), self.drafters[drafter].cost(expected)
        return (passes.seconds(depth + 1) + cost.of(depth)) / passes.seconds(1)
