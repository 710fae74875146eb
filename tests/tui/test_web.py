"""`localspec chat --web`: a browser gets the page, its files, and the chat itself."""

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import aiohttp
import pytest

from localspec.utils.installer import installer

TIMEOUT = 60
CTRL_Q = "\x11"


def chat_command(port: int) -> list[str]:
    """Not at port 8000, which may be in use on this machine."""
    chat = [sys.executable, "-m", "localspec", "chat", "--ctx", "256"]
    return [*chat, "--web", "--port", str(port)]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@contextmanager
def served(port: int, home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, "LOCALSPEC_HOME": str(home)}
    with subprocess.Popen(chat_command(port), stdout=subprocess.PIPE, env=environment) as server:
        try:
            yield server
        finally:
            server.terminate()


async def page_of(browser: aiohttp.ClientSession) -> str:
    """The page, as soon as the server answers."""
    while True:
        try:
            async with browser.get("/") as response:
                assert response.status == 200
                # From elsewhere a browser loads nothing: the page names a font of Google's.
                policy = response.headers["Content-Security-Policy"]
                assert set(re.findall(r"//([\w.]+)", policy)) == {"127.0.0.1", "localhost"}
                return await response.text()
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.1)


async def chat_until_quit(browser: aiohttp.ClientSession, origin: str) -> None:
    """Open the chat from a page of this origin, wait for its first frame, and quit it."""
    async with browser.ws_connect("/ws?width=80&height=24", origin=origin) as websocket:
        screen = b""
        while b"message" not in screen:
            screen += await websocket.receive_bytes()
        await websocket.send_json(["stdin", CTRL_Q])
        while (await websocket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
        assert websocket.closed


def test_a_browser_gets_the_page_and_the_chat(tmp_path: Path) -> None:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"

    async def browse() -> None:
        async with asyncio.timeout(TIMEOUT), aiohttp.ClientSession(origin) as browser:
            page = await page_of(browser)
            assert "localspec" in page
            files = re.findall(rf'(?:src|href)="{origin}(/static/[^"]+)"', page)
            assert {Path(file).suffix for file in files} >= {".js", ".css"}
            for file in files:
                async with browser.get(file) as response:
                    assert response.status == 200
                    assert await response.read()
            for page_origin in (origin, f"http://localhost:{port}"):
                await chat_until_quit(browser, page_origin)

    with served(port, tmp_path) as server:
        asyncio.run(browse())
        server.terminate()
        output, _ = server.communicate(timeout=TIMEOUT)
        assert b"Traceback" not in output
        assert os.name == "nt" or server.returncode == 0


def test_pages_of_other_origins_are_refused(tmp_path: Path) -> None:
    port = free_port()

    async def browse() -> None:
        async with (
            asyncio.timeout(TIMEOUT),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as browser,
        ):
            await page_of(browser)
            for origin in ("http://example.org", f"http://localhost:{port + 1}", None):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await browser.ws_connect("/ws", origin=origin)
                assert refused.value.status == 403

    with served(port, tmp_path):
        asyncio.run(browse())


def test_a_port_in_use_is_one_line() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            chat_command(port), capture_output=True, text=True, check=False, timeout=TIMEOUT
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"localspec: error: --web needs port {port} of 127.0.0.1: ")
    assert done.stderr.endswith("; name another with --port\n")


def test_without_textual_serve_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["textual_serve"] = None
sys.argv = ["localspec", "chat", "--web"]
from localspec.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"localspec: error: --web needs an extra: {installer()} 'localspec[web]'\n"
    )
