"""Cost profile: seconds of passes and drafts as they were measured, or estimated, at one time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts


@dataclass(frozen=True, slots=True)
class DrafterSeconds:
    """Seconds of a drafter: of its first token, of each further one, and of each token it reads."""

    first: float
    further: float
    reading: float

    def cost(self) -> DrafterCost:
        """The cost to start learning from."""
        return DrafterCost(self.first, self.further, self.reading)


@dataclass(frozen=True, slots=True)
class CostProfile:
    """passes: seconds of the target's passes by rows, 1 among them; what lies between is
    interpolated. drafters: those that run a model, by name.
    """

    passes: Mapping[int, float]
    drafters: Mapping[str, DrafterSeconds] = field(default_factory=dict)

    @property
    def is_plausible(self) -> bool:
        """Whether every drafter's token takes less than the target's.

        One that seems to take longer would never draft, so nobody would learn whether the machine
        was only busy while it was measured.
        """
        return all(each.further < self.passes[1] for each in self.drafters.values())

    def step(self, drafter: str, depth: int) -> float:
        """What a step with a draft of so many tokens takes, in steps of plain decoding."""
        passes, cost = PassCosts(self.passes), self.drafters[drafter].cost()
        return (passes.seconds(depth + 1) + cost.of(depth)) / passes.seconds(1)
