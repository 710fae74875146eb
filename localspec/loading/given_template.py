"""Given template: a chat template that stands for the one in a GGUF."""

from pathlib import Path

from localspec.errors import InvalidValueError
from localspec.utils.text_file import read_text_file

_FILE = "name a file that holds a Jinja template"


def read_template(given: str | Path | None, name: str = "chat_template") -> str | None:
    """Return the text of a chat template. given: that text, or its file; None: none is given.

    name: of the option, for errors. Raises InvalidValueError for what cannot be a template.
    """
    if given is None:
        return None
    text = str(given)
    if isinstance(given, Path):
        text = read_text_file(name, given, _FILE)
    if "{" not in text:
        way_out = _FILE if isinstance(given, Path) else "give a template, or a file's Path"
        raise InvalidValueError(f"{name} is {str(given)!r}, which holds no Jinja; {way_out}")
    return text
