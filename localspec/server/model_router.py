"""ModelRouter: several models at one address, of which one is loaded at a time.

A request that names a model waits until that is loaded. Requests come to their turn in the order in
which they came, so none waits for ever behind those for another model.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from localspec.errors import LocalspecError
from localspec.server.catalog import Catalog, ServedModel
from localspec.server.errors import ApiError
from localspec.server.exchange import read_body
from localspec.server.guard import respond
from localspec.server.log import log_refusal
from localspec.server.ollama_models import OLLAMA_TAG
from localspec.server.service import Service
from localspec.utils.format import format_seconds

log = logging.getLogger("localspec.server")

# Where texts that are given up end within a step.
_POLL_SECONDS = 0.01


class ModelRouter:
    """An application that hands each request to that of the model it names.

    A model takes the place of another once all texts of that are written. catalog: one of its
    models is loaded. make_app: makes the application of a service. aside: answers at the paths that
    need no model. idle_seconds: so long after the last request the model is unloaded; None: never.
    """

    def __init__(
        self,
        catalog: Catalog,
        make_app: Callable[[Service], Starlette],
        *,
        aside: Starlette,
        idle_seconds: float | None = None,
    ) -> None:
        assert catalog.service
        self._catalog, self._make_app, self._aside = catalog, make_app, aside
        self._idle_seconds = idle_seconds
        self._app: Starlette | None = make_app(catalog.service)
        self._routes = _routes(self._app)
        self._aside_endpoints = {each.endpoint for each in _routes(aside)}
        self._door = asyncio.Lock()
        # Set while no request is answered.
        self._idle = asyncio.Event()
        self._idle.set()
        self._active, self._ended = 0, perf_counter()
        self._timer: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None
        self._threads = _new_threads()
        self._wind_up()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._needs_model(scope):
            await self._aside(scope, receive, send)
            return
        async with AsyncExitStack() as stack:
            try:
                wanted, again = await self._wanted(scope, receive)
                app = await stack.enter_async_context(self._using(wanted, receive))
            except ClientDisconnect:
                return
            except (ApiError, LocalspecError) as error:
                told = ApiError.of(error)
                log_refusal(told, scope["method"], scope["path"])
                await respond(told, scope, send)
                return
            await app(scope, again, send)

    def _needs_model(self, scope: Scope) -> bool:
        matching = (each for each in self._routes if each.matches(scope)[0] is Match.FULL)
        found = next(matching, None)
        return found is not None and found.endpoint not in self._aside_endpoints

    async def _wanted(self, scope: Scope, receive: Receive) -> tuple[ServedModel | None, Receive]:
        """The model that a request names, None for any, and what gives its body once more."""
        service = self._catalog.service
        context = service.engine.context if service else 0
        content, body = await read_body(Request(scope, receive), context)
        name = body.text("model") or ""
        if scope["path"].startswith("/api/"):
            name = name.removesuffix(OLLAMA_TAG)
        return self._catalog.find(name), _again(content, receive)

    @asynccontextmanager
    async def _using(self, named: ServedModel | None, receive: Receive) -> AsyncIterator[Starlette]:
        """The application of a model, or of the usual one, which stays loaded inside."""
        async with self._door:
            wanted = named or self._catalog.usual
            if not self._catalog.service_of(wanted):
                await self._idle.wait()
                _require_open(self._catalog.service)
                await _require_client(receive)
                await self._change(wanted)
            self._active += 1
            self._idle.clear()
        app = self._app
        assert app
        try:
            yield app
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()
                self._ended = perf_counter()
                self._wind_up()

    async def _change(self, wanted: ServedModel) -> None:
        """Load a model in the place of the one that is loaded. Raises what loading raises."""
        await self._unload()
        log.info("loading %s", wanted.name)
        began = perf_counter()
        service = await asyncio.to_thread(wanted.load)
        self._catalog.enter(wanted, service)
        self._app = self._make_app(service)
        log.info("%s is loaded, after %s", wanted.name, format_seconds(perf_counter() - began))

    async def _unload(self) -> None:
        """Free the model that is loaded, if one is; no request is answered."""
        if (service := self._catalog.service) is None:
            return
        self._catalog.loaded = self._app = None
        while service.pool.busy:
            await asyncio.sleep(_POLL_SECONDS)
        # Threads of requests whose clients have gone may still use the model.
        threads, self._threads = self._threads, _new_threads()
        await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(service.close)

    def _wind_up(self) -> None:
        """Unload the model in a while, unless a request comes."""
        if self._timer:
            self._timer.cancel()
        if self._idle_seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._idle_seconds, self._run_down)

    def _run_down(self) -> None:
        self._unloading = asyncio.create_task(self._unload_if_idle(self._ended))

    async def _unload_if_idle(self, ended: float) -> None:
        """Unload the model, unless a request has come. ended: when the last one ended."""
        async with self._door:
            if not self._active and ended == self._ended and self._catalog.service:
                await self._unload()
                log.info("%s is unloaded; a request loads it again", self._catalog.usual.name)


def _routes(app: Starlette) -> list[Route]:
    return [each for each in app.routes if isinstance(each, Route)]


def _require_open(service: Service | None) -> None:
    """Raise ApiError where the server ends."""
    if service and service.closing:
        raise ApiError(503, "the server is shutting down", code="shutting_down")


def _new_threads() -> ThreadPoolExecutor:
    """Threads for what takes its time, from now on."""
    threads = ThreadPoolExecutor(thread_name_prefix="localspec-server")
    asyncio.get_running_loop().set_default_executor(threads)
    return threads


def _again(content: bytes, receive: Receive) -> Receive:
    """What gives a body that was read, and then what comes behind it."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receiving() -> Message:
        return messages.pop() if messages else await receive()

    return receiving


async def _require_client(receive: Receive) -> None:
    """Raise ClientDisconnect where nobody waits for the answer."""
    message = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if message.done():
        if message.result()["type"] == "http.disconnect":
            raise ClientDisconnect
    else:
        message.cancel()
