"""The server's event loop outlives clients that vanish."""

import asyncio
import logging
import socket
import struct
import time

import pytest

from localspec.server.event_loop import new_event_loop

# Closing sends a reset at once.
NO_LINGER = struct.pack("HH" if hasattr(asyncio, "IocpProactor") else "ii", 1, 0)


# asyncio leaves the socket of a lost connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_connection_that_is_reset_while_it_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        writer.close()

    async def body() -> bytes:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        async with server:
            await asyncio.sleep(0.1)
            for _ in range(5):
                with socket.create_connection(address) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            time.sleep(0.1)  # the loop has seen none of them yet
            await asyncio.sleep(0.1)
            reader, writer = await asyncio.open_connection(*address)
            found = await reader.read()
            writer.close()
            return found

    caplog.set_level(logging.ERROR, "asyncio")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(body()) == b"here"
    assert not caplog.records
