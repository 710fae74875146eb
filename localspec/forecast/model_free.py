"""Model-free drafters over an answer: what they would draft at each token, which is certain."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.suffix import Suffix
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.replay import StepCounts
from localspec.speculation.drafter import Drafter, Limit, proposal
from localspec.speculation.passes import run
from localspec.utils.tokens import common_prefix


@dataclass(frozen=True, slots=True)
class ReplayedDrafts:
    """The lengths of the drafts at each token of one answer.

    drafted: (n,) tokens of the draft. correct: (n,) how many of them, from the first on, are the
    answer's. limit: as in RecordedAnswer.
    """

    drafted: NDArray[np.int_]
    correct: NDArray[np.int_]
    limit: int

    def __len__(self) -> int:
        return self.drafted.size


def replay_drafts(drafter: Drafter, answer: RecordedAnswer, depth: int) -> ReplayedDrafts:
    """Draft up to `depth` tokens at each token of an answer.

    A shorter draft is the beginning of a longer one, so this tells all smaller depths, too.
    """
    drafter.begin(answer.prompt)
    drafted, correct = [], []
    limit = Limit(depth, answer.sampler.prefix(answer.prompt), answer.sampler)
    for place in range(len(answer.tokens)):
        tokens = run(proposal(drafter, limit)).tokens
        drafted.append(len(tokens))
        correct.append(common_prefix(tokens, answer.tokens[place:]))
        drafter.observe(answer.outcome(place))
    return ReplayedDrafts(np.array(drafted), np.array(correct), answer.limit)


def fresh(drafter: Drafter) -> Drafter:
    """Another model-free drafter, which has seen no text.

    `suffix` keeps none either: no drafter may copy from the answers themselves.
    """
    return Suffix(max_replaced=0) if isinstance(drafter, Suffix) else MODEL_FREE[drafter.name]()


def count_steps(drafts: ReplayedDrafts, depth: int, *, first_plain: bool = False) -> StepCounts:
    """Count the steps that decoding this answer takes, with drafts of up to `depth` tokens.

    first_plain: as in `expected_steps`.
    """
    by_depth = np.zeros(depth + 1)
    drafted = accepted = steps = start = switches = 0
    depth_before = -1
    while start < len(drafts):
        most = depth if start or not first_plain else 0
        depth_here = min(most, drafts.limit - start - 1, int(drafts.drafted[start]))
        accepted_here = min(depth_here, int(drafts.correct[start]))
        by_depth[depth_here] += 1
        switches += depth_here != depth_before
        depth_before = depth_here
        drafted, accepted, steps = drafted + depth_here, accepted + accepted_here, steps + 1
        start += accepted_here + 1
    return StepCounts(steps, drafted, accepted, by_depth, switches)


def first_token_accuracy(answers: Sequence[ReplayedDrafts]) -> float | None:
    """The share of correct first tokens among all drafts; None if there is no draft."""
    drafts = sum(int((each.drafted > 0).sum()) for each in answers)
    correct = sum(int((each.correct > 0).sum()) for each in answers)
    return correct / drafts if drafts else None
