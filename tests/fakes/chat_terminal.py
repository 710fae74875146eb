"""A chat with a scripted engine, in a process and a terminal of its own."""

import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive

TESTS = Path(__file__).parents[1]
TIMEOUT = 19.0
CTRL_C, CTRL_D, CTRL_Q = b"\x03", b"\x04", b"\x11"
_CHILD = """
import fcntl, json, sys, termios
from pathlib import Path
from fakes.scripted import Script
from localspec.cli.main import explaining_errors
from localspec_tui import launch
from localspec_tui.archive import Archive
from localspec_tui.plain import chat as plain
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions

# Ctrl-C, and that it is closed, are signals to those whose terminal it is.
if "silent" not in sys.argv:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
script = Script(**json.loads(sys.argv[2]))
launch.EngineThread = plain.EngineThread = lambda: EngineThread(script.load)
archive = Archive(Path(sys.argv[1]) / "sessions.sqlite3")
run = plain.run_plain if "plain" in sys.argv else launch.launch
sys.exit(explaining_errors(lambda: run(LaunchOptions(model="scripted"), archive)))
"""


class ChatTerminal:
    """Types into a chat, and reads what its terminal shows and what its session keeps.

    folder: of its sessions. env: variables beside those of this process. plain: whether it is the
    chat without a screen. silent: the terminal sends no signals. answer: what the terminal sends
    when it is asked for its background. before: typed before the chat begins. script: of the
    engine. reads: whether the terminal reads what the chat writes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        plain: bool = False,
        silent: bool = False,
        answer: bytes = b"",
        before: bytes = b"",
        **script: Any,
    ) -> None:
        # None of it exists on Windows.
        import fcntl
        import pty
        import termios

        self._folder, self._answer = folder, answer
        self.shown, self._is_open, self.reads = b"", True, True
        self._ready = b"\n> " if plain else b"ctx "
        self._screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        os.write(self._screen, before)
        path = os.pathsep.join([str(TESTS), *sys.path])
        kind = [*["plain"] * plain, *["silent"] * silent]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(folder), json.dumps(script), *kind],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": path, **(env or {})},
            start_new_session=True,
        )
        os.close(inside)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "ChatTerminal":
        # Python's editing of lines asks for marks around what is pasted.
        self.wait_for(lambda: self._ready in self.shown.replace(b"\x1b[?2004h", b""))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    def type(self, keys: str | bytes) -> None:
        """Write all these keys at once."""
        data = keys.encode() if isinstance(keys, str) else keys
        assert os.write(self._screen, data) == len(data)

    def wait_for(self, true: Callable[[], object]) -> None:
        """Wait until something is true. Raises TimeoutError after a minute and a half."""
        end = time.monotonic() + TIMEOUT
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(self.shown[-2000:].decode("utf-8", "replace"))
            time.sleep(0.02)

    def wait_for_messages(self, messages: Sequence[str]) -> None:
        """Wait until the session keeps just these messages of the user."""
        self.wait_for(lambda: self.messages == [*messages])

    @property
    def messages(self) -> list[str]:
        """The messages of the user that the latest session keeps."""
        return [turn.content for turn in self.turns if turn.role == "user"]

    @property
    def turns(self) -> list[Turn]:
        """The turns that the latest session keeps."""
        archive = Archive(self._folder / "sessions.sqlite3")
        try:
            key = archive.latest()
            return archive.open(key).conversation.turns if key else []
        finally:
            archive.close()

    def end_plain(self) -> int:
        """Type Ctrl-D until the chat has ended: before it reads a line, it has none. Exit code."""
        with suppress(TimeoutError):
            self.wait_for(self._ends_by_ctrl_d)
        return self.wait_ended()

    def _ends_by_ctrl_d(self) -> bool:
        with suppress(OSError):  # it has just ended
            self.type(CTRL_D)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        return self.process.poll() is not None

    def wait_ended(self) -> int:
        """Wait until the chat has ended; its exit code."""
        code = self.process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        return code

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._is_open:
            self._is_open = False
            self._reader.join()
            os.close(self._screen)

    def _read(self) -> None:
        # A terminal is not closed while somebody reads it.
        try:
            while self._is_open:
                if not self.reads:
                    time.sleep(0.05)
                    continue
                if not select.select([self._screen], [], [], 0.05)[0]:
                    continue
                piece = os.read(self._screen, 65536)
                self.shown += piece
                if self._answer and b"\x1b]11;?" in self.shown:
                    os.write(self._screen, self._answer)
                    self._answer = b""
        except OSError:
            pass  # the other end is closed
