"""Texts in an event loop: each in a thread of its own, which ends with its reader."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest
from fakes.company import PATIENCE
from fakes.tiny import tiny_model

from localspec.conversation.events import Ended, Piece
from localspec.conversation.session import Session
from localspec.engine.background import Background
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Result, Token
from localspec.engine.scheduler import ScheduledText
from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.loading.loader import LoadedModels
from localspec.speculation.passes import Pass, Scores

_T = TypeVar("_T")
OPTIONS: dict[str, Any] = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
LONG: dict[str, Any] = {**OPTIONS, "max_tokens": 100}


@pytest.fixture(scope="module")
def shared() -> Iterator[Engine]:
    with load(tiny_model("llama"), "suffix", threads=1, context=128, kv_type="f32") as engine:
        yield engine


class HeldPasses:
    """Passes of texts that wait until they may go on, so that a text is surely being written."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self._reached = threading.Event()
        self._compute = ScheduledText.compute

    def compute(self, text: ScheduledText, requested: Pass) -> Scores:
        self._reached.set()
        assert self.go_on.wait(PATIENCE)
        return self._compute(text, requested)

    async def is_reached(self) -> None:
        """A text has come to its first pass."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE)


def text_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("localspec-text")]


def wait_for_threads() -> None:
    """Wait until the threads of all texts have ended."""
    until = monotonic() + PATIENCE
    while text_threads():
        assert monotonic() < until
        sleep(0.01)


@pytest.fixture
def engine(shared: Engine) -> Iterator[Engine]:
    """No test leaves a thread or a slot behind, and the caches are as they should be."""
    known = shared.generate("abc", **OPTIONS).token_ids
    yield shared
    gc.collect()
    wait_for_threads()
    assert shared.generate("abc", **OPTIONS).token_ids == known
    assert not shared.slots.further
    assert not shared.slots._with_text


def run(work: Callable[[], Awaitable[_T]]) -> _T:
    async def whole() -> _T:
        return await asyncio.wait_for(work(), PATIENCE)

    return asyncio.run(whole())


def test_the_text_is_that_of_stream(engine: Engine) -> None:
    async def tokens() -> list[Token]:
        return [token async for token in engine.astream("abc", **OPTIONS)]

    expected = engine.generate("abc", **OPTIONS)
    found = run(tokens)
    assert [token.id for token in found] == expected.token_ids
    assert "".join(token.text for token in found) == expected.text
    assert all(token.logprob is not None for token in found)

    async def awaited() -> Result:
        return await engine.astream("abc", **OPTIONS)

    assert run(awaited).token_ids == expected.token_ids
    result = run(lambda: engine.agenerate("abc", **OPTIONS))
    assert (result.token_ids, result.logprobs) == (expected.token_ids, None)


def test_options_that_can_be_read_only_once(engine: Engine) -> None:
    """Every text and every answer has them."""
    text = engine.generate("abc", **OPTIONS).text
    stop = text[2:4]
    expected = text[: text.index(stop)]
    options = {**OPTIONS, "stop": iter([stop])}
    assert run(lambda: engine.agenerate("abc", **options)).text == expected
    with Session(engine, raw=True, **{**OPTIONS, "stop": iter([stop])}) as session:
        for _ in range(2):
            assert session.send("abc").result().stop_reason == "stop"
            session.reset()
        session.switch(stop=iter(["never"]))
        assert session.send("abc").result().stop_reason == "length"
        answer = session.regenerate(stop=iter([stop]))
        assert answer.result().stop_reason == "stop"


def test_many_at_once(engine: Engine) -> None:
    prompts = ["abc", "def", "an en"] * 7
    expected = [engine.generate(each, **OPTIONS).token_ids for each in prompts[:3]] * 7

    async def all_of_them() -> list[Result]:
        return await asyncio.gather(*(engine.agenerate(each, **OPTIONS) for each in prompts))

    assert [each.token_ids for each in run(all_of_them)] == expected
    by_list = run(lambda: engine.agenerate(prompts, **OPTIONS))
    assert [each.token_ids for each in by_list] == expected


@pytest.mark.parametrize("answers", [False, True])
def test_a_text_of_another_event_loop(engine: Engine, answers: bool) -> None:
    """Each loop has texts of its own; one that was begun in another says so, and can be closed."""
    with Session(engine, **LONG) as session:

        def begin() -> Background[Any, Any]:
            return session.asend("abc") if answers else engine.astream("abc", **LONG)

        for _ in range(2):  # an engine and a session serve one loop after the other
            asked = begin()
            run(asked.__anext__)
            for use in (asked.__anext__, asked._value):
                with pytest.raises(LocalspecError, match="begun in another event loop"):
                    run(use)
            run(asked.aclose)
            assert not text_threads()

        whole = begin()

        async def read(text: Background[Any, Any]) -> Any:
            return await text

        assert run(lambda: read(whole)) == run(lambda: read(whole))


def test_the_event_loop_goes_on_meanwhile(engine: Engine) -> None:
    async def work() -> int:
        task, turns = asyncio.ensure_future(engine.agenerate("abc", **LONG)), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert run(work) > 1


@pytest.mark.parametrize("after", [1, 3, 30])
def test_a_cancelled_task_ends_the_text(engine: Engine, after: int) -> None:
    read: list[Token] = []

    async def work() -> None:
        enough = asyncio.Event()

        async def reader() -> None:
            async for token in engine.astream("abc", **LONG):
                read.append(token)
                if len(read) == after:
                    enough.set()
                    await asyncio.sleep(0)

        task = asyncio.ensure_future(reader())
        other = asyncio.ensure_future(engine.agenerate("def", **OPTIONS))
        await enough.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len((await other).token_ids) == 24

    run(work)
    assert after <= len(read) < 100


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldPasses]:
    passes = HeldPasses()
    monkeypatch.setattr(ScheduledText, "compute", lambda *each: passes.compute(*each))
    yield passes
    passes.go_on.set()


def test_cancelling_waits_for_the_end(engine: Engine, held: HeldPasses) -> None:
    """When the cancelled task has ended, so has its text: the own slot is free again."""

    async def work() -> None:
        task = asyncio.ensure_future(engine.agenerate("abc", **LONG))
        await held.is_reached()
        assert engine.slots._with_text
        task.cancel()
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not text_threads()
        assert not engine.slots._with_text

    run(work)


def test_stopped_while_it_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for one text: another is cancelled before it begins, and has no token."""

    def refuse(_self: LoadedModels) -> LoadedModels:
        raise ModelLoadError("there is no room for another text")

    monkeypatch.setattr(LoadedModels, "for_another_text", refuse)

    async def work() -> None:
        cancel = threading.Event()
        async with engine.astream("abc", **LONG) as running:
            await anext(running)
            waiting = asyncio.ensure_future(anext(engine.astream("def", cancel=cancel), None))
            stopped = asyncio.ensure_future(anext(engine.astream("def")))
            whole = asyncio.ensure_future(engine.astream("def", cancel=cancel)._value())
            await asyncio.sleep(0.05)
            cancel.set()
            stopped.cancel()
            assert await waiting is None
            assert ((await whole).token_ids, (await whole).stop_reason) == ([], "cancelled")
            with pytest.raises(asyncio.CancelledError):
                await stopped

    run(work)


