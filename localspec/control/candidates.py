"""Candidates: what a policy may choose of a drafter."""

from localspec.control.acceptance import NO_PRIOR, AcceptancePrior
from localspec.control.candidate import Candidate
from localspec.control.drafter_cost import DrafterCost
from localspec.speculation.drafter import Drafter


def candidates_of(
    drafter: Drafter, cost: DrafterCost, prior: AcceptancePrior = NO_PRIOR
) -> list[Candidate]:
    """A drafter as a candidate, behind the one that reads only the end of a prompt if it can."""
    candidate = Candidate(drafter, cost, prior)
    if not drafter.traits.end:
        return [candidate]
    end = Candidate(drafter, cost, prior, from_end=True)
    candidate.other_way, end.other_way = end, candidate
    return [end, candidate]
