"""Closing: what is closed at the end of its `with`."""

from abc import ABC, abstractmethod
from typing import NoReturn, Self

from localspec.errors import LocalspecError


class Closing(ABC):
    """A base class: leaving the `with` calls `close`, which a caller may also do."""

    @abstractmethod
    def close(self) -> None:
        """Free what is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self.close()
        except KeyboardInterrupt:
            self.close()  # what that has left
            raise

    def __reduce__(self) -> NoReturn:
        """Raise LocalspecError: models and threads can be neither pickled nor copied."""
        raise LocalspecError(
            f"this {type(self).__name__} belongs to this process, and can be neither pickled nor "
            "copied; load or make another one in each process"
        )
