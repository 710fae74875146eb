"""References to models: a file on this disk, or a model in a repository of the Hub."""

import re
from dataclasses import dataclass
from pathlib import Path

_HUB = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
# The Hub's rules for names: no dot or hyphen at either end.
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NEVER_IN_NAMES = ("..", "--")
_NEVER_AT_THE_END = (".gguf", ".git")
_REPOSITORY = re.compile(rf"({_NAME}/{_NAME})(?::([A-Za-z0-9._/-]+))?")


@dataclass(frozen=True, slots=True)
class Repository:
    """A model in a repository of the Hub.

    id: user/name. quant: a quantisation or the name of a file; None leaves the choice to
    `choose_model`.
    """

    id: str
    quant: str | None = None

    def __str__(self) -> str:
        return f"{self.id}:{self.quant}" if self.quant else self.id


Reference = Path | Repository


def repository(text: str) -> Repository | None:
    """Parse `user/repo[:quant]`, or an address of the Hub; return None for every other text."""
    for prefix in _HUB:
        text = text.removeprefix(prefix)
    found = _REPOSITORY.fullmatch(text.rstrip("/"))
    if found is None or found[1].lower().endswith(_NEVER_AT_THE_END):
        return None
    if any(letters in found[1] for letters in _NEVER_IN_NAMES):
        return None
    return Repository(found[1], found[2])