def test_a_stream_that_is_left(engine: Engine) -> None:
    async def forgotten() -> None:
        async for _token in engine.astream("abc", **LONG):
            break

    async def closed() -> None:
        async with engine.astream("abc", **LONG) as running:
            await anext(running)
        assert not text_threads()
        assert [token async for token in running] == []
        with pytest.raises(LocalspecError, match="stopped before its end"):
            await running

    async def never_begun() -> None:
        running = engine.astream("abc", **LONG)
        await running.aclose()
        assert [token async for token in running] == []

    for work in (forgotten, closed, never_begun):
        run(work)
        wait_for_threads()


def test_a_loop_that_is_closed_in_mid_stream(engine: Engine) -> None:
    """The thread is far ahead, or in a step; it ends although its stream is still referred to."""
    loop = asyncio.new_event_loop()
    running = engine.astream("abc", **LONG)
    loop.run_until_complete(anext(running))
    loop.close()
    wait_for_threads()
    assert not engine.slots._with_text


def test_a_loop_that_ends_with_tasks_in_it(engine: Engine, held: HeldPasses) -> None:
    async def main() -> None:
        tasks = [asyncio.ensure_future(engine.agenerate("abc", **LONG)) for _ in range(4)]
        await held.is_reached()
        assert tasks
        held.go_on.set()

    asyncio.run(main())
    assert not text_threads()


def test_errors_are_raised_where_one_awaits(engine: Engine) -> None:
    with pytest.raises(InvalidValueError, match="depth is -1"):
        engine.astream("abc", depth=-1)
    running = engine.astream([99999], **OPTIONS)
    with pytest.raises(InvalidValueError, match="99999"):
        run(lambda: anext(running))
    with pytest.raises(InvalidValueError, match="number 1: prompt token is -3"):
        run(lambda: engine.agenerate([[4], [-3]], **OPTIONS))


