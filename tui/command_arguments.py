"""Command arguments: how what stands behind a slash command may go on."""

from collections.abc import Iterator
from functools import lru_cache
from time import monotonic

from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO
from localspec.models.model_names import model_names
from localspec_tui.file_names import complete_path
from localspec_tui.sampling_defaults import SAMPLING_DEFAULTS
from localspec_tui.slash_commands import COMMANDS

# Seconds in which the names of models are not read again while letters are typed.
_KNOWN_FOR = 5.0
_DRAFTERS = (AUTO, "none", *MODEL_FREE)


def complete_argument(line: str) -> str:
    """The rest of the word at the end of a command's argument; empty if none is known."""
    name, space, argument = line.partition(" ")
    if not space:
        return ""
    before, _, word = argument.replace(",", " ").rpartition(" ")
    if before.strip() and name != "/draft":
        return ""
    return next((each[len(word) :] for each in _words(name, word) if each.startswith(word)), "")


def _words(name: str, begun: str) -> Iterator[str]:
    """Yield what may stand behind a command. begun: the word that is typed."""
    if any(usage.startswith(f"{name} on|off") for usage in COMMANDS):
        yield from ("on", "off")
    if name == "/set":
        yield from SAMPLING_DEFAULTS
    if name == "/draft":
        yield from _DRAFTERS
    if name in ("/model", "/draft") and begun:
        yield from _names(int(monotonic() / _KNOWN_FOR))
        yield from (path for path in complete_path(begun) if path.endswith(("/", ".gguf")))


@lru_cache(maxsize=1)
def _names(_time: int) -> list[str]:
    return [name for name, _ in model_names()]
