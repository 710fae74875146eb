"""Cost model: what a target's passes and its drafters take, learnt while they run."""

from collections.abc import Mapping
from copy import deepcopy

from localspec.control.cost_profile import CostProfile
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts


class CostModel:
    """Seconds of passes and of drafts for the texts of one sequence.

    passes: seconds of a target pass by its rows. drafters: by name; one that was not measured
    starts from nothing known.
    """

    def __init__(
        self, passes: PassCosts, drafters: Mapping[str, DrafterCost] | None = None
    ) -> None:
        self.passes = passes
        self._drafters = dict(drafters or {})

    @classmethod
    def of(cls, profile: CostProfile) -> "CostModel":
        """Start from what was measured."""
        drafters = {name: seconds.cost() for name, seconds in profile.drafters.items()}
        return cls(PassCosts(profile.passes), drafters)

    def drafter(self, name: str) -> DrafterCost:
        """The cost of a drafter; the same object for every policy."""
        return self._drafters.setdefault(name, DrafterCost())

    def copy(self) -> "CostModel":
        """What is known now, to go on from for another text."""
        return deepcopy(self)
