"""An engine's slots behind Ctrl-C at one place after the other: none may stay in use."""

from collections.abc import Callable
from typing import Any

from fakes.interrupts import each_interrupt

from localspec import Engine

OPTIONS: dict[str, Any] = {"max_tokens": 4, "seed": 3, "temperature": 0.8, "ignore_eos": True}


def written(engine: Engine) -> list[int]:
    """The ids of a text, which is written with the own slot, and beside which nothing is left."""
    slots, text = engine.slots, engine.stream("abc", **OPTIONS)
    assert slots.own.running is text
    ids = [token.id for token in text]
    assert not (slots.further or slots._loans or slots.own.is_writing)
    scheduler = slots.scheduler
    assert scheduler._texts == [slots.own.scheduled]
    assert not (scheduler.lock.is_held or scheduler._steps or scheduler._waiting)
    assert len(slots.own.target.context.sequences) == 1
    return ids


def interrupted_anywhere(
    engine: Engine, work: Callable[[], object], files: tuple[str, ...]
) -> set[str]:
    """Interrupt `work` at each place of files, and write a text after each; the functions."""
    functions, expected = set(), written(engine)
    for function, line in each_interrupt(work, files):
        assert written(engine) == expected, (function, line)
        functions.add(function)
    return functions
