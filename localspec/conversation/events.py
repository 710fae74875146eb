"""Events: what an `Answer` yields while the model writes, in order."""

from dataclasses import dataclass

from localspec.conversation.turns import Turn
from localspec.engine.generation import Token
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class Gauge:
    """Context usage in tokens: `used` of `size`."""

    used: int
    size: int

    @property
    def share(self) -> float:
        """The used share of the context: 0 is empty, 1 is full."""
        return self.used / self.size


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the user about something unexpected, such as tokens evaluated twice."""

    line: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The context was full: from now on the model does not see the oldest turns.

    turns: the number of turns that the model does not see, earlier drops included.
    tokens: the length of the shortened prompt, which is evaluated again.
    """

    turns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Progress of the prompt's evaluation: `done` of `total` tokens."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of the answer.

    said, thought: the new text of the answer and of the model's reasoning. Either may be empty: a
    token may end inside a character or a tag, and the next token then carries its text too.
    gauge: the context usage after this token.
    """

    token: Token
    said: str
    thought: str
    gauge: Gauge


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of an answer.

    turn: the answer; None if it was stopped before its first token. said, thought: text that had
    been held back because it could have been part of a tag or a stop string. stats: the counts and
    times of the whole answer.
    """

    turn: Turn | None
    stop_reason: str
    said: str
    thought: str
    stats: Stats
    gauge: Gauge


Event = Notice | Dropped | Reading | Piece | Ended
