"""Requests to an embedding model: what each waits for, without a model that takes its time."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.served import PATIENCE

from localspec.errors import DeviceError
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.errors import ApiError


class Held:
    """An embedder whose first batch ends once it may. begun: that batch is being computed."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.closed = threading.Event()
        self.fails = self.stopped = False
        self.loads = 0
        self.batches: list[int] = []

    def load(self, _thread: object) -> Any:
        self.loads += 1
        return self

    def vectors(self, texts: Sequence[list[int]]) -> Any:
        self.batches.append(len(texts))
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        if self.fails:
            self.fails = False
            raise DeviceError("the device is lost")
        return np.ones((len(texts), 3), np.float32)

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def model(held: Held) -> Iterator[EmbeddingModel]:
    model = EmbeddingModel(["m"], Path("m.gguf"), held.load, ranks=False, n_ctx=512, queue_limit=1)
    yield model
    held.may_end.set()
    model.close()


async def begun(held: Held) -> None:
    assert await asyncio.to_thread(held.begun.wait, PATIENCE)


def test_short_texts_wait_for_no_pass_before_their_own(held: Held, model: EmbeddingModel) -> None:
    """They are tokenized while a long text of others is computed, and share one pass."""
    read: list[int] = []

    def tokens_of(_embedder: object, at: int) -> list[int]:
        read.append(at)
        if len(read) == 50:
            held.may_end.set()
        return [1, 2]

    async def both() -> None:
        long = asyncio.create_task(model.embed([0], lambda *_: [1] * 512))
        await begun(held)
        short = await model.embed(range(50), tokens_of)
        assert short.vectors.shape == (50, 3) and short.tokens == 100
        await long

    asyncio.run(both())
    assert read == [*range(50)] and held.batches == [1, 50]


def test_a_device_that_fails_fails_one_request(held: Held, model: EmbeddingModel) -> None:
    """One whose texts are tokenized meanwhile has the model anew."""
    held.fails = True

    def inputs() -> Iterator[int]:
        yield 1
        held.may_end.set()
        assert held.closed.wait(PATIENCE)
        yield 2

    async def both() -> None:
        lost = asyncio.create_task(model.embed([0], lambda *_: [1]))
        await begun(held)
        other: Any = inputs()
        assert (await model.embed(other, lambda _, at: [at])).tokens == 2
        with pytest.raises(DeviceError):
            await lost

    asyncio.run(both())
    assert held.loads == 2


def test_a_question_does_not_wait_for_a_library(held: Held, model: EmbeddingModel) -> None:
    """One request may wait here, and a third one is refused."""

    async def three() -> None:
        library = asyncio.create_task(model.embed(range(200), lambda *_: [1] * 512))
        await begun(held)
        read = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tokens_of(*_: object) -> list[int]:
            loop.call_soon_threadsafe(read.set)
            return [1]

        question = asyncio.create_task(model.embed([0, 1], tokens_of))
        await read.wait()
        with pytest.raises(ApiError, match="2 requests for m wait already") as raised:
            await model.embed([0], tokens_of)
        assert (raised.value.status, raised.value.headers) == (429, {"Retry-After": "5"})
        held.may_end.set()
        await asyncio.gather(library, question)

    asyncio.run(three())
    # In turns: behind a few batches.
    assert len(held.batches) == 201 and held.batches.index(2) < 100


def test_what_is_given_up_is_neither_tokenized_nor_computed(
    held: Held, model: EmbeddingModel
) -> None:
    read: list[int] = []
    reading, may_go_on = threading.Event(), threading.Event()

    def tokens_of(_embedder: object, at: int) -> list[int]:
        read.append(at)
        reading.set()
        assert may_go_on.wait(PATIENCE)
        return [1]

    async def given_up() -> None:
        computed = asyncio.create_task(model.embed(range(20), lambda *_: [1] * 512))
        await begun(held)
        tokenized = asyncio.create_task(model.embed(range(20), tokens_of))
        assert await asyncio.to_thread(reading.wait, PATIENCE)
        for each in (computed, tokenized):
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each
        may_go_on.set()
        held.may_end.set()
        assert (await model.embed([0, 1], lambda *_: [1])).tokens == 2

    asyncio.run(given_up())
    assert read == [0] and held.batches == [1, 2]


def test_the_end_of_the_server_waits_for_no_pass(held: Held, model: EmbeddingModel) -> None:
    """Nor do the requests behind it."""

    async def stop() -> None:
        asked = [asyncio.create_task(model.embed([0] * 99, lambda *_: [1])) for _ in range(2)]
        await begun(held)
        model.stop()
        for each in asked:
            with pytest.raises(ApiError) as raised:
                await each
            assert (raised.value.status, raised.value.code) == (503, "shutting_down")
        with pytest.raises(ApiError, match="shutting down"):
            await model.embed([0], lambda *_: [1])

    asyncio.run(stop())
    assert held.stopped and held.batches == [63] and not held.may_end.is_set()
