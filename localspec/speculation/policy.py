"""Policy: who drafts the next step, and how deep; and the one that never changes its mind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, backlog


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do in the next step.

    drafter: None is a plain step. depth: its most tokens. go_on: see `Limit`. draft: its proposal,
    where the policy has asked for it already.
    """

    drafter: Drafter | None = None
    depth: int = 0
    go_on: Callable[[float], bool] | None = None
    draft: Draft | None = None


PLAIN_STEP = Decision()


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did and took.

    drafted: the tokens proposed. verified: how many of them the target saw. width: the rows of its
    pass, padding included. tokens: what was committed. seconds: of the whole step, of which
    draft_seconds went to drafting. again: how many tokens of the text its pass had to evaluate
    once more, because of drafts before.
    """

    drafted: Sequence[int]
    verified: int
    width: int
    tokens: Sequence[int]
    seconds: float
    draft_seconds: float
    again: int = 0


class Policy(Protocol):
    """Decides before each step; learns after it."""

    @property
    def drafters(self) -> Sequence[Drafter]:
        """All that may be chosen; the loop tells each of them about the text."""
        ...

    def begin(self) -> None:
        """A generation starts."""
        ...

    def decide(self, limit: Limit) -> Decision:
        """The next step. limit: the most that makes sense, its depth 0 or more."""
        ...

    def padded(self, rows: int) -> int:
        """To how many rows a pass over `rows` is padded."""
        ...

    def keep(self, draft: Draft) -> int:
        """How many tokens of this proposal the target should see."""
        ...

    def learn(self, step: Step) -> None:
        """What came of the decision."""
        ...


def may_draft(drafter: Drafter, limit: Limit) -> bool:
    """Whether it has read the text but for the last token, or may do so now."""
    return not limit.hurried or backlog(drafter) <= 1
