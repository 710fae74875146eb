"""Fixed depth: the policy that never changes its mind."""

from collections.abc import Sequence

from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.policy import PLAIN_STEP, Decision, Step, may_draft

# With a chance below this, a drafter lets the next one have its turn.
_SURE_ENOUGH = 0.5


class FixedDepth:
    """Always the same depth, from the first drafter that has something to propose.

    Of several, one that knows its chances has to be surer than a coin, or the next one has its
    turn; the last one always drafts.
    """

    def __init__(self, drafters: Sequence[Drafter], depth: int) -> None:
        self.drafters = drafters
        self._depth = depth

    def begin(self) -> None:
        """Nothing to do."""

    def decide(self, limit: Limit) -> Decision:
        """The first proposal there is."""
        depth = min(self._depth, limit.depth)
        drafters = [drafter for drafter in self.drafters if may_draft(drafter, limit)]
        if depth < 1 or not drafters:
            return PLAIN_STEP
        for drafter in drafters[:-1]:
            chances = drafter.traits.chances
            if chances and list(chances(1)) < [_SURE_ENOUGH]:
                continue
            draft = drafter.propose(limit.to(depth))
            if len(draft):
                return Decision(drafter, depth, draft=draft)
        return Decision(drafters[-1], depth)

    def padded(self, rows: int) -> int:
        """As many as there are."""
        return rows

    def keep(self, draft: Draft) -> int:
        """All of it."""
        return len(draft)

    def learn(self, step: Step) -> None:
        """Nothing to learn."""
