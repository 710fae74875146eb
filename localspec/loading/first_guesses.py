"""First guesses: the acceptance rates that are expected of drafters before they draft."""

from dataclasses import replace
from pathlib import Path

from localspec.control.acceptance import AcceptancePrior, DraftCounts
from localspec.loading import acceptance_priors, learnt_rates
from localspec.loading.acceptance_check import remembered_rate
from localspec.loading.drafter_set import DrafterSet
from localspec.models.kinds import usual_rates


def first_guesses(
    target: Path, drafter_set: DrafterSet, rule: str, temperature: float
) -> AcceptancePrior:
    """Return what is expected of the drafters with a model, by their names.

    The first of these that is known: what the pair did in earlier runs, what `localspec plan`
    measured, what the target accepted at the first use of a head, what is usual for the kind.
    """
    planned = acceptance_priors.find(target, drafter_set.model_paths, temperature)
    rates, counts = dict(planned.rates), dict[str, DraftCounts]()
    for name, (file, way) in drafter_set.learnt.items():
        if earlier := learnt_rates.find(target, file, rule, temperature, way=way):
            rates[name], counts[name] = earlier.total.share, earlier
    for each in drafter_set.members:
        if each.measured and (name := each.drafter.name) not in rates:
            known = remembered_rate(target, each.measured.path)
            rates[name] = sum(usual_rates(each.kind)) / 2 if known is None else known
    return replace(planned, rates=rates, counts=counts)
