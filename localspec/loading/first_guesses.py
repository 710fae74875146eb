"""First guesses: the acceptance rates that are expected of drafters before they draft."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.control.acceptance import AcceptancePrior, DraftCounts
from localspec.loading import acceptance_priors, learnt_rates
from localspec.loading.acceptance_check import remembered_rate
from localspec.loading.drafter_set import DrafterSet
from localspec.models.kinds import usual_rates


@dataclass(frozen=True, slots=True)
class Guess:
    """An acceptance rate, 0 to 1, and what it rests on.

    counts: of the drafts of earlier runs, if it rests on those.
    """

    rate: float
    basis: str
    counts: DraftCounts | None = None


def first_guesses(
    target: Path, drafter_set: DrafterSet, rule: str, temperature: float
) -> AcceptancePrior:
    """Return what is known of drafters with a model, and what `localspec plan` measured."""
    planned = acceptance_priors.find(target, drafter_set.model_paths, temperature)
    guessed = guesses(target, drafter_set, rule, temperature, planned.rates)
    rates = {name: guess.rate for name, guess in guessed.items()}
    counts = {name: guess.counts for name, guess in guessed.items() if guess.counts}
    return replace(planned, rates={**planned.rates, **rates}, counts=counts)


def guesses(
    target: Path,
    drafter_set: DrafterSet,
    rule: str,
    temperature: float,
    planned: Mapping[str, float],
) -> dict[str, Guess]:
    """Return what is expected of each drafter with a model, by its name.

    The first of these that is known: what the pair did in earlier runs, what `localspec plan`
    measured (`planned`), what the target accepted at the first use of a head, what is usual for
    the kind.
    """
    found = {}
    for each in drafter_set.members:
        if each.measured is None:
            continue
        name, file = each.drafter.name, each.measured.path
        if earlier := learnt_rates.find(target, file, rule, temperature):
            found[name] = Guess(earlier.total.share, "earlier texts", earlier)
            continue
        usual = sum(usual_rates(each.kind)) / 2
        known = {
            "localspec plan": planned.get(name),
            "its first use": remembered_rate(target, file),
            f"most {each.kind} drafters": usual,
        }
        found[name] = next(Guess(rate, basis) for basis, rate in known.items() if rate is not None)
    return found
