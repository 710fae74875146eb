"""References to models: a file on this disk, or a model in a repository of the Hub."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelNotFoundError
from localspec.hub.address import no_model, parse_address

# The Hub's rules for names: no dot or hyphen at either end.
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NEVER_IN_NAMES = ("..", "--")
_NEVER_AT_THE_END = (".gguf", ".git")
_ID = re.compile(rf"{_NAME}/{_NAME}")
_ALIKE = re.compile(
    rf"(?:hf:)?({_NAME}/{_NAME})(?:@main)?(?:(?:/(?=.+\.gguf$)|:)(.+))?", re.IGNORECASE
)


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
    with suppress(ModelNotFoundError):
        return named_repository(text)
    return None


def named_repository(text: str) -> Repository | None:
    """Parse as `repository`; raise ModelNotFoundError for an address that is none of a model."""
    text = text.strip()
    if address := parse_address(text):
        if found := _repository(address.id, address.quant):
            return found
        raise no_model(text)
    id, colon, quant = text.rstrip("/").partition(":")
    return _repository(id, quant if colon else None)


def meant_repository(text: str) -> Repository | None:
    """Return what a text would mean if it were written as the name of a repository is; else None.

    Other tools take user/repo/FILE.gguf, user/repo@main and hf:user/repo.
    """
    found = _ALIKE.fullmatch(text.strip())
    return _repository(found[1], found[2]) if found else None


def _repository(id: str, quant: str | None) -> Repository | None:
    """Return a repository whose names the Hub allows, else None."""
    if not _ID.fullmatch(id) or id.lower().endswith(_NEVER_AT_THE_END):
        return None
    if any(letters in id for letters in _NEVER_IN_NAMES):
        return None
    return Repository(id, quant) if quant is None or _is_quant(quant) else None


def _is_quant(text: str) -> bool:
    """Whether a text may be a quantisation or the name of a file, which may have spaces in it."""
    return text == text.strip() != "" and text.isprintable() and not {*text} & {*":\\"}
