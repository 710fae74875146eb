"""Fixed depth: a policy that always drafts with the same depth."""

from collections.abc import Sequence
from typing import cast

from localspec.speculation.draft import Draft
from localspec.speculation.drafter import ComputedDrafter, Drafter, Limit, runs_model
from localspec.speculation.policy import PLAIN_STEP, Decision, Step, may_draft

# A drafter whose first token has a lower chance leaves the step to the next drafter.
_SURE_ENOUGH = 0.5


class FixedDepth:
    """A policy of one depth: the first drafter drafts that has a proposal or runs a model.

    A drafter that estimates its chances (see Traits) is passed over when its first token is more
    likely wrong than right. The last drafter is never passed over.
    """

    def __init__(self, drafters: Sequence[Drafter], depth: int) -> None:
        self.drafters = drafters
        self._depth = depth

    def begin(self) -> None:
        """Nothing to do."""

    def reads(self, drafter: Drafter, lacking: int = 0) -> bool:
        """Always."""
        return True

    def decide(self, limit: Limit) -> Decision:
        """Choose the first drafter that proposes tokens."""
        depth = min(self._depth, limit.depth)
        drafters = [drafter for drafter in self.drafters if may_draft(drafter, limit)]
        if depth < 1 or not drafters:
            return PLAIN_STEP
        for drafter in drafters[:-1]:
            chances = drafter.traits.chances
            if chances and list(chances(1)) < [_SURE_ENOUGH]:
                continue
            if runs_model(drafter):
                return Decision(drafter, depth)
            draft = cast(ComputedDrafter, drafter).propose(limit.to(depth))
            if len(draft):
                return Decision(drafter, depth, draft=draft)
        return Decision(drafters[-1], depth)

    def padded(self, rows: int) -> int:
        """No padding."""
        return rows

    def keep(self, draft: Draft) -> int:
        """The whole draft."""
        return len(draft)

    def learn(self, step: Step) -> None:
        """Nothing to learn."""

    def plain_time(self, step: Step) -> None:
        """Nothing is measured."""
        return None
