"""Messages: what those of a chat must have, in Python and in requests to the server."""

from collections.abc import Mapping, Sequence
from typing import Any

from localspec.errors import InvalidValueError

_SPEAKERS = ("system", "developer", "user", "assistant")
# An answer may have these instead of a content.
_SAID_OTHERWISE = ("tool_calls", "function_call", "reasoning_content", "reasoning", "refusal")


def require_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidValueError if a message has no role, or not the content that its role needs."""
    for at, message in enumerate(messages):
        place = f"messages[{at}]"
        role = message.get("role")
        if not isinstance(role, str):
            what = f"{place}.role is {role!r:.60}" if "role" in message else f"{place} has no role"
            raise InvalidValueError(f"{what}; give a text, such as 'user'{_keys(message)}")
        require_content(message, role, place)


def require_content(message: Mapping[str, Any], role: str, place: str) -> None:
    """Raise InvalidValueError if a message lacks a content that its role needs.

    A content of None is an empty one: clients send it. place: where the message stands.
    """
    if "content" in message or role not in _SPEAKERS:
        return
    if role == "assistant" and any(message.get(name) is not None for name in _SAID_OTHERWISE):
        return
    raise InvalidValueError(f"{place} has no content; give its text as 'content'{_keys(message)}")


def _keys(message: Mapping[str, Any]) -> str:
    """What a message has, where a key may be misspelled."""
    return f" (its keys: {', '.join(map(str, message)):.60})" if message else ""
