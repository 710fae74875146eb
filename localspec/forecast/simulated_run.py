"""Simulated run: the steps and the seconds that decoding one answer would take."""

from dataclasses import dataclass

from localspec.control.drafter_cost import DrafterCost
from localspec.forecast.answers import Answer
from localspec.forecast.replay import StepCounts
from localspec.forecast.timing import StepCosts


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Expected counts, and seconds of generation, without the target's reading of the prompt."""

    tokens: int
    steps: float
    drafted: float
    accepted: float
    seconds: float


def plain_run(answer: Answer, costs: StepCosts) -> SimulatedRun:
    """Plain decoding: a step for each token."""
    tokens = len(answer.tokens)
    return SimulatedRun(tokens, tokens, 0, 0, tokens * costs.plain)


def model_free_run(
    answer: Answer, counts: StepCounts, costs: StepCosts, drafter: DrafterCost
) -> SimulatedRun:
    """Decoding with a model-free drafter, which costs time in every step, draft or not."""
    return _run(answer, counts, costs, counts.steps * drafter.first)


def draft_model_run(
    answer: Answer, counts: StepCounts, costs: StepCosts, drafter: DrafterCost
) -> SimulatedRun:
    """Decoding with a draft model, which also has the prompt to read."""
    drafting = drafter.reading_seconds(len(answer.prompt)) + sum(
        float(steps) * drafter.of(depth) for depth, steps in enumerate(counts.by_depth) if depth
    )
    return _run(answer, counts, costs, drafting)


def _run(answer: Answer, counts: StepCounts, costs: StepCosts, drafting: float) -> SimulatedRun:
    # At a fixed depth, passes are not padded.
    passes = sum(
        float(steps) * costs.pass_of(rows) for rows, steps in enumerate(counts.by_depth, 1)
    )
    tokens = len(answer.tokens)
    seconds = passes + counts.switches * costs.switch + drafting + tokens * costs.host
    return SimulatedRun(tokens, counts.steps, counts.drafted, counts.accepted, seconds)
