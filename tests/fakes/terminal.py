"""A terminal that a command runs in, and what it shows there."""

import os
import subprocess
import sys
from collections.abc import Mapping

COLUMNS = 100


def on_terminal(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    answer: bytes = b"",
    after: bytes = b"",
    typed: bytes = b"",
    columns: int = COLUMNS,
    stdout: int | None = None,
) -> tuple[int, str]:
    """`localspec ARGUMENTS` with a terminal of its own; the exit code and all that was shown.

    env: None is this process's. answer: typed as soon as `after` is shown. stdout: not
    the terminal, if given. typed: typed before anything is shown.
    """
    # None of it exists on Windows.
    import fcntl
    import pty
    import struct
    import termios

    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", *arguments],
        env=env,
        stdin=inside,
        stdout=inside if stdout is None else stdout,
        stderr=inside,
    ) as running:
        os.close(inside)
        os.write(screen, typed)
        shown, answered = b"", False
        try:
            while True:
                if not answered and after in shown:
                    os.write(screen, answer)
                    answered = True
                if not (piece := os.read(screen, 4096)):
                    break
                shown += piece
        except OSError:
            pass  # its other end is closed
        running.wait(60)
    os.close(screen)
    return running.returncode, shown.decode()
