"""Ctrl-C at any place of what begins and ends a text: no slot stays in use."""

from collections.abc import Callable, Iterator

import pytest
from fakes.slots_after import OPTIONS, interrupted_anywhere
from fakes.tiny import tiny_model

from localspec import Engine, load
from localspec.engine.scheduler import Scheduler
from localspec.engine.slots import Slots
from localspec.errors import LocalspecError
from localspec.llama.model import Model

FILES = (
    "engine/slots.py",
    "engine/slot_loan.py",
    "engine/slot.py",
    "engine/texts.py",
    "loading/loader.py",
    "llama/cached_text.py",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Its caches have no room for a second text."""
    with load(tiny_model("llama"), "none", threads=1, context=128, kv_type="f32") as loaded:
        yield loaded


def test_a_whole_text(engine: Engine) -> None:
    seen = interrupted_anywhere(engine, lambda: engine.generate("abc", **OPTIONS), FILES)
    assert {"Texts._start", "Slots.lend_to_text", "Slots.leave_at_end", "Slot.start"} <= seen
    assert {"SlotLoan.give_back", "Slots._free", "Slot.stop"} <= seen


def test_a_text_that_is_left(engine: Engine) -> None:
    def work() -> None:
        with engine.stream("abc", **OPTIONS) as text:
            next(text)

    assert "SlotLoan.give_back" in interrupted_anywhere(engine, work, FILES)


def test_a_text_beside_another(engine: Engine) -> None:
    """It has a further slot, which is made for it, and freed behind it."""

    def work() -> None:
        with engine.stream("ab", **OPTIONS) as first, engine.stream("cd", **OPTIONS) as second:
            next(first), next(second)

    seen = interrupted_anywhere(engine, work, FILES)
    assert {"Slots._open_further", "Slot.__init__"} <= seen
    assert {"LoadedModels.for_another_text", "Slot.close", "CachedText.close"} <= seen


def test_texts_whose_reader_keeps_them(engine: Engine) -> None:
    """The error, with the frames that hold them, is kept, as in a notebook."""
    kept: list[object] = []

    def work() -> None:
        kept.append(engine.generate("abc", **OPTIONS))

    assert interrupted_anywhere(engine, work, ("engine/texts.py", "engine/generation.py"))
    assert kept


def test_a_slot_that_was_never_noted_keeps_no_text_registered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_text: Callable[[Scheduler], object] = Scheduler.new_text

    def interrupted(scheduler: Scheduler) -> None:
        new_text(scheduler)
        raise KeyboardInterrupt

    scheduler = engine.slots.scheduler
    with engine.stream("ab", **OPTIONS):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Scheduler, "new_text", interrupted)
            engine.stream("cd", **OPTIONS)
        assert not scheduler.has_one_text
    engine.generate("ab", **OPTIONS)
    assert scheduler.has_one_text


def test_what_an_interrupt_has_left_of_an_engine_is_freed_by_the_next_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, interrupts = Slots._free_models, [1]

    def interrupted(slots: Slots, weights: Model | None) -> None:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        free(slots, weights)

    monkeypatch.setattr(Slots, "_free_models", interrupted)
    with pytest.raises(KeyboardInterrupt), load(tiny_model("llama"), "none", context=128) as engine:
        model = engine.model
    with pytest.raises(LocalspecError, match="was closed"):
        _ = model.handle
    engine.close()