def test_two_readers_of_one_stream(engine: Engine) -> None:
    async def work() -> list[int]:
        running, found = engine.astream("abc", **OPTIONS), list[int]()

        async def read() -> None:
            async for token in running:
                found.append(token.id)

        await asyncio.gather(read(), read())
        return found

    assert run(work) == engine.generate("abc", **OPTIONS).token_ids


def test_an_answer(engine: Engine) -> None:
    with Session(engine, **OPTIONS) as session, Session(engine, **OPTIONS) as other:
        expected = [other.send(text).result().content for text in ("abc", "def")]

        async def work() -> list[str]:
            turn = await session.asend("abc")
            events = [event async for event in session.asend("def")]
            assert isinstance(events[-1], Ended)
            return [turn.content, "".join(each.said for each in events if isinstance(each, Piece))]

        first, second = run(work)
        assert [first, second] == expected == [session.turns[1].content, session.turns[3].content]
        with pytest.raises(InvalidValueError, match="empty"):
            run(lambda: anext(session.asend("")))
        assert len(session.turns) == 4


def test_other_answers_to_a_question(engine: Engine) -> None:
    """Variants and branches are those of `regenerate` and `edit`."""
    sampled: dict[str, Any] = {**OPTIONS, "temperature": 1, "seed": 3}
    with Session(engine, **sampled) as session, Session(engine, **sampled) as other:
        expected = [
            other.send("abc").result().content,
            other.regenerate().result().content,
            other.edit(0, "def", max_tokens=9).result().content,
        ]

        async def work() -> list[str]:
            first = await session.asend("abc")
            again = await session.aregenerate()
            said = [
                event.said
                async for event in session.aedit(0, "def", max_tokens=9)
                if isinstance(event, Piece)
            ]
            return [first.content, again.content, "".join(said)]

        assert run(work) == expected
        assert len(set(expected)) == 3
        assert [turn.content for turn in session.turns] == ["def", expected[2]]
        before = session.turns
        with pytest.raises(InvalidValueError, match="there is no turn 7"):
            run(lambda: session.aedit(7, "x"))
        with pytest.raises(InvalidValueError, match="depth is -1"):
            run(lambda: session.aregenerate(depth=-1))
        assert session.turns == before
        session.reset()
        with pytest.raises(InvalidValueError, match="no message yet"):
            run(lambda: session.aregenerate())


def test_a_stopped_answer_goes_on(engine: Engine) -> None:
    with Session(engine, **LONG) as session, Session(engine, **LONG) as other:
        whole = other.send("abc").result()

        async def stopped() -> None:
            async with session.asend("abc") as answer:
                async for event in answer:
                    if isinstance(event, Piece):
                        return

        run(stopped)
        begun = session.turns[1]
        done = len(begun.written.tokens)
        # Its text may end within a character.
        assert begun.stop_reason == "cancelled"
        assert begun.written.tokens == whole.written.tokens[:done]
        assert 0 < done < LONG["max_tokens"]

        async def work() -> int:
            async with session.acontinue_answer() as answer:
                return sum([isinstance(event, Piece) async for event in answer])

        assert run(work) == LONG["max_tokens"] - done
        assert session.turns[1:] == [begun]
        assert (begun.written, begun.content) == (whole.written, whole.content)
        session.reset()
        with pytest.raises(InvalidValueError, match="no message yet"):
            run(lambda: session.acontinue_answer())


def test_a_cancelled_answer_stays_as_far_as_it_came(engine: Engine) -> None:
    with Session(engine, **LONG) as session:

        async def work() -> None:
            async for event in session.asend("abc"):
                if isinstance(event, Piece):
                    raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(work())
        gc.collect()
        while text_threads():
            sleep(0.01)
        assert session.turns[1].stop_reason == "cancelled"
        assert run(lambda: session.asend("go on", max_tokens=5)).stop_reason == "length"


def test_work_that_fails_after_some_items() -> None:
    class BrokenError(Exception):
        pass

    def work(_stopped: Callable[[], bool]) -> Any:
        yield 1
        raise BrokenError

    async def read() -> None:
        running: Background[int, None] = Background(work)
        assert await anext(running) == 1
        with pytest.raises(BrokenError):
            await anext(running)
        assert [item async for item in running] == []

    run(read)
