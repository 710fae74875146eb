"""What waits in a step, as an `explain` may: for room, or for another text; nobody for ever."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.company import PATIENCE, Threads
from fakes.tiny import tiny_model

from localspec.engine.engine import Engine, load
from localspec.engine.generation import Generation
from localspec.errors import LocalspecError, ModelLoadError
from localspec.loading.loader import LoadedModels

OPTIONS: dict[str, Any] = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
# What a text does in its step.
Act = Callable[[], object]


@pytest.fixture
def engine() -> Iterator[Engine]:
    path = tiny_model("llama")
    engine = load(path, str(path), threads=1, context=128, texts=4)
    yield engine
    # It would wait for ever for a text that does.
    threads = Threads()
    threads.start(engine.close)
    threads.join()
    scheduler = engine.slots.scheduler
    assert not (engine.slots._with_text or scheduler._steps or scheduler._awaited)


def acting(act: Act) -> Callable[[object], None]:
    """An `explain` that acts once."""
    acts = [act]

    def explain(_decision: object) -> None:
        if acts:
            acts.pop()()

    return explain


def read_in_threads(texts: list[Generation]) -> list[LocalspecError]:
    """Read texts, each in a thread of its own; returns what they raised."""
    threads, errors = Threads(), list[LocalspecError]()

    def read(text: Generation) -> None:
        try:
            text.result()
        except LocalspecError as error:
            errors.append(error)

    for text in texts:
        threads.start(read, text)
    threads.join()
    return errors


def hold(engine: Engine, *acts: Act) -> list[Generation]:
    """Texts whose steps do these acts when all of them are in a step."""
    inside = [threading.Event() for _ in acts]

    def act(number: int) -> None:
        inside[number].set()
        # The lock goes to the other threads, as in a step that computes a pass.
        with engine.slots.lock:
            while not all(each.is_set() for each in inside):
                engine.slots.scheduler.wait(0.01)
        acts[number]()

    return [
        engine.stream("abc", explain=acting(lambda number=number: act(number)), **OPTIONS)
        for number in range(len(acts))
    ]


def test_texts_that_each_begin_another_do_not_wait_for_each_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = hold(engine, *[lambda: engine.generate("def", **OPTIONS)] * 2)
    honest = LoadedModels.for_another_text

    def for_another_text(self: LoadedModels) -> LoadedModels:
        if len(engine.slots.all) == len(begun):
            raise ModelLoadError("there is no room for another text")
        return honest(self)

    monkeypatch.setattr(LoadedModels, "for_another_text", for_another_text)
    errors = read_in_threads(begun)
    # As soon as one has ended, the other's may begin.
    assert errors
    for error in errors:
        assert str(error).startswith("room for another text cannot be waited for in the middle of")


def test_texts_that_each_begin_another_go_on_where_there_is_room(engine: Engine) -> None:
    assert not read_in_threads(hold(engine, *[lambda: engine.generate("def", **OPTIONS)] * 2))


@pytest.mark.parametrize("use", [Generation.close, lambda text: next(text, None)])
@pytest.mark.parametrize("count", [2, 3])
def test_texts_that_wait_in_a_ring(
    engine: Engine, use: Callable[[Generation], Any], count: int
) -> None:
    """Each uses the next one, and the last one the first."""
    texts: list[Generation] = []

    def use_next(number: int) -> Act:
        return lambda: use(texts[(number + 1) % count])

    texts += hold(engine, *map(use_next, range(count)))
    (error,) = read_in_threads(texts)
    assert str(error).startswith(
        "a text that waits for this one cannot be waited for in the middle"
    )


@pytest.mark.parametrize("begins_first", [False, True])
def test_a_text_that_is_closed_in_the_step_in_which_it_begins_another(
    engine: Engine, begins_first: bool
) -> None:
    closing, texts = threading.Event(), list[Generation]()

    def begin() -> None:
        if not begins_first:
            with engine.slots.lock:
                while not engine.slots.scheduler._awaited:
                    engine.slots.scheduler.wait(0.01)
        engine.generate("def", **OPTIONS)

    def close() -> None:
        closing.set()
        texts[0].close()

    texts += hold(engine, begin, close)
    assert not read_in_threads(texts)
    assert closing.wait(PATIENCE)
    assert [each.stop_reason for each in texts] == ["cancelled", "length"]
