"""References: how a model is named when it is not named by a path."""

import re
from dataclasses import dataclass
from pathlib import Path

_HUB = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
# Names as the Hub allows them: no dot or hyphen at either end.
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NEVER_IN_NAMES = ("..", "--")
_NEVER_AT_THE_END = (".gguf", ".git")
_REPOSITORY = re.compile(rf"({_NAME}/{_NAME})(?::([A-Za-z0-9._/-]+))?")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of the Hub, and which of its models: a quantisation, a file; or None."""

    id: str
    quant: str | None = None

    def __str__(self) -> str:
        return f"{self.id}:{self.quant}" if self.quant else self.id


# Where a model is: on this disk, or on the Hub.
Reference = Path | Repository


def repository(text: str) -> Repository | None:
    """The `user/repo[:quant]` (or Hub address) that a text is, or None if it is none."""
    for prefix in _HUB:
        text = text.removeprefix(prefix)
    found = _REPOSITORY.fullmatch(text.rstrip("/"))
    if found is None or found[1].lower().endswith(_NEVER_AT_THE_END):
        return None
    if any(letters in found[1] for letters in _NEVER_IN_NAMES):
        return None
    return Repository(found[1], found[2])
