"""Chat messages: what they must have, in Python and in requests to the server."""

from collections.abc import Mapping, Sequence
from typing import Any

from localspec.engine.media_marks import NEED_PROJECTOR, join_parts, media_mark
from localspec.engine.media_parts import is_media, media_of
from localspec.errors import InvalidValueError

# The types of a content's parts that are text.
_TEXTS = ("text", "input_text", "output_text", "refusal")
_SPEAKERS = ("system", "developer", "user", "assistant")
# An answer may have these instead of a content.
_SAID_OTHERWISE = ("tool_calls", "function_call", "reasoning_content", "reasoning", "refusal")


def as_texts(
    messages: Sequence[Mapping[str, Any]], *, media: bool = False
) -> list[Mapping[str, Any]]:
    """The messages with their contents as texts, which chat templates read.

    media: whether images and sounds are written as marks (`media_marks`). Raises InvalidValueError
    if a message has no role, not the content that its role needs, or one that is no text.
    """
    return [
        _as_text(message, f"messages[{at}]", media=media) for at, message in enumerate(messages)
    ]


def is_text(part: Mapping[str, Any]) -> bool:
    """Whether a part of a content is text; its type may be missing."""
    kind = part.get("type")
    return kind in _TEXTS or (kind is None and part.get("text") is not None)


def require_content(message: Mapping[str, Any], role: str, place: str) -> None:
    """Raise InvalidValueError if a message lacks a content that its role needs.

    A content of None is an empty one: clients send it. place: where the message stands.
    """
    if "content" in message or role not in _SPEAKERS:
        return
    if role == "assistant" and any(message.get(name) is not None for name in _SAID_OTHERWISE):
        return
    raise InvalidValueError(f"{place} has no content; give its text as 'content'{_keys(message)}")


def _as_text(message: Mapping[str, Any], place: str, *, media: bool) -> Mapping[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        what = f"{place}.role is {role!r:.60}" if "role" in message else f"{place} has no role"
        raise InvalidValueError(f"{what}; give a text, such as 'user'{_keys(message)}")
    require_content(message, role, place)
    content = _text_of(message.get("content"), f"{place}.content", media=media)
    return {**message, "content": content}


def _text_of(content: object, place: str, *, media: bool) -> str:
    """A content as one text: its parts are its lines."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        parts = enumerate(content)
        return join_parts(_part_text(part, f"{place}[{at}]", media=media) for at, part in parts)
    raise InvalidValueError(f"{place} is {content!r:.60}; it must be a text, or a list of parts")


def read_part(part: object, place: str, *, media: bool) -> str | bytes:
    """A part of a content: a text, or the contents of the file that is an image or a sound.

    place: where it stands. media: whether it may be a file. Raises InvalidValueError.
    """
    if not isinstance(part, Mapping):
        raise InvalidValueError(
            f"{place} is {part!r:.60}; it must be a part, such as {{'type': 'text', 'text': ...}}"
        )
    if media and is_media(part):
        return media_of(part, place)
    if not is_text(part):
        needed = f"; {NEED_PROJECTOR}" if is_media(part) else ""
        raise InvalidValueError(
            f"{place}.type is {part.get('type')!r:.60}; it must be text; this model reads nothing "
            f"else{needed}"
        )
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        raise InvalidValueError(f"{place}.text is {text!r:.60}; it must be a text")
    return text


def _part_text(part: object, place: str, *, media: bool) -> str:
    found = read_part(part, place, media=media)
    return found if isinstance(found, str) else media_mark(found)


def _keys(message: Mapping[str, Any]) -> str:
    """What a message has, where a key may be misspelled."""
    return f" (its keys: {', '.join(map(str, message)):.60})" if message else ""
