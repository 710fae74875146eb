"""Ctrl-C at any place of what begins and ends a session and its answers: no slot stays in use."""

from collections.abc import Iterator

import pytest
from fakes.slots_after import interrupted_anywhere
from fakes.tiny import tiny_model

from localspec import Engine, Session, load
from localspec.engine.slot import Slot
from localspec.engine.slots import Slots
from localspec.errors import LocalspecError

FILES = ("engine/slots.py", "engine/slot_loan.py")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    path = tiny_model("llama")
    with load(path, "none", threads=1, context=128, kv_type="f32", texts=2) as loaded:
        yield loaded


def test_a_session(engine: Engine) -> None:
    def work() -> None:
        with Session(engine, max_tokens=1, ignore_eos=True) as session:
            session.send("ab").result()

    files = *FILES, "conversation/session.py", "conversation/answer.py"
    seen = interrupted_anywhere(engine, work, files)
    assert {"Session.__init__", "Slots.lend", "Answer._run", "Answer._finish"} <= seen
    assert {"SlotLoan.give_back", "Answer.close", "Slots._free"} <= seen


def test_sessions_in_the_middle_of_their_answers(engine: Engine) -> None:
    def work() -> None:
        with Session(engine, max_tokens=3) as first, Session(engine, max_tokens=3) as second:
            next(first.send("ab"))
            next(second.send("cd"))

    assert "Slots._open_further" in interrupted_anywhere(engine, work, FILES)


def test_what_an_interrupt_has_left_of_a_close_is_closed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next call of it, and by the end of a `with`."""
    free, interrupts = Slots._free, [1]

    def interrupted(slots: Slots, slot: Slot) -> None:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        free(slots, slot)

    with Session(engine) as other, pytest.raises(KeyboardInterrupt), Session(engine):
        assert len(engine.slots.further) == 1
        monkeypatch.setattr(Slots, "_free", interrupted)
    assert not engine.slots.further
    with pytest.raises(LocalspecError, match="was closed"):
        other.send("a")
