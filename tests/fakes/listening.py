"""An application that listens, in a thread of the tests."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fakes.served import wait_for

from localspec.server.connection import Connection


@contextmanager
def listening(app: Any, **options: Any) -> Iterator[int]:
    """The port of an application on a server of its own."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=Connection, log_config=None, lifespan="off", ws="none", **options
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([opened],))
        thread.start()
        wait_for(lambda: server.started)
        try:
            yield opened.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
