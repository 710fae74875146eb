"""Pass request: a pass that a thread waits for, and with which others it may share a decode."""

from dataclasses import dataclass

from localspec.llama.context import Context
from localspec.llama.sequence import sequence_of
from localspec.speculation.passes import WIDE, Pass, Scores

# A pass is computed before others once so many rows were computed before it.
_OVERDUE = 256


@dataclass(slots=True, eq=False)
class PassRequest:
    """A pass that a thread waits for.

    rows_before: the rows that were computed since it was requested. alone: whether it is computed
    in a decode of its own, because a decode with others has failed. seconds: its part of the time.
    texts: how many texts shared its decode; 0 if others had many rows in it.
    """

    requested: Pass
    rows_before: int = 0
    alone: bool = False
    scores: Scores | None = None
    error: Exception | None = None
    seconds: float = 0.0
    texts: int = 1

    @property
    def context(self) -> Context:
        return self.requested.sequence.context  # type: ignore[return-value]

    @property
    def text(self) -> list[int]:
        """The tokens of the text so far, which a pass without a draft makes longer."""
        return sequence_of(self.requested).tokens

    @property
    def rows(self) -> int:
        """The rows of the pass, with the tokens of its text that are evaluated once more."""
        return self.context.rows_of(self.requested)

    @property
    def done(self) -> bool:
        return self.scores is not None or self.error is not None

    @property
    def urgency(self) -> tuple[bool, int]:
        """The pass with the least is computed first: an overdue one, then one of a small model."""
        return self.rows_before < _OVERDUE, self.context.model.size

    def can_share_with(self, other: "PassRequest") -> bool:
        """Whether a decode of both costs less than two, and gives each the digits it has alone."""
        if self.alone or other.alone:
            return False
        if self.context.splits_unequal:
            return self.rows == other.rows
        return self.context.model.is_offloaded or (self.rows < WIDE) == (other.rows < WIDE)
