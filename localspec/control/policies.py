"""Policies: which policy decides about drafts in each generation of a sequence."""

from collections.abc import Callable, Sequence

from localspec.control.acceptance import AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy, Explain
from localspec.control.cost_model import CostModel
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import WIDEST
from localspec.generation_config import GenerationConfig
from localspec.speculation.drafter import Drafter
from localspec.speculation.policy import Policy

# A reproducible text needs passes tried out at every width there may be.
_DEEPEST_REPRODUCIBLE = 7


def deepest_draft(settings: GenerationConfig, *, reproducible: bool) -> int:
    """The depth of the deepest draft that there will be."""
    # Plain decoding gives the same text only in passes as wide as all others.
    if settings.depth:
        return settings.depth
    return _DEEPEST_REPRODUCIBLE if reproducible else WIDEST - 1


class Policies:
    """The policies of one sequence, kept from generation to generation.

    drafters: of the sequence. costs: None where nothing was measured, as nothing drafts. priors:
    what is known, for a temperature, of how often each drafter is right. How often drafts are right
    depends on the rule and the temperature, so there is an adaptive policy for each pair of them.
    prior_ignored: why a stored prior does not count, if there is one.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        costs: CostModel | None,
        priors: Callable[[float], AcceptancePrior],
    ) -> None:
        self.costs = costs
        self.prior_ignored: str | None = None
        self._drafters = drafters
        self._priors = priors
        self._adaptive: dict[tuple[str, float], AdaptivePolicy] = {}

    def policy(
        self,
        settings: GenerationConfig,
        temperature: float,
        *,
        deepest: int,
        least_rows: int = 1,
        explain: Explain | None = None,
    ) -> Policy:
        """The policy of a generation. least_rows: every pass of it has at least so many rows."""
        if settings.depth is not None or not self._drafters or not self.costs:
            return FixedDepth(self._drafters, settings.depth or 0)
        self.costs.passes.none_below(least_rows)
        key = settings.rule, round(temperature, 1)
        if key not in self._adaptive:
            prior = self._priors(temperature)
            self.prior_ignored = prior.ignored
            self._adaptive[key] = AdaptivePolicy(
                self._drafters, self.costs, deepest=deepest, guesses=prior.rates
            )
        policy = self._adaptive[key]
        policy.explain = explain
        return policy
