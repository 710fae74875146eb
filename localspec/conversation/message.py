"""Message: what a user sends, a text or parts of which some are images or sounds, as a turn."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localspec.conversation.media_spans import Content, laid_out
from localspec.conversation.turns import Role, Turn
from localspec.engine.chat_messages import read_part
from localspec.errors import InvalidValueError
from localspec.utils.option_types import require_kind


def as_turn(message: Content, role: Role) -> Turn:
    """The turn of a message. Raises InvalidValueError if that is empty, or of another type."""
    if isinstance(message, list | tuple) and not any(map(_is_message, message)):
        text, media = laid_out(_read(message))
    else:
        require_kind("the message", message, str, "a text, or a list of parts")
        text, media = str(message), ()
    if not text:
        raise InvalidValueError("the message is empty; write some text")
    return Turn(role, text, media=media)


def _is_message(part: object) -> bool:
    """Whether it is a message of several, and no part of one."""
    return isinstance(part, Mapping) and "role" in part


def _read(parts: Sequence[Mapping[str, Any]]) -> Iterator[str | tuple[str, bytes]]:
    """Yield the texts of parts, and the names and contents of those that are files."""
    for at, part in enumerate(parts):
        found = read_part(part, f"the message[{at}]", media=True)
        yield found if isinstance(found, str) else (_name(part), found)


def _name(part: Mapping[str, Any]) -> str:
    """The name of the file of a part; empty where only its contents are given."""
    paths = (each for each in part.values() if isinstance(each, Path))
    return str(part.get("name") or part.get("path") or next(paths, ""))
