"""Cost model: seconds of target passes and of drafts, learnt while they run."""

from collections.abc import Mapping
from copy import deepcopy

from localspec.control.cost_profile import CostProfile
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts


class CostModel:
    """Seconds of target passes and of drafts, for one sequence.

    passes: seconds of a target pass by its rows. drafters: the costs by the drafter's name; a
    drafter without a measured cost starts with cost 0.
    """

    def __init__(
        self, passes: PassCosts, drafters: Mapping[str, DrafterCost] | None = None
    ) -> None:
        self.passes = passes
        self._drafters = dict(drafters or {})

    @classmethod
    def of(cls, profile: CostProfile, *, unequal_apart: bool = False) -> "CostModel":
        """Start from what a profile expects. unequal_apart: see PassCosts."""
        passes = profile.expected
        drafters = {name: seconds.cost(passes) for name, seconds in profile.drafters.items()}
        costs = PassCosts(passes, unequal_apart=unequal_apart, change=profile.change)
        return cls(costs, drafters)

    def drafter(self, name: str) -> DrafterCost:
        """The cost of a drafter; the same object for every policy."""
        return self._drafters.setdefault(name, DrafterCost())

    def copy(self) -> "CostModel":
        """Copy the costs known now, as a start for another text."""
        return deepcopy(self)
