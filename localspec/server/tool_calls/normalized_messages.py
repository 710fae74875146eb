"""Normalized messages: a chat's history in one form, whatever oddities it came with.

Clients send histories that other servers wrote, that were cut off, or that they edited: nothing
here raises for their contents.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from localspec.server.tool_calls.json_scanner import JsonScanner

Role = Literal["system", "user", "assistant", "tool"]
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
}


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call in a history. arguments: an object, mended if its text was cut off."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a history.

    call: of a tool's result, the call that it answers; None if there is none. extra: other keys,
    which some templates read, such as `reasoning_content`.
    """

    role: Role
    content: str = ""
    calls: tuple[PastCall, ...] = ()
    call: PastCall | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_messages(messages: Iterable[Any]) -> list[Message]:
    """OpenAI's messages; what is no message is left out.

    Calls without an id get one. A result belongs to the call of its id, else to the first call
    without a result.
    """
    result: list[Message] = []
    unanswered: dict[str, PastCall] = {}
    count = 0
    for given in messages:
        if not isinstance(given, Mapping):
            continue
        message = _read(given, count)
        count += len(message.calls)
        unanswered |= {call.id: call for call in message.calls}
        if message.role == "tool" and unanswered:
            asked = given.get("tool_call_id")
            call_id = asked if asked in unanswered else next(iter(unanswered))
            message = replace(message, call=unanswered.pop(call_id))
        elif message.role == "user":
            unanswered = {}
        result.append(message)
    return result


def _read(given: Mapping[str, Any], count: int) -> Message:
    role = _ROLES.get(str(given.get("role")), "user")
    listed = given.get("tool_calls")
    if not listed and isinstance(given.get("function_call"), Mapping):
        listed = [{"function": given["function_call"]}]
    calls: tuple[PastCall, ...] = ()
    if role == "assistant" and isinstance(listed, list):
        calls = tuple(_calls(listed, count))
    known = {"role", "content", "tool_calls", "function_call", "tool_call_id"}
    extra = {key: given[key] for key in given if key not in known and given[key] is not None}
    return Message(role, text_of(given.get("content")), calls, extra=extra)


def _calls(listed: Iterable[Any], count: int) -> Iterable[PastCall]:
    """The calls of a message. count: of those before, for the ids of calls without one."""
    ids: set[str] = set()
    for call in listed:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in ids:
            call_id = f"call_{count}"
        ids.add(call_id)
        yield PastCall(call_id, function["name"], arguments_of(function.get("arguments")))
        count += 1


def text_of(content: Any) -> str:
    """A message's content as text: of parts, their texts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
        return "\n".join(text for text in texts if isinstance(text, str))
    return json.dumps(content, ensure_ascii=False, default=str)


def arguments_of(given: Any) -> Mapping[str, Any]:
    """A call's arguments as an object; a text that was cut off is completed.

    Other values are the argument "arguments".
    """
    if isinstance(given, Mapping):
        return given
    text = given if isinstance(given, str) else json.dumps(given, default=str)
    if not text.strip() or text == "null":
        return {}
    scanner = JsonScanner()
    taken, _ = scanner.take(text.strip(), 0)
    try:
        value = json.loads(taken + ("" if scanner.done else scanner.completion()))
    except (ValueError, RecursionError):
        value = None
    return cast(dict[str, Any], value) if isinstance(value, dict) else {"arguments": given}
