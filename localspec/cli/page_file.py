"""Page file: where a command writes a page, checked before work begins."""

import os
from pathlib import Path

from localspec.cli.output import Output
from localspec.errors import InvalidValueError, LocalspecError


class PageFile:
    """A file for a page. option: its name, for messages. name: None where there is none.

    Raises InvalidValueError for a name that no file can have.
    """

    def __init__(self, option: str, name: str | None) -> None:
        self._option, self._path = option, Path(name) if name else None
        if self._path and (os.path.isdir(self._path) or not os.path.isdir(self._path.parent)):
            raise InvalidValueError(f"{option} {name}: it must be a file in a folder that exists")

    def __bool__(self) -> bool:
        return self._path is not None

    def write(self, page: str, output: Output) -> None:
        """Write the page, and say where. Raises LocalspecError if that fails."""
        assert self._path
        try:
            self._path.write_text(page, encoding="utf-8")
        except OSError as error:
            raise LocalspecError(
                f"{self._option} {self._path}: {error.strerror}; name another file"
            ) from error
        output.note(f"the page is {self._path}")
