"""Abortable: work that an interrupt stops at once, as nobody asks in it whether to stop."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from localspec.distillation.texts import Stopped


class Abortable:
    """Runs blocks that keep nothing until they end. cancel: set to stop before the next one.

    is_running: whether such a block runs, which a KeyboardInterrupt stops.
    """

    def __init__(self, cancel: Event) -> None:
        self.is_running, self._cancel = False, cancel

    @contextmanager
    def block(self) -> Iterator[None]:
        """Run the block. Raises Stopped where it was interrupted."""
        self.is_running = True
        try:
            if self._cancel.is_set():
                raise Stopped
            yield
        except KeyboardInterrupt:
            raise Stopped from None
        finally:
            self.is_running = False
