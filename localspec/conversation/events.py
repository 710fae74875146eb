"""Events: what happens while an answer is written, in order."""

from dataclasses import dataclass

from localspec.conversation.turns import Turn
from localspec.engine.generation import Token
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class Gauge:
    """How much of a context is taken, in tokens."""

    used: int
    size: int

    @property
    def share(self) -> float:
        """0 is empty, 1 is full."""
        return self.used / self.size


@dataclass(frozen=True, slots=True)
class Notice:
    """A line about something that is not as could be expected."""

    line: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The oldest turns do not fit any more: the model does not see them from here on.

    turns: how many, in all. tokens: of the prompt that is left, which is evaluated again.
    """

    turns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The prompt is being evaluated: so many of its tokens are done, of all."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the answer.

    said, thought: what became certain with it of what the model says and of what it thinks before.
    Either may be empty, or hold what earlier tokens began. gauge: after it.
    """

    token: Token
    said: str
    thought: str
    gauge: Gauge


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is over; nothing follows.

    turn: the answer, None if it was stopped before its first token. said, thought: what was still
    held back. stats: of the whole answer.
    """

    turn: Turn | None
    stop_reason: str
    said: str
    thought: str
    stats: Stats
    gauge: Gauge


Event = Notice | Dropped | Reading | Piece | Ended
