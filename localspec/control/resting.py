"""Resting: plain steps in which a text does not decide, and what it looks at meanwhile."""

from collections.abc import Sequence

from localspec.control.candidate import Candidate
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import Offer, RowShare
from localspec.speculation.drafter import Limit


class Resting:
    """When a text rests (`RowShare.rests`), and what tells that it should decide all the same.

    A text alone looks at once whether a copy has become likely. Beside others, who would wait for
    that, it looks while its pass is computed, and decides in the step after that.

    in_company: whether the last step is a rest beside others.
    """

    def __init__(self, rows: RowShare) -> None:
        self._rows, self._has_found, self.in_company = rows, False, False

    def begins(
        self,
        candidates: Sequence[Candidate],
        limit: Limit,
        passes: PassCosts,
        others: Sequence[Offer],
    ) -> bool:
        """Whether this step is a rest; ask once per step. others: the offers of other texts."""
        has_found, self._has_found, self.in_company = self._has_found, False, False
        may_rest = self._rows.rests(others) and not has_found
        may_rest = may_rest and not any(each.is_shown_for_trial for each in candidates)
        self._rows.asked = not may_rest or (not others and self._is_due(candidates, limit, passes))
        if self._rows.asked:
            return False
        self._rows.offer.decide(0)
        for each in candidates:
            each.rest(others)
        self.in_company = bool(others)
        return True

    def _is_due(self, candidates: Sequence[Candidate], limit: Limit, passes: PassCosts) -> bool:
        """Whether a text alone should decide: a trial is due, or a row for a copy may pay."""
        limit.catch_up()
        row = passes.seconds(2) / passes.seconds(1) - 1 + self._rows.deciding
        due = any([each.begins_trial() for each in candidates])
        return due or any(each.has_likely_copy(limit, row) for each in candidates)

    def look(self, candidates: Sequence[Candidate], limit: Limit) -> None:
        """Look whether a copy has become likely, for the next step.

        The first token of a copy is the one that is computed now.
        """
        self._has_found = any(each.has_likely_copy(limit, place=2) for each in candidates)
