"""ModelSwitch: which model of a server is loaded, and who uses it.

A model takes the place of another once all that use that one are done. Requests come to their turn
in the order in which they came, so none waits for ever behind those for another model.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

from localspec.gguf.reader import read_header
from localspec.server.catalog import Catalog, ServedModel
from localspec.server.errors import queue_full, shutting_down
from localspec.server.service import Service
from localspec.server.waiting import waited_for_model
from localspec.utils.format import format_seconds

log = logging.getLogger("localspec.server")

# How often it is looked whether texts that were given up have ended, which takes them a step.
_POLL_SECONDS = 0.01


class ModelSwitch:
    """Lends the model that a request names, and changes it between requests.

    catalog: the models. queue_limit: how many requests may wait while another model is used or
    loaded. unload_after: so many seconds after the last request the model is unloaded; None: never.
    changed: told of each service that is loaded in the place of another. closing: whether the
    server ends, and no further request is taken. loads: whether a model is being loaded.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        queue_limit: int = 64,
        unload_after: float | None = None,
        changed: Callable[[Service], None] = lambda _service: None,
    ) -> None:
        self.catalog = catalog
        self.closing = self.loads = False
        self.waiting = 0
        self._queue_limit, self._unload_after, self._changed = queue_limit, unload_after, changed
        self._door = asyncio.Lock()
        # Set while nobody uses the model.
        self._idle = asyncio.Event()
        self._idle.set()
        self._active, self._ended = 0, perf_counter()
        self._timer: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None
        # What uses the model in threads; those of a request whose client has gone may go on.
        self._threads: ThreadPoolExecutor | None = None

    @classmethod
    def of(cls, service: Service) -> "ModelSwitch":
        """That of a service alone."""
        only = ServedModel(service.names, service.engine.model.path, lambda: service)
        catalog = Catalog([only])
        catalog.enter(only, service)
        return cls(catalog)

    @property
    def ends_at(self) -> datetime | None:
        """When the model is unloaded, unless a request comes; None: never."""
        if self._unload_after is None:
            return None
        since = perf_counter() - self._ended if self._idle.is_set() else 0.0
        return datetime.now(UTC) + timedelta(seconds=max(0.0, self._unload_after - since))

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[Service]:
        """The service of the model of this name, which stays loaded inside.

        Raises ApiError for an unknown name, where too many wait, and where the server ends; what
        loading raises.
        """
        named = self.catalog.find(name)
        if self._threads is None:
            self._begin_threads()
        began = perf_counter()
        await self._enter(named)
        waited_for_model.set(perf_counter() - began)
        service = self.catalog.service
        assert service
        try:
            yield service
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()
                self.wind_up()

    async def _enter(self, named: ServedModel | None) -> None:
        if self._door.locked() and self.waiting >= self._queue_limit:
            raise queue_full(f"{self.waiting} requests wait for a model")
        self.waiting += 1
        try:
            async with self._door:
                wanted = named or self.catalog.usual
                is_loaded = bool(self.catalog.service_of(wanted))
                if not is_loaded:
                    await self._idle.wait()
                self._require_open()
                if not is_loaded:
                    await _whole(self._change(wanted))
                self._active += 1
                self._idle.clear()
        finally:
            self.waiting -= 1

    def _require_open(self) -> None:
        if self.closing:
            raise shutting_down()

    async def unload(self, name: str | None) -> None:
        """Unload the model of this name, if it is loaded, once nobody uses it. Raises ApiError."""
        async with self._door:
            if self.catalog.service_of(self.catalog.present(name)):
                await self._idle.wait()
                await _whole(self._unload())

    def wind_up(self) -> None:
        """Unload the model in a while, unless a request comes."""
        self._ended = perf_counter()
        if self._timer:
            self._timer.cancel()
        if self._unload_after is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._unload_after, self._run_down)

    def _run_down(self) -> None:
        self._unloading = asyncio.create_task(self._unload_if_idle(self._ended))

    async def _unload_if_idle(self, ended: float) -> None:
        """Unload the model, unless a request has come. ended: when the last one ended."""
        async with self._door:
            if not self._active and ended == self._ended and self.catalog.service:
                await self._unload()

    async def _change(self, wanted: ServedModel) -> None:
        """Load a model in the place of the one that is loaded. Raises what loading raises."""
        if self.catalog.service:
            # A file that cannot be read costs nobody the other model.
            await asyncio.to_thread(read_header, wanted.path)
            await self._unload()
            self._require_open()
        log.info("loading %s", wanted.name)
        began, self.loads = perf_counter(), True
        try:
            service = await asyncio.to_thread(wanted.load)
        finally:
            self.loads = False
        self.catalog.enter(wanted, service)
        log.info("%s is loaded, after %s", wanted.name, format_seconds(perf_counter() - began))
        self._changed(service)

    async def _unload(self) -> None:
        """Free the model that is loaded; nobody uses it."""
        service = self.catalog.service
        assert service
        self.catalog.loaded = None
        while service.pool.busy:
            await asyncio.sleep(_POLL_SECONDS)
        await self._end_threads()
        await asyncio.to_thread(service.close)
        log.info("%s is unloaded", self.catalog.usual.name)

    async def _end_threads(self) -> None:
        """Wait for all that runs in threads, and take others from now on."""
        before = self._threads
        self._begin_threads()
        if before:
            await asyncio.to_thread(before.shutdown)

    def _begin_threads(self) -> None:
        self._threads = ThreadPoolExecutor(thread_name_prefix="localspec-server")
        asyncio.get_running_loop().set_default_executor(self._threads)


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Do work that cannot be left half done: who is cancelled meanwhile waits for its end."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
