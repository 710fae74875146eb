"""Event loop: on Windows, one that goes on where clients vanish.

There, asyncio closes the port for good when a connection is lost while it is accepted
(https://github.com/python/cpython/issues/93821), and logs a traceback for each that is reset.
"""

import asyncio
import sys
from typing import Any

# Windows' numbers for a connection that is gone.
_LOST = {59, 64, 10053, 10054, 10057}
# Seconds until the next try, for errors that stay.
_PAUSE_SECONDS = 0.01


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if getattr(context.get("exception"), "winerror", None) not in _LOST:
        loop.default_exception_handler(context)


if sys.platform == "win32":

    class _Proactor(asyncio.IocpProactor):
        """Accepts the next connection in place of one that is lost, until the port is closed."""

        def accept(self, listener: Any) -> Any:
            return asyncio.ensure_future(self._next(listener))

        async def _next(self, listener: Any) -> Any:
            while True:
                try:
                    return await super().accept(listener)
                except OSError:
                    if listener.fileno() < 0:
                        raise
                    await asyncio.sleep(_PAUSE_SECONDS)

    def new_event_loop() -> asyncio.AbstractEventLoop:
        """Return a loop for the server."""
        loop = asyncio.ProactorEventLoop(_Proactor())
        loop.set_exception_handler(_handle)
        return loop

else:
    new_event_loop = asyncio.new_event_loop
