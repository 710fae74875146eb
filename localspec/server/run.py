"""Run: the server as a process, from its first connection to its last."""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

import psutil
import uvicorn

from localspec.errors import InvalidValueError
from localspec.server.address import LOOPBACK, Address
from localspec.server.app import make_app
from localspec.server.catalog import Catalog, ServedModel
from localspec.server.connection import Connection
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.event_loop import new_event_loop
from localspec.server.guard import MOST_HEADER_BYTES, Guard
from localspec.server.loading import LoadingApp
from localspec.server.model_switch import ModelSwitch
from localspec.server.service import Service
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.progress import Watcher, watched

# After a signal, texts may be written to their end for so many seconds; then they are cut short.
_GRACE_SECONDS = 5
# The most connections; with those that are told so, files and libraries, they need so many handles.
_MOST_CONNECTIONS, _HANDLES = 1024, 2048
# So long a connection without a request stays open. Clients keep theirs for 15 to 90 seconds, and a
# request on one that has just been closed fails.
_IDLE_SECONDS = 120
# Connections that are still open so many seconds later are dropped.
_LAST_SECONDS = 10
# As many connections as may wait to be taken.
_BACKLOG = 2048


def listen(address: Address) -> socket.socket:
    """Open the port. Raises InvalidValueError that says who has it, and which one is free."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    opened = socket.socket(family)
    # On Windows it would take the port of a program that listens there already.
    if sys.platform != "win32":
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((address.host, address.port))
        # From now on no other program can take the port.
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        if error.errno != errno.EADDRINUSE:
            raise InvalidValueError(
                f"host is {address.host!r}; this machine cannot listen there ({error.strerror})"
            ) from error
        raise InvalidValueError(
            f"port is {address.port}; {_owner(address.port)} has it: take "
            f"{_free_port(address, family) or 'a lower one'}, or end that program"
        ) from error
    return opened


def serve(
    models: Sequence[ServedModel],
    address: Address,
    opened: socket.socket,
    *,
    embedders: Sequence[EmbeddingModel] = (),
    queue_limit: int = 64,
    unload_after: float | None = None,
    changed: Callable[[Service], None] = lambda _service: None,
    ready: Callable[[Service], None],
    signalled: Callable[[], None],
    progress: Watcher,
) -> None:
    """Answer requests until a signal ends it; until the first model is there, that it loads.

    models: the first is loaded, in a thread; what that raises ends the server and is raised.
    embedders: all are loaded before it: what they take is missing in the memory that is planned for
    it, and one that cannot be loaded is told at once.
    queue_limit, unload_after, changed: see ModelSwitch. ready: called once the first model is
    there. signalled: called for each signal. progress: told how far
    loading is, in the thread that loads. A signal while the model loads ends the process at once:
    by Ctrl-C with code 130, by SIGTERM with 0.
    """
    hosts = [*LOOPBACK, address.host.lower(), *address.hosts]
    any_host = not address.is_local and not address.hosts
    app, catalog = LoadingApp(), Catalog(models, embedders)
    switch = ModelSwitch(
        catalog, queue_limit=queue_limit, unload_after=unload_after, changed=changed
    )
    guarded = Guard(
        app,
        hosts=() if any_host else hosts,
        origins=address.origins,
        key=address.key,
        most_bytes=address.most_bytes,
    )
    config = uvicorn.Config(
        guarded,
        log_config=None,
        access_log=False,
        server_header=False,
        http=Connection,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        limit_concurrency=_MOST_CONNECTIONS,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_LAST_SECONDS + _GRACE_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
        lifespan="off",
        ws="none",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # It warns of what is written to a client that has gone away.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    _allow_handles()

    def watcher(action: str, share: float | None) -> None:
        app.report(action, share)
        progress(action, share)

    def work() -> Service:
        with watched(watcher):
            for each in embedders:
                each.load()
            return models[0].load()

    server = _Server(config, app, switch, work, ready=ready, signalled=signalled)
    try:
        _run(server, opened)
    finally:
        if catalog.service:
            catalog.service.close()
        for each in embedders:
            each.close()
    if server.failure:
        raise server.failure


def _run(server: uvicorn.Server, opened: socket.socket) -> None:
    if sys.platform == "win32":
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(server.serve(sockets=[opened]))
    else:
        server.run(sockets=[opened])


def _allow_handles() -> None:
    """Let this process have a handle for every connection, where the system permits it."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _HANDLES if hard == resource.RLIM_INFINITY else min(_HANDLES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """Loads a model while it answers; ends texts in their streams' own way at the end.

    failure: what `load` has raised.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: LoadingApp,
        switch: ModelSwitch,
        load: Callable[[], Service],
        *,
        ready: Callable[[Service], None],
        signalled: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.failure: BaseException | None = None
        self._app = app
        self._switch = switch
        self._load = load
        self._ready = ready
        self._signalled = signalled

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                service = self._load()
            except BaseException as error:
                loop.call_soon_threadsafe(self._failed, error)
            else:
                loop.call_soon_threadsafe(self._loaded, service)

        # The process may end without it.
        threading.Thread(target=work, name="localspec-loading", daemon=True).start()

    def _loaded(self, service: Service) -> None:
        catalog = self._switch.catalog
        catalog.enter(catalog.models[0], service)
        self._app.app = make_app(self._switch)
        self._switch.wind_up()
        for each in catalog.embedders:
            each.wind_up()
        self._ready(service)

    def _failed(self, error: BaseException) -> None:
        # There is no answer to wait for.
        self.failure, self.should_exit, self.force_exit = error, True, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let texts go on for a while; a second signal ends them at once."""
        self._signalled()
        switch = self._switch
        if self._app.app is None or switch.loads:
            os._exit(INTERRUPTED if sig == signal.SIGINT else 0)
        writing, embedders = switch.catalog.service, switch.catalog.embedders
        for stop in [*([writing.stop] if writing else []), *(each.stop for each in embedders)]:
            if self.should_exit or sig == signal.SIGINT:
                stop()
            else:
                asyncio.get_event_loop().call_later(_GRACE_SECONDS, stop)
        switch.closing = self.should_exit = True


def _owner(port: int) -> str:
    """Which program listens on a port, as far as that can be seen."""
    try:
        for each in psutil.net_connections("tcp"):
            listens = each.laddr and each.laddr.port == port and each.status == psutil.CONN_LISTEN
            if listens and each.pid:  # that of another user's program cannot be seen
                return f"{psutil.Process(each.pid).name()} (process {each.pid})"
    except (psutil.Error, OSError):
        pass
    return "another program"


def _free_port(address: Address, family: socket.AddressFamily) -> int | None:
    """The next port that nobody has, if there is one among the next hundred."""
    for port in range(address.port + 1, min(address.port + 100, 65536)):
        with socket.socket(family) as tried:
            try:
                tried.bind((address.host, port))
            except OSError:
                continue
            return port
    return None
