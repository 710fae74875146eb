"""Closing: what is closed at the end of its `with`."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A base class: leaving the `with` calls `close`, which a caller may also do."""

    @abstractmethod
    def close(self) -> None:
        """Free what is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
