"""EmbeddingModel: a model that is loaded beside the one that writes text, and makes vectors."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.errors import DeviceError, WorkerError
from localspec.llama.compute_thread import OwnThread
from localspec.llama.embedder import Embedder
from localspec.llama.placement import Placement
from localspec.server.errors import queue_full, shutting_down
from localspec.server.metrics import Metrics
from localspec.utils.format import counted

log = logging.getLogger("localspec.server")

_Input = TypeVar("_Input")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Embedded:
    """What became of texts.

    vectors: (texts, width), as the model computes them; scores where it ranks. tokens: of all
    texts. seconds: from the request on. load_seconds: of them, those of loading the model.
    """

    vectors: NDArray[np.float32]
    tokens: int
    seconds: float
    load_seconds: float


class EmbeddingModel:
    """An embedding model, which is loaded and computed in a thread of its own.

    names: what clients may call it; the first is listed. path: its GGUF. ranks: whether it gives
    scores of a query with documents. n_ctx: the most tokens of a text. load: loads it. queue_limit:
    how many requests may wait. unload_after: so many seconds after the last request it is unloaded,
    and the next one loads it again; None: never. metrics: that count its texts.

    A request computes one batch of texts at a time, in turns with others: a question does not wait
    until a whole library has been read. Passes of the model that writes text are computed
    meanwhile, and their digits do not depend on it.
    """

    def __init__(
        self,
        names: Sequence[str],
        path: Path,
        load: Callable[[OwnThread], Embedder],
        *,
        ranks: bool,
        n_ctx: int,
        queue_limit: int = 64,
        unload_after: float | None = None,
    ) -> None:
        self.names, self.path, self.ranks, self.n_ctx = names, path, ranks, n_ctx
        self.metrics = Metrics()
        self._load, self._queue_limit, self._unload_after = load, queue_limit, unload_after
        self._thread = OwnThread()
        # Those that all of the server share read the prompts of chats.
        self._tokenizing = ThreadPoolExecutor(1, "localspec-tokenizing")
        self._embedder: Embedder | None = None
        # Held while a thread reads the vocabulary.
        self._reading = threading.Lock()
        self._stopped = asyncio.Event()
        self._active, self._ended = 0, perf_counter()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """Its name in lists."""
        return self.names[0]

    @property
    def placement(self) -> Placement | None:
        """Where it is; None while it is not loaded."""
        return self._embedder.model.placement if self._embedder else None

    @property
    def ends_at(self) -> datetime | None:
        """When it is unloaded, unless a request comes; None: never."""
        if self._unload_after is None:
            return None
        since = 0.0 if self._active else perf_counter() - self._ended
        return datetime.now(UTC) + timedelta(seconds=max(0.0, self._unload_after - since))

    def load(self) -> Embedder:
        """Load it, unless it is loaded. Raises what loading raises."""
        return self._thread.task(self._loaded).result()

    def close(self) -> None:
        """Free it, and end its thread."""
        self._stopped.set()
        self._thread.task(self._unload).result()
        self._thread.close()
        self._tokenizing.shutdown()

    def stop(self) -> None:
        """End all requests; from the thread of the event loop."""
        self._stopped.set()
        if self._embedder:
            self._embedder.stop()

    async def embed(
        self, inputs: Sequence[_Input], tokens_of: Callable[[Embedder, _Input], list[int]]
    ) -> Embedded:
        """The vectors of inputs, in their order. tokens_of: may raise for an input.

        Raises ApiError (429) where too many requests wait, and what loading and computing raise.
        """
        if self._active > self._queue_limit:
            raise queue_full(f"{self._active} requests for {self.name} wait")
        began = perf_counter()
        self._active += 1
        is_over = threading.Event()  # also where the client has gone
        try:
            if self._embedder is None:
                await self._own(self._loaded)
            loaded = perf_counter()
            texts = await asyncio.get_running_loop().run_in_executor(
                self._tokenizing,
                lambda: [self._tokens(tokens_of, each) for each in inputs if not is_over.is_set()],
            )
            found = [
                await self._own(partial(self._vectors, batch)) for batch in Embedder.batches(texts)
            ]
        finally:
            is_over.set()
            self._active -= 1
            self.wind_up()
        seconds, tokens = perf_counter() - began, sum(map(len, texts))
        self.metrics.add_embeddings(len(texts), tokens, seconds)
        facts = {"embedded_texts": len(texts), "prompt_tokens": tokens, "seconds": seconds}
        told = f"{self.name}, {counted(len(texts), 'text')}, {tokens} tokens"
        log.info("%s, %.2f s", told, seconds, extra={"facts": facts})
        vectors = np.concatenate(found) if found else np.empty((0, 0), np.float32)
        return Embedded(vectors, tokens, seconds, loaded - began)

    async def _own(self, work: Callable[[], _Result]) -> _Result:
        if self._stopped.is_set():
            raise shutting_down()
        job = asyncio.get_running_loop().run_in_executor(self._thread, work)
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            both: list[asyncio.Future[Any]] = [job, stopped]
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            job.cancel()
            stopped.cancel()
        if job not in done or (self._stopped.is_set() and job.exception()):
            raise shutting_down()
        return job.result()

    def _loaded(self) -> Embedder:
        if self._embedder is None:
            self._embedder = self._load(self._thread)
        return self._embedder

    def _tokens(
        self, tokens_of: Callable[[Embedder, _Input], list[int]], each: _Input
    ) -> list[int]:
        """The tokens of an input; called in any thread, as it reads nothing but the vocabulary."""
        while not self._stopped.is_set():
            with self._reading:
                if self._embedder:
                    return tokens_of(self._embedder, each)
            self.load()  # a device has failed meanwhile, in another request
        raise shutting_down()

    def _vectors(self, batch: Sequence[list[int]]) -> NDArray[np.float32]:
        try:
            return self._loaded().vectors(batch)
        except (DeviceError, WorkerError):
            self._unload()  # the next request has it anew
            raise

    def _unload(self) -> None:
        with self._reading:
            embedder, self._embedder = self._embedder, None
        if embedder:
            embedder.close()

    async def unload(self) -> None:
        """Unload it behind the batch that is computed; the next one has it again."""
        await self._own(self._unload)

    def wind_up(self) -> None:
        """Unload it in a while, unless a request comes."""
        self._ended = perf_counter()
        if self._timer:
            self._timer.cancel()
        if self._unload_after is not None and not self._active:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._unload_after, self._run_down)

    def _run_down(self) -> None:
        if not self._active and self._embedder:
            self._thread.submit(self._unload)
            log.info("%s is unloaded", self.name)
