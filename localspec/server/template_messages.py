"""Template messages: OpenAI's messages as a chat template takes them."""

from collections.abc import Mapping
from typing import Any

from localspec.engine.chat_messages import is_text, require_content
from localspec.errors import InvalidValueError
from localspec.llama.model import MediaReader
from localspec.server.content_reader import ContentReader
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.log import tell_once

# Templates know these; `developer` is OpenAI's newer name of `system`.
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def messages_of(body: Fields, projector: MediaReader | None) -> list[Mapping[str, Any]]:
    """Read `messages`. projector: reads images and sounds for the model. Raises ApiError."""
    given = [*body.objects("messages")]
    if not given:
        raise ApiError(400, "messages is empty; send one at least", param="messages")
    reader = ContentReader(given, projector)
    return [_message(each, reader) for each in given]


def _message(given: Fields, reader: ContentReader) -> Mapping[str, Any]:
    role = given.text("role")
    if role not in _ROLES:
        raise given.wrong("role", f"one of {', '.join(_ROLES)}")
    require_said(given, role)
    if role == "assistant":
        content, thought = _said(given, reader)
    else:
        content, thought = reader.with_images(reader.text_of(given), given), ""
    found: dict[str, Any] = {"role": _ROLES[role], "content": content}
    if reasoning := given.text("reasoning_content") or given.text("reasoning") or thought:
        found["reasoning_content"] = reasoning
    if calls := given.items("tool_calls"):
        found["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if value := given.text(name):
            found[name] = value
    return found


def require_said(given: Fields, role: str) -> None:
    """Raise ApiError for a message without the content that its role needs."""
    try:
        require_content(given.values, role, given.path)
    except InvalidValueError as error:
        raise ApiError(400, str(error), param=given.path) from error
    if not isinstance(given.values.get("content"), str | list | None):
        raise given.wrong("content", "a text or a list of parts")


def _said(given: Fields, reader: ContentReader) -> tuple[str, str]:
    """What an answer says, and its reasoning where that is a part of it.

    Parts of other kinds are of another server, and are left out: the model would take words in
    their place for its own.
    """
    if not isinstance(given.values.get("content"), list):
        return reader.text_of(given), ""
    texts, thoughts = list[str](), list[str]()
    for part in given.objects("content"):
        thought = part.values.get("thinking")
        if is_text(part.values):
            texts.append(reader.part(part))
        elif isinstance(thought, str):
            thoughts.append(thought)
        else:
            kind = part.values.get("type")
            tell_once(f"left out a part of the type {kind!r:.40} of an answer")
    return "\n".join(texts), "\n".join(thoughts)
