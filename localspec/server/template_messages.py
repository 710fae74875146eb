"""Template messages: OpenAI's messages as a chat template takes them.

The models here read text. A conversation comes again with every turn, so what is no text is refused
only where the user has just sent it; elsewhere the model is told that something was left out.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from localspec.engine.chat_messages import is_text, require_content
from localspec.errors import InvalidValueError
from localspec.server.errors import ApiError
from localspec.server.fields import Fields

log = logging.getLogger("localspec.server")

# Templates know these; `developer` is OpenAI's newer name of `system`.
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_RESULTS = ("tool", "function", "function_call_output", "custom_tool_call_output", "tool_result")
_SPEAKERS = ("user", "assistant", "function_call", "custom_tool_call", *_RESULTS)


def messages_of(body: Fields) -> list[Mapping[str, Any]]:
    """Read `messages`. Raises ApiError."""
    given = [*body.objects("messages")]
    if not given:
        raise ApiError(400, "messages is empty; send one at least", param="messages")
    require_readable(given)
    return [_message(each) for each in given]


def _message(given: Fields) -> Mapping[str, Any]:
    role = given.text("role")
    if role not in _ROLES:
        raise given.wrong("role", f"one of {', '.join(_ROLES)}")
    require_said(given, role)
    if role == "assistant":
        content, thought = _said(given)
    else:
        content, thought = text_of(given, "content"), ""
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


def _said(given: Fields) -> tuple[str, str]:
    """What an answer says, and its reasoning where that is a part of it.

    Parts of other kinds are of another server, and are left out: the model would take words in
    their place for its own.
    """
    if not isinstance(given.values.get("content"), list):
        return text_of(given, "content"), ""
    texts, thoughts = list[str](), list[str]()
    for part in given.objects("content"):
        thought = part.values.get("thinking")
        if is_text(part.values):
            texts.append(part_text(part))
        elif isinstance(thought, str):
            thoughts.append(thought)
        else:
            log.warning("left out a part of the type %.40r of an answer", part.values.get("type"))
    return "\n".join(texts), "\n".join(thoughts)


def text_of(given: Fields, name: str) -> str:
    """A content: a text, or parts."""
    value = given.values.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(map(part_text, given.objects(name)))


def part_text(part: Fields) -> str:
    """A part of a content: its text, or words in the place of a picture or a document."""
    if is_text(part.values):
        return part.text("text") or part.text("refusal") or ""
    return f"[{part.text('type') or 'a part'} left out: this model reads text only]"


def require_readable(messages: Iterable[Fields]) -> None:
    """Raise ApiError for a part that is no text in what the user has just sent.

    messages: of any protocol, or items of a response. What comes beside results of tools, as an
    agent sends the picture that a tool gave back, is not the user's.
    """
    said = [each for each in messages if _speaker(each) in _SPEAKERS]
    if not said or _speaker(said[-1]) != "user" or any(map(_has_results, said[-2:])):
        return
    if not isinstance(said[-1].values.get("content"), list):
        return
    parts = [*said[-1].objects("content")]
    texts = [at for at, part in enumerate(parts) if is_text(part.values)]
    # A client may join a message that was refused and the next one: then a text follows.
    again = texts[-1] if len(texts) > 1 else 0
    for part in parts[again:]:
        if not is_text(part.values):
            raise part.wrong("type", "text; this model reads nothing else")


def _speaker(message: Fields) -> str | None:
    return message.text("role") or message.text("type")


def _has_results(message: Fields) -> bool:
    """Whether a message gives back what tools returned."""
    if isinstance(message.values.get("content"), list):
        kinds = [part.text("type") for part in message.objects("content")]
    else:
        kinds = []
    return any(kind in _RESULTS for kind in (_speaker(message), *kinds))
