"""Page file: where a command writes a page, checked before work begins."""

import os
from pathlib import Path

from localspec.bench.page_parts import DOCTYPE
from localspec.cli.output import Output
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.bounded_file import open_regular


class PageFile:
    """A file for a page. option: its name, for messages. name: None where there is none.

    Raises InvalidValueError for a name that no file can have, and for a file that cannot be written
    or is no page: a model, for example.
    """

    def __init__(self, option: str, name: str | None) -> None:
        self._option, self._path = option, Path(name) if name else None
        if self._path and (objection := _objection(self._path)):
            raise InvalidValueError(f"{option} {name}: {objection}")

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


def _objection(path: Path) -> str:
    """Why no page can be written there; "" if nothing is known against it."""
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        return "it must be a file in a folder that exists"
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        return "it cannot be written; name another file"
    try:
        with open_regular(path) as file:
            start = file.read(len(DOCTYPE))
    except OSError:  # there is none, or it is a pipe or a device
        return ""
    is_page = not start or start.decode(errors="replace").lower() == DOCTYPE.lower()
    return "" if is_page else "it exists and is no page; name another file"
