"""Fixed depth: a policy that always drafts with the same depth."""

from collections.abc import Sequence
from typing import cast

from localspec.control.base_costs import WIDEST
from localspec.control.joint_drafting import Drafting
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowShare, writing
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import ComputedDrafter, Drafter, Limit, has_room, runs_model
from localspec.speculation.policy import PLAIN_STEP, Decision, Step, may_draft

# A drafter whose first token has a lower chance leaves the step to the next drafter.
_SURE_ENOUGH = 0.5


class FixedDepth:
    """A policy of one depth: the first drafter drafts that has a proposal or runs a model.

    A drafter that estimates its chances (see Traits) is passed over when its first token is more
    likely wrong than right. The last drafter is never passed over. One without room for all of the
    text drafts from its end.

    rows: the text's share of the rows of all texts; passes: what their decodes cost. None: the text
    is written alone. The drafts of others delay it no longer than they delay an adaptive text.
    widest: the most rows to which a decode is padded: with others, or to keep its rows.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        depth: int,
        *,
        rows: RowShare | None = None,
        passes: PassCosts | None = None,
        widest: int = WIDEST,
    ) -> None:
        self.drafters = drafters
        self._depth = depth
        self._rows, self._passes, self._widest = rows, passes, widest

    def begin(self) -> None:
        """Tell the other texts how deep this one drafts."""
        self._offer()

    def reads(self, drafter: Drafter, lacking: int = 0) -> bool:
        """Always."""
        return True

    def decide(self, limit: Limit) -> Decision:
        """Choose the first drafter that proposes tokens."""
        if self._passes and self._rows:
            self._passes.share(writing(self._rows.others))
        depth = min(self._depth, limit.depth)
        drafters = [
            each for each in self.drafters if may_draft(each, limit, from_end=_from_end(each))
        ]
        if depth < 1 or not drafters:
            return PLAIN_STEP
        for drafter in drafters[:-1]:
            chances = drafter.traits.chances
            if chances and list(chances(limit.to(1))) < [_SURE_ENOUGH]:
                continue
            if runs_model(drafter):
                return Decision(drafter, depth, from_end=_from_end(drafter))
            draft = cast(ComputedDrafter, drafter).propose(limit.to(depth))
            if len(draft):
                return Decision(drafter, depth, draft=draft)
        return Decision(drafters[-1], depth, from_end=_from_end(drafters[-1]))

    rests = False

    def look(self, limit: Limit) -> None:
        """It decides in every step."""

    def padded(self, rows: int) -> int:
        """The fastest number of rows for a decode with other texts.

        Alone there is no padding, unless changes of the rows cost time.
        """
        passes, others = self._passes, self._rows and self._rows.others
        if not passes or not (others or passes.keeps_width):
            return rows
        return passes.padded(rows, self._widest)

    def keep(self, draft: Draft) -> int:
        """The whole draft."""
        return len(draft)

    def ahead(self, draft: Draft) -> int:
        """The next draft, and the guess of the token before it; nothing beside other texts."""
        return 0 if self._rows and self._rows.others else self._depth + 1

    def learn(self, step: Step) -> None:
        """Learn what passes cost, and how far the text is ahead of one without drafts."""
        if self._passes and step.tells_cost:
            self._passes.learn(step.rows, None if step.ahead else step.pass_seconds)
        if self._rows and self._passes:
            self._rows.learn(step, self._passes, lost=self._passes.take_lost())
            self._offer()
            if step.drafted:
                self._rows.ask_all()

    def _offer(self) -> None:
        """Tell the other texts of the next draft: that is decided, whatever they do."""
        if self._rows:
            depth = self._depth if self.drafters else 0
            self._rows.offer.bring([0.0] * depth, Drafting([0.0] * (depth + 1)), depth)

    def lose(self, drafter: Drafter, *, for_good: bool) -> None:
        """Draft with the others."""
        self.drafters = [each for each in self.drafters if each is not drafter]

    def plain_time(self, step: Step) -> None:
        """Nothing is measured."""
        return None


def _from_end(drafter: Drafter) -> bool:
    return not has_room(drafter)
