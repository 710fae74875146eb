"""Course: what decoding one answer takes, in steps and in seconds."""

from dataclasses import dataclass

from localspec.control.cost_model import DrafterCost
from localspec.forecast.answers import Answer
from localspec.forecast.replay import Walk
from localspec.forecast.timing import Costs


@dataclass(frozen=True, slots=True)
class Course:
    """Expected counts, and seconds of generation (the target's reading of the prompt is apart)."""

    tokens: int
    calls: float
    drafted: float
    accepted: float
    seconds: float


def plain_course(answer: Answer, costs: Costs) -> Course:
    """A pass for each token."""
    tokens = len(answer.tokens)
    return Course(tokens, tokens, 0, 0, tokens * costs.plain)


def course_of_copies(answer: Answer, walk: Walk, costs: Costs, drafter: DrafterCost) -> Course:
    """With a free drafter, which is asked at every step, whether it proposes or not."""
    return _course(answer, walk, costs, walk.calls * drafter.first)


def course_of_model(answer: Answer, walk: Walk, costs: Costs, drafter: DrafterCost) -> Course:
    """With a drafter that is a model; it has the prompt to read, too."""
    drafting = drafter.reading(len(answer.prompt)) + sum(
        float(calls) * drafter.of(depth) for depth, calls in enumerate(walk.by_depth) if depth
    )
    return _course(answer, walk, costs, drafting)


def _course(answer: Answer, walk: Walk, costs: Costs, drafting: float) -> Course:
    # At a fixed depth, passes are not padded.
    passes = sum(float(calls) * costs.pass_of(rows) for rows, calls in enumerate(walk.by_depth, 1))
    tokens = len(answer.tokens)
    seconds = passes + walk.switches * costs.switch + drafting + tokens * costs.host
    return Course(tokens, walk.calls, walk.drafted, walk.accepted, seconds)
