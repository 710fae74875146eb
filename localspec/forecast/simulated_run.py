"""Simulated run: the steps and the seconds that decoding one answer would take."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.control.drafter_cost import DrafterCost
from localspec.forecast.answers import RecordedAnswer
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

    @classmethod
    def of(cls, steps: Sequence["SimulatedStep"]) -> "SimulatedRun":
        """The sum of steps."""
        return cls(
            sum(each.tokens for each in steps),
            len(steps),
            sum(each.drafted for each in steps),
            sum(each.accepted for each in steps),
            sum(each.seconds + each.deciding + each.unexpected for each in steps),
        )


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A step of a simulated policy.

    drafter: None without a draft. drafted, accepted: tokens that were verified, and that were
    right. tokens: committed. seconds: of drafting, the pass and the host; of these `reading` is for
    tokens that the drafter had not read, and `switching` for a pass of another width than before.
    deciding: the policy's own seconds. unexpected: what a real step took longer than all these.
    """

    drafter: str | None
    drafted: int
    accepted: int
    tokens: int
    seconds: float
    reading: float
    switching: float
    deciding: float
    unexpected: float = 0.0


def plain_run(answer: RecordedAnswer, costs: StepCosts) -> SimulatedRun:
    """Plain decoding: a step for each token."""
    tokens = len(answer.tokens)
    return SimulatedRun(tokens, tokens, 0, 0, tokens * costs.plain)


def model_free_run(
    answer: RecordedAnswer, counts: StepCounts, costs: StepCosts, drafter: DrafterCost
) -> SimulatedRun:
    """Decoding with a model-free drafter, which costs time in every step, draft or not."""
    return _run(answer, counts, costs, counts.steps * drafter.first)


def draft_model_run(
    answer: RecordedAnswer, counts: StepCounts, costs: StepCosts, drafter: DrafterCost
) -> SimulatedRun:
    """Decoding with a draft model, which also has the prompt to read."""
    drafting = drafter.reading_seconds(len(answer.prompt)) + sum(
        float(steps) * drafter.of(depth) for depth, steps in enumerate(counts.by_depth) if depth
    )
    return _run(answer, counts, costs, drafting)


def _run(
    answer: RecordedAnswer, counts: StepCounts, costs: StepCosts, drafting: float
) -> SimulatedRun:
    # At a fixed depth, passes are not padded.
    passes = sum(
        float(steps) * costs.pass_of(rows) for rows, steps in enumerate(counts.by_depth, 1)
    )
    tokens = len(answer.tokens)
    seconds = passes + counts.switches * costs.switch + drafting + tokens * costs.host
    return SimulatedRun(tokens, counts.steps, counts.drafted, counts.accepted, seconds)
