"""Planning: who decides about drafts, and what is learnt of them, kept between generations."""

from copy import deepcopy

from localspec.control.adaptive import AdaptivePolicy, Explain
from localspec.control.cost_model import WIDEST, DrafterCost
from localspec.generation_config import GenerationConfig
from localspec.llama.context import Context
from localspec.loading import acceptance_priors
from localspec.loading.calibration import CostProfile
from localspec.loading.drafter_loader import Drafting
from localspec.sampling.params import SamplingParams
from localspec.speculation.policy import FixedDepth, Policy

# A reproducible text needs passes tried out at every width there may be.
_DEEPEST_REPRODUCIBLE = 7


class Planning:
    """Planners for one target and its drafters.

    What passes cost is known to all of them; how often drafts are right depends on how tokens are
    chosen, and is learnt for each way of it; a stored plan says what to start from. pace: None
    where nothing was measured. plan_ignored: why a stored plan does not count, if there is one.
    """

    def __init__(self, target: Context, drafting: Drafting, pace: CostProfile | None) -> None:
        self.drafting = drafting
        self.pace = pace
        self._target = target
        self.widths = pace.widths() if pace and drafting.drafters else None
        self._costs: dict[str, DrafterCost] = {}
        if pace and drafting.context:
            self._costs[drafting.context.model.path.stem] = pace.drafter_cost()
        self._controllers: dict[tuple[str, float], AdaptivePolicy] = {}
        self.plan_ignored: str | None = None

    def for_text(self, target: Context, drafting: Drafting) -> "Planning":
        """For another text of the same models: it starts from what passes were found to take here,
        and goes on by itself, as texts differ in length.
        """
        other = Planning(target, drafting, self.pace)
        other.widths, other._costs = deepcopy((self.widths, self._costs))
        return other

    @staticmethod
    def deepest(settings: GenerationConfig, *, reproducible: bool) -> int:
        """The deepest draft there will be."""
        # Plain decoding gives the same text only in passes as wide as all others.
        if settings.depth:
            return settings.depth
        return _DEEPEST_REPRODUCIBLE if reproducible else WIDEST - 1

    def policy(
        self,
        settings: GenerationConfig,
        params: SamplingParams,
        deepest: int,
        explain: Explain | None = None,
    ) -> Policy:
        """For a generation; the target pads its passes as this policy counts on."""
        if settings.depth is not None or not self.drafting.drafters or not self.widths:
            self._target.padded = int
            return FixedDepth(self.drafting.drafters, settings.depth or 0)
        self.widths.none_below(self._target.least_rows)
        padded = self.widths.padded
        # No wider than the widest pass that has been tried out, if they were.
        self._target.padded = lambda rows: max(rows, min(padded(rows), deepest + 1))
        way = settings.rule, round(params.temperature, 1)
        if way not in self._controllers:
            found = acceptance_priors.find(
                self._target.model.path, self.drafting.model_path, params.temperature
            )
            self.plan_ignored = found.ignored
            self._controllers[way] = AdaptivePolicy(
                self.drafting.drafters,
                self.widths,
                self._costs,
                deepest=deepest,
                guesses=found.rates,
            )
        controller = self._controllers[way]
        controller.explain = explain
        return controller
