"""A engine_thread of the chat, watched: what happened, and waiting until it has."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Conversation
from localspec_tui.engine_events import Comparison, EngineEvent
from localspec_tui.engine_thread import EngineThread

SECONDS = 120
Kind = TypeVar("Kind")


class EventRecorder:
    """A engine_thread, and what has happened since `done` was called last."""

    def __init__(self, engine_thread: EngineThread) -> None:
        self.engine_thread = engine_thread
        self.happened: list[EngineEvent] = []

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, self.happened[-5:]
            self.happened += self.engine_thread.drain()
            time.sleep(0.001)

    def done(self) -> list[EngineEvent]:
        self.until(lambda: not self.engine_thread.busy)
        happened, self.happened = [*self.happened, *self.engine_thread.drain()], []
        return happened

    def send(self, text: str) -> list[EngineEvent]:
        """Say it, and wait for the answer."""
        self.engine_thread.send(text)
        return self.done()

    def pieces(self, count: int) -> None:
        """Wait until so many have come."""
        self.until(lambda: len(of(Piece, self.happened)) >= count)

    @property
    def conversation(self) -> Conversation:
        assert self.engine_thread.session
        return self.engine_thread.session.conversation

    @property
    def contents(self) -> list[str]:
        return [turn.content for turn in self.conversation.turns]

    def tree(self) -> object:
        """Everything that was said, and where it goes on."""
        turns = [
            (turn, turn.before, list(turn.after), turn.raw, turn.written, turn.stop_reason)
            for turn in self.conversation.everything()
        ]
        return turns, self.conversation.last


def of(kind: type[Kind], happened: Sequence[object]) -> list[Kind]:
    return [each for each in happened if isinstance(each, kind)]


def kinds(happened: Sequence[object]) -> list[str]:
    """Their names, a run of the same once."""
    names = [type(each).__name__ for each in happened]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def said(happened: Sequence[object]) -> str:
    """What the screen has to show of an answer."""
    return "".join(each.said for each in happened if isinstance(each, (Piece, Ended)))


def compared(watched: EventRecorder) -> Comparison:
    """Compare, and make sure that nothing else has changed."""
    before, stats = watched.tree(), watched.engine_thread.stats
    watched.engine_thread.compare()
    happened = watched.done()
    assert watched.tree() == before
    assert watched.engine_thread.stats is stats
    (result,) = of(Comparison, happened)
    assert happened == [result]
    return result


def tamper(watched: EventRecorder, place: int) -> None:
    answer = watched.conversation.turns[-1]
    tokens = list(answer.written.tokens)
    tokens[place] += 1
    answer.written = answer.written._replace(tokens=tuple(tokens))
