"""Closed pipe: what is written to it has no reader any more."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def is_closed_pipe(error: OSError) -> bool:
    """Whether writing failed because the reader has closed the pipe."""
    if isinstance(error, BrokenPipeError):
        return True
    # Windows often calls it an invalid argument.
    return sys.platform == "win32" and error.errno == errno.EINVAL


@contextmanager
def closed_pipe_ignored() -> Iterator[None]:
    """Ignore that a pipe is closed, which ends the block."""
    try:
        yield
    except OSError as error:
        if not is_closed_pipe(error):
            raise
