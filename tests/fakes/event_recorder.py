"""Records the events of an engine thread, and waits for them."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Conversation
from localspec_tui.engine_events import Comparison, EngineEvent
from localspec_tui.engine_thread import EngineThread

TIMEOUT = 120
Kind = TypeVar("Kind")


class EventRecorder:
    """events: those since the last call of `wait_done`."""

    def __init__(self, engine_thread: EngineThread) -> None:
        self.engine_thread = engine_thread
        self.events: list[EngineEvent] = []

    def until(self, condition: Callable[[], object]) -> None:
        """Record events until the condition is true."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, self.events[-5:]
            self.events += self.engine_thread.drain()
            time.sleep(0.001)

    def wait_done(self) -> list[EngineEvent]:
        """Wait until no command waits or runs, and return the events up to then."""
        self.until(lambda: not self.engine_thread.busy)
        events, self.events = [*self.events, *self.engine_thread.drain()], []
        return events

    def send(self, text: str) -> list[EngineEvent]:
        """Send a message, and wait for the whole answer."""
        self.engine_thread.send(text)
        return self.wait_done()

    def wait_pieces(self, count: int) -> None:
        """Wait for so many pieces of an answer."""
        self.until(lambda: len(events_of(Piece, self.events)) >= count)

    @property
    def conversation(self) -> Conversation:
        assert self.engine_thread.session
        return self.engine_thread.session.conversation

    @property
    def contents(self) -> list[str]:
        return [turn.content for turn in self.conversation.turns]

    def tree(self) -> object:
        """Every turn of the conversation, and the last one of the active branch."""
        turns = [
            (turn, turn.before, list(turn.after), turn.raw, turn.written, turn.stop_reason)
            for turn in self.conversation.everything()
        ]
        return turns, self.conversation.last


def events_of(kind: type[Kind], events: Sequence[object]) -> list[Kind]:
    """The events of one class."""
    return [each for each in events if isinstance(each, kind)]


def event_names(events: Sequence[object]) -> list[str]:
    """The class names of events; equal neighbours are named once."""
    names = [type(each).__name__ for each in events]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def answer_text(events: Sequence[object]) -> str:
    """The text of an answer, from its events."""
    return "".join(each.said for each in events if isinstance(each, (Piece, Ended)))


def compare(recorder: EventRecorder) -> Comparison:
    """Compare the last answer, and check that this changes nothing."""
    before, stats = recorder.tree(), recorder.engine_thread.stats
    recorder.engine_thread.compare()
    events = recorder.wait_done()
    assert recorder.tree() == before
    assert recorder.engine_thread.stats is stats
    (result,) = events_of(Comparison, events)
    assert events == [result]
    return result


def tamper(recorder: EventRecorder, place: int) -> None:
    """Change one token of the last answer."""
    answer = recorder.conversation.turns[-1]
    tokens = list(answer.written.tokens)
    tokens[place] += 1
    answer.written = answer.written._replace(tokens=tuple(tokens))
