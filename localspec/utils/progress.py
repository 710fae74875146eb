"""Progress: reports how far the loading of models is to the caller that watches it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

# Called with the current action, such as "loading big.gguf", and the finished share of it from
# 0 to 1; None where the share is not known.
Watcher: TypeAlias = Callable[[str, float | None], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher | None) -> Iterator[None]:
    """Call `watcher` with the progress of all loading that this thread does inside the block.

    An exception that the watcher raises ends the loading. None: progress is not reported.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_progress(action: str, share: float | None = None) -> None:
    """Report an action and its finished share to the watcher, if there is one.

    Raises what the watcher raises, so that the loading ends.
    """
    if watcher := _watcher.get():
        watcher(action, share)
