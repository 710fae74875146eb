"""`auto` against the clairvoyant: what of the least time is reached, and where the rest is lost."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.forecast.clairvoyant import Clairvoyant, KnownDrafts, Losses, right_runs
from localspec.forecast.confidence import ConfidenceInterval, ratio_interval
from localspec.forecast.scored_answers import ScoredAnswers
from localspec.forecast.simulated_run import SimulatedStep
from localspec.forecast.timing import StepCosts


@dataclass(frozen=True, slots=True)
class AgainstClairvoyant:
    """The least time that the drafters of `auto` allow, and what `auto` takes longer.

    speed_up: over plain decoding; the interval is over prompts.
    """

    speed_up: ConfidenceInterval
    losses: Losses


def against_clairvoyant(
    names: Sequence[str],
    steps: Sequence[Sequence[SimulatedStep]],
    scored: ScoredAnswers,
    costs: StepCosts,
) -> AgainstClairvoyant:
    """Compare simulated steps with the least time. names: of the drafters that may draft."""
    losses = Losses()
    plain, least = [], []
    for number, (answer, each) in enumerate(zip(scored.answers, steps, strict=True)):
        known = _known_drafts(names, number, scored, costs)
        best = Clairvoyant(len(answer.tokens), answer.limit, costs, known)
        losses.add_all(best.losses(each))
        plain.append(len(answer.tokens) * costs.plain)
        least.append(best.seconds)
    prompts = [tuple(each.prompt) for each in scored.answers]
    return AgainstClairvoyant(ratio_interval(plain, least, prompts), losses)


def _known_drafts(
    names: Sequence[str],
    number: int,
    scored: ScoredAnswers,
    costs: StepCosts,
) -> dict[str, KnownDrafts]:
    """How far each drafter is right in the answer of this number."""
    found = {
        name: KnownDrafts(costs.drafters[name], True, drafts[number].correct)
        for name, drafts in scored.drafts.items()
        if name in names
    }
    model, answer = scored.model, scored.answers[number]
    drawn = scored.scored[number].drawn if model else None
    if model and drawn is not None:
        cost, right = costs.drafters[model.name], right_runs(drawn)
        reading = cost.reading_seconds(len(answer.prompt))
        found[model.name] = KnownDrafts(cost, False, right, reading)
    for head in scored.recorded:
        right = head.replayed(number).correct
        found[head.name] = KnownDrafts(costs.drafters[head.name], False, right)
    return found
