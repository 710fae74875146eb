"""Last words: what is done before a library in C ends this process.

llama.cpp does so at failed assertions and at any error of CUDA, and C++ at exceptions that nobody
catches, as Vulkan throws them where a device is lost. No exception of Python tells of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Listener = Callable[[str], None]
_listeners: list[Listener] = []


@contextmanager
def before_abort(listener: Listener) -> Iterator[None]:
    """Call `listener` with the reason before the process is ended, if that happens inside.

    Any thread may call it; the last listener is called first. What it raises is ignored.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(reason: str) -> bool:
    """Call the listeners; return whether there are any."""
    for listener in reversed([*_listeners]):
        with suppress(Exception):
            listener(reason)
    return bool(_listeners)
