"""Policy: chooses the drafter and the depth of each step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, backlog, can_leave_out, has_room
from localspec.stats import StepRecord


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one step.

    drafter: None means a plain step. depth: the most tokens of the draft. go_on: see `Limit`.
    draft: the drafter's proposal, if the policy has already requested it. from_end: see `Limit`.
    """

    drafter: Drafter | None = None
    depth: int = 0
    go_on: Callable[[float], bool] | None = None
    draft: Draft | None = None
    from_end: bool = False


PLAIN_STEP = Decision()


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step, and the time it took.

    drafted: the proposed tokens. verified: how many of them the target verified.
    width: the rows of the target's pass, padding included. tokens: the committed tokens.
    seconds: the time of the whole step. draft_seconds: the part of it spent on drafting.
    reading: by the name of each drafter that was shown hidden rows, the seconds in which it read
        them. They are in `seconds`, but not in `draft_seconds`.
    ahead: how many tokens were drawn ahead during the pass.
    again: how many tokens of the text the pass evaluated once more, after the rollback of an
        earlier draft.
    others: the rows of each other text in the same decode. decode_seconds: of this decode. share:
        the part of it that is in `seconds`.
    """

    drafted: Sequence[int]
    verified: int
    width: int
    tokens: Sequence[int]
    seconds: float
    draft_seconds: float
    again: int = 0
    others: tuple[int, ...] = ()
    decode_seconds: float = 0.0
    share: float = 0.0
    reading: Mapping[str, float] = field(default_factory=dict)
    ahead: int = 0

    def record(self, drafter: Drafter | None, accepted: int) -> StepRecord:
        """What is kept of the step. drafter: that was asked. accepted: drafted tokens."""
        return StepRecord(
            drafter.name if drafter else None,
            len(self.drafted),
            self.verified,
            accepted,
            len(self.tokens),
            self.width,
            self.seconds,
            self.draft_seconds,
            sum(self.reading.values()),
        )

    @property
    def rows(self) -> int:
        """The rows of the whole decode."""
        return self.width + sum(self.others)

    @property
    def is_plain_decode(self) -> bool:
        """Whether the decode had one row of each text."""
        return self.rows == 1 + len(self.others) and not self.again

    @property
    def decoding_seconds(self) -> float:
        """The seconds without drafting, and without reading hidden rows."""
        return self.seconds - self.draft_seconds - sum(self.reading.values())

    @property
    def host_seconds(self) -> float:
        """The seconds outside the models."""
        return self.decoding_seconds - self.share

    @property
    def pass_seconds(self) -> float:
        """The seconds outside the models, and of the whole decode."""
        return self.host_seconds + self.decode_seconds

    @property
    def tells_cost(self) -> bool:
        """Whether it tells what a pass costs.

        A plain pass that evaluates tokens again, because of an earlier draft, says nothing about
        the cost of plain decoding.
        """
        return self.verified > 0 or not self.again


class Policy(Protocol):
    """Decides before each step, and learns from the step after it."""

    @property
    def drafters(self) -> Sequence[Drafter]:
        """All drafters of this policy; the decoder keeps each of them up to date with the text."""
        ...

    def begin(self) -> None:
        """Start a generation."""
        ...

    def reads(self, drafter: Drafter, lacking: int = 0) -> bool:
        """Whether to show a drafter hidden rows of the text, asked before it and in each step.

        lacking: how many tokens of the prompt the target evaluates again only to show them.
        """
        ...

    def decide(self, limit: Limit) -> Decision:
        """Decide about the next step. limit: as for the drafter, but its depth may be 0."""
        ...

    @property
    def rests(self) -> bool:
        """Whether the last decision needed no drafter, and all texts wait for what follows it.

        Then cheap drafters are told of the step while the pass of the next one is computed, or
        before that if the next decision needs them (`Limit.catch_up`).
        """
        ...

    def look(self, limit: Limit) -> None:
        """Ask the drafters for the next decision, while the pass of a step that rests is computed.

        limit: of that step.
        """
        ...

    def padded(self, rows: int) -> int:
        """The number of rows to which a pass over `rows` rows is padded."""
        ...

    def keep(self, draft: Draft) -> int:
        """How many tokens of this draft the target should verify."""
        ...

    def ahead(self, draft: Draft) -> int:
        """How many tokens its drafter should draw ahead while the target verifies this draft.

        It is asked only of a drafter that can (`Traits.ready`), after `keep`.
        """
        ...

    def learn(self, step: Step) -> None:
        """Learn from a step that is done."""
        ...

    def lose(self, drafter: Drafter, *, for_good: bool) -> None:
        """Do without a drafter that cannot draft any more, from this step on.

        for_good: also in texts to come; else to the end of this one.
        """
        ...

    def plain_time(self, step: Step) -> float | None:
        """Seconds that plain steps would have taken for the tokens of a step; None: not known."""
        ...


def may_draft(drafter: Drafter, limit: Limit, *, from_end: bool = False) -> bool:
    """Whether the drafter has read the text except its last token, or has the time to read it.

    from_end: as in Limit; there must be something to leave out, or else room for all of the text.
    """
    can = can_leave_out(drafter) if from_end else has_room(drafter)
    return can and (not limit.hurried or backlog(drafter, from_end=from_end) <= 1)
