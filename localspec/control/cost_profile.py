"""Cost profile: seconds of target passes and drafts, as measured or estimated once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts


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
    """

    passes: Mapping[int, float]
    drafters: Mapping[str, DrafterSeconds] = field(default_factory=dict)
    busy: bool = False

    @property
    def is_plausible(self) -> bool:
        """Whether a token of each drafter takes less time than a token of the target.

        Otherwise the drafter would never draft, and a wrong measurement, for instance on a busy
        machine, would never be corrected.
        """
        return all(each.further < self.passes[1] for each in self.drafters.values())

    def step(self, drafter: str, depth: int) -> float:
        """The time of a step with a draft of `depth` tokens, in plain steps."""
        passes, cost = PassCosts(self.passes), self.drafters[drafter].cost(self.passes)
        return (passes.seconds(depth + 1) + cost.of(depth)) / passes.seconds(1)
