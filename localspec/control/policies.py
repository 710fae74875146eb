"""Policies: the policies of a sequence, one of which decides in each generation."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from localspec.control.acceptance import AcceptancePrior, DraftCounts
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.base_costs import WIDEST
from localspec.control.cost_model import CostModel
from localspec.control.explanation import Explain
from localspec.control.fixed_depth import FixedDepth
from localspec.control.row_budget import RowBudget, RowShare
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.sampling.params import SamplingParams
from localspec.speculation.drafter import Drafter
from localspec.speculation.policy import Policy

# A reproducible text needs every possible width to be tested, so drafts stay short.
_DEEPEST_REPRODUCIBLE = 7


def deepest_draft(settings: GenerationConfig, *, reproducible: bool) -> int:
    """The most tokens of a draft in a generation with these settings."""
    # Also without drafting: plain passes must be as wide as passes with a draft.
    if settings.depth:
        return settings.depth
    return _DEEPEST_REPRODUCIBLE if reproducible else WIDEST - 1


class _Key(NamedTuple):
    """What an adaptive policy is for.

    is_usual: whether neither XTC nor mirostat nor adaptive-p is on. drafter: the only one that may
    draft; None: each.
    """

    rule: str
    temperature: float
    is_usual: bool
    drafter: str | None


class Policies:
    """The policies of one sequence, kept from generation to generation.

    drafters: the drafters of the sequence.
    costs: None if nothing was measured because there are no drafters.
    priors: returns the expected acceptance rates for a rule and a temperature.
    prior_ignored: why a stored prior is ignored; None if none is.

    Acceptance depends on the rule, the temperature and `_Key.is_usual`, so each of these, with the
    drafter that was asked for, has its own adaptive policy.

    A sequence that is made for one text begins where one before it has ended (`keep`, `go_on`):
    otherwise each short text would try the same drafters again, and lose as much by it.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        costs: CostModel | None,
        priors: Callable[[str, float], AcceptancePrior],
    ) -> None:
        self.costs = costs
        self.prior_ignored: str | None = None
        self._drafters = drafters
        self._priors = priors
        self._adaptive: dict[_Key, AdaptivePolicy] = {}
        # What those of sequences that are gone have learnt, and what this one was given of it.
        self._kept: list[dict[_Key, AdaptivePolicy]] = []
        self._before: dict[_Key, AdaptivePolicy] = {}

    def keep(self, gone: "Policies") -> None:
        """Keep what those of another sequence of the same models have learnt, which is gone."""
        # Their drafters are gone, too: until another sequence goes on, these hold their places.
        learnt = {
            key: policy
            for key, policy in (gone._before | gone._adaptive).items()
            if self._moved(policy, key)
        }
        self._kept.append(learnt)

    def go_on(self, others: "Policies") -> None:
        """Begin with what another sequence has kept, which no other one begins with."""
        if others._kept:
            self._before = others._kept.pop()

    def _moved(self, policy: AdaptivePolicy, key: _Key) -> bool:
        """Move a policy to these drafters, unless it has lost one of them for good."""
        drafters = self._all_named(key.drafter)
        names = [each.name for each in policy.all_drafters]
        if not self.costs or names != [each.name for each in drafters]:
            return False
        policy.explain, policy.rows = None, RowBudget().new_share()
        policy.move_to(drafters, self.costs)
        return True

    def use_costs(self, costs: CostModel) -> None:
        """Decide by other costs from the next generation on; acceptance rates are kept."""
        self.costs = costs
        for policy in self._adaptive.values():
            policy.use_costs(costs)

    def take_counts(self) -> Iterator[tuple[str, float, str, DraftCounts]]:
        """Yield rule, temperature, candidate (by its name) and its counts since the last call.

        Those of unusual texts are left out: they would mislead what is expected of others.
        """
        for key, policy in self._adaptive.items():
            for candidate in policy.all_candidates:
                counts, candidate.counts = candidate.counts, DraftCounts()
                if key.is_usual:
                    yield key.rule, key.temperature, candidate.name, counts

    def policy(
        self,
        settings: GenerationConfig,
        params: SamplingParams,
        *,
        deepest: int,
        least_rows: int = 1,
        explain: Explain | None = None,
        clock: Callable[[], float] = perf_counter,
        rows: RowShare | None = None,
    ) -> Policy:
        """Return the policy of a generation.

        params: of its sampler. least_rows: the least rows of each of its passes. clock, rows: see
        AdaptivePolicy. Raises InvalidValueError if the drafter that the settings name is not
        loaded.
        """
        drafters = self._named(settings.drafter)
        passes = self.costs.passes if self.costs else None
        if passes:
            passes.set_least_rows(least_rows)
            passes.begin_text()
        if settings.depth is not None or not drafters or not self.costs:
            depth = min(settings.depth or 0, deepest)
            return FixedDepth(
                drafters if depth else self._reading,
                depth,
                rows=rows,
                passes=passes,
                widest=WIDEST if passes and passes.keeps_width else deepest + 1,
            )
        temperature = round(params.temperature, 1)
        is_usual = not params.has_xtc and params.first_state is None
        key = _Key(settings.rule, temperature, is_usual, settings.drafter)
        before = self._before.pop(key, None)
        if before and self._moved(before, key):
            self._adaptive[key] = before
        if key not in self._adaptive:
            prior = self._priors(settings.rule, params.temperature)
            self.prior_ignored = prior.ignored
            self._adaptive[key] = AdaptivePolicy(drafters, self.costs, deepest=deepest, prior=prior)
        policy = self._adaptive[key]
        policy.explain, policy.clock = explain, clock
        policy.rows = rows or policy.rows
        return policy

    def _named(self, name: str | None) -> Sequence[Drafter]:
        """The drafter of this name; all of them without one."""
        found = self._all_named(name)
        if name is not None and not found:
            loaded = " and ".join(each.name for each in self._drafters) or "none"
            raise InvalidValueError(f"drafter is {name!r:.80}; loaded: {loaded}")
        return found

    def _all_named(self, name: str | None) -> list[Drafter]:
        return [each for each in self._drafters if name in (None, each.name)]

    @property
    def _reading(self) -> list[Drafter]:
        """The drafters that follow a text also where nothing is drafted.

        Those that read hidden rows of the target: it would compute them again for the next text.
        """
        return [each for each in self._drafters if each.traits.reads_hidden]
