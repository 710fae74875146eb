"""Web: serves the chat to a browser on this machine, with textual-serve."""

import os
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from socket import create_server
from typing import Any

from localspec.errors import InvalidValueError
from localspec.utils.installer import installer

HOST, PORT = "127.0.0.1", 8000

Handler = Callable[[Any], Awaitable[Any]]


def serve(command: str, port: int = PORT) -> None:
    """Serve on 127.0.0.1 until Ctrl-C. Each browser window runs the command once.

    command: for the shell. Raises InvalidValueError if textual-serve is not installed, or another
    program uses the port.
    """
    if find_spec("textual_serve") is None:
        raise InvalidValueError(f"--web needs an extra: {installer()} 'localspec[web]'")
    server = import_module("textual_serve.server").Server(
        command, host=HOST, port=port, title="localspec"
    )
    server.handle_websocket = same_origin_only(server.handle_websocket, port)
    server.handle_index = this_machine_only(server.handle_index, port)
    try:
        create_server((HOST, port)).close()  # before a line says that it serves
        server.serve()
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise InvalidValueError(
            f"--web needs port {port} of {HOST}: {reason}; name another with --port"
        ) from error


def same_origin_only(handler: Handler, port: int = PORT) -> Handler:
    """Refuse websockets of other web pages, which could read this user's files through the chat.

    A browser sends the origin of the page.
    """
    origins = _origins(port)
    forbidden = import_module("aiohttp.web").HTTPForbidden

    async def guarded(request: Any) -> Any:
        if request.headers.get("Origin") not in origins:
            raise forbidden(text="only its own page may talk to the chat")
        return await handler(request)

    return guarded


def this_machine_only(handler: Handler, port: int = PORT) -> Handler:
    """Forbid the page to load anything from elsewhere: it asks Google for a font."""
    pages = _origins(port)
    sockets = [f"ws{page.removeprefix('http')}" for page in pages]
    policy = " ".join(("default-src", *pages, *sockets, "'unsafe-inline'", "data:"))

    async def guarded(request: Any) -> Any:
        response = await handler(request)
        response.headers["Content-Security-Policy"] = policy
        return response

    return guarded


def _origins(port: int) -> list[str]:
    return [f"http://{name}:{port}" for name in (HOST, "localhost")]
