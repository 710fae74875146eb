"""Messages: OpenAI's messages as a chat template takes them."""

from collections.abc import Mapping
from typing import Any

from localspec.server.errors import ApiError
from localspec.server.fields import Fields

# Templates know these; `developer` is OpenAI's newer name of `system`.
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXTS = ("text", "input_text", "output_text", "refusal")


def messages_of(body: Fields) -> list[Mapping[str, Any]]:
    """Read `messages`. Raises ApiError for what is no text."""
    found = [_message(each) for each in body.objects("messages")]
    if not found:
        raise ApiError(400, "messages is empty; send one at least", param="messages")
    return found


def _message(given: Fields) -> Mapping[str, Any]:
    role = given.text("role")
    if role not in _ROLES:
        raise given.wrong("role", f"one of {', '.join(_ROLES)}")
    found: dict[str, Any] = {"role": _ROLES[role], "content": text_of(given, "content")}
    if reasoning := given.text("reasoning_content") or given.text("reasoning"):
        found["reasoning_content"] = reasoning
    if calls := given.items("tool_calls"):
        found["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if value := given.text(name):
            found[name] = value
    return found


def text_of(given: Fields, name: str) -> str:
    """A content: a text, or parts of which all are texts."""
    value = given.values.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    texts = []
    for part in given.objects(name):
        kind = part.text("type")
        if kind not in _TEXTS:
            raise part.wrong("type", "text; this model reads nothing else")
        texts.append(part.text("text") or part.text("refusal") or "")
    return "\n".join(texts)


def tool_output(part: Fields) -> str:
    """A part of what a tool gave back: its text, or a word in the place of a picture.

    A request cannot do without it: it comes again with every later turn.
    """
    kind = part.text("type")
    if kind in _TEXTS:
        return part.text("text") or ""
    return f"[{kind or 'a part'} left out: this model reads text only]"
