"""What of a conversation a model sees, over a scripted engine."""

from typing import Any

from fakes.scripted import Script

from localspec.conversation.events import Dropped, Piece
from localspec.conversation.session import Session


def test_what_is_changed_during_an_answer_counts_from_the_next_one() -> None:
    """Also where the oldest turns are dropped meanwhile."""
    engine: Any = Script(answers=["a" * 40, "b" * 400], context=64).load()
    with Session(engine, when_full="drop", system="first") as session:
        session.send("one").result()
        answer, dropped = session.send("two"), False
        for event in answer:
            if isinstance(event, Piece):
                session.system = "second"
            dropped |= isinstance(event, Dropped)
        assert dropped and answer._window.dropped
        assert "<system>first" in answer._window.prompt.text
        assert "<system>second" in session.written.text
