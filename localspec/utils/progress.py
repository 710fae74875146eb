"""Progress: how far the loading of models is, for whoever watches it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

# Is told what is being done, such as "loading big.gguf", and the share of it that is, from 0 to 1;
# None where that is not known.
Watcher: TypeAlias = Callable[[str, float | None], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher | None) -> Iterator[None]:
    """Have this thread's loading watched; what the watcher raises ends it.

    None watches nothing.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(doing: str, share: float | None = None) -> None:
    """Say how far it is. Raises what the watcher does, for the loading to end."""
    if watcher := _watcher.get():
        watcher(doing, share)
