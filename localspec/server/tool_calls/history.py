"""History: messages with calls and results as a model's chat template takes them.

Templates differ: arguments as an object or as text, ids of a certain form, one call per message,
turns that must alternate. What a template wants is found in its text.
"""

import hashlib
import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.server.tool_calls.families import (
    DEEPSEEK,
    DEEPSEEK_FENCED,
    HARMONY,
    HERMES,
    KIMI,
    Family,
)
from localspec.server.tool_calls.normalized_messages import Message, PastCall, read_messages
from localspec.server.tool_calls.python_calls import PythonCalls

# What stands for an answer that was never given, where a template insists on one.
_NO_ANSWER = "..."
_TOOLS_IN_WORDS = (
    "You can call these tools. To call one, write only this, once per call:\n"
    '<tool_call>\n{"name": NAME, "arguments": {ARGUMENTS}}\n</tool_call>\n'
    "The arguments must satisfy the tool's JSON schema. Results come in <tool_response> tags.\n\n"
)


@dataclass(frozen=True, slots=True)
class _Wants:
    """What a template wants of its messages."""

    text_arguments: bool  # arguments as JSON text rather than as objects
    one_call: bool  # no message with several calls
    turns: bool  # user and assistant in turns, but for calls and results
    no_system: bool  # no system message at all
    short_ids: bool  # ids of nine letters and digits
    calls_apart: bool  # calls only in messages whose content is None

    @classmethod
    def of(cls, template: str, family: Family) -> "_Wants":
        def has(pattern: str) -> bool:
            return re.search(pattern, template) is not None

        joined = has(
            r"arguments['\"]?\]?\)?\s*[+~]|[+~]\s*[\w.\[\]'\"]*arguments['\"]?\]?\s*[+~})]"
        )
        checked = has(r"arguments['\"]?\]?\s*(\||is (not )?(string|mapping))|\barguments\.items")
        return cls(
            text_arguments=joined and not checked,
            one_call=family == HARMONY or has("single tool-calls at once"),
            turns=has("must alternate"),
            no_system=has("System role not supported"),
            short_ids=has("length 9|length != 9"),
            calls_apart=family in (DEEPSEEK, DEEPSEEK_FENCED)
            and has(r"content['\"]?\]? is (not )?none"),
        )


def for_template(
    messages: Iterable[Any],
    template: str,
    family: Family,
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    later_system: bool = False,
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]] | None]:
    """The messages and the tools to render a chat template with.

    messages, tools: as OpenAI's clients send them. A template that teaches no tool calls gets the
    tools as words of the system message, and none as tools. later_system: whether the template
    writes a system message where it stands, behind others.

    Never raises, whatever the history: calls cut off, results without calls, several system
    messages, no question.
    """
    wants = _Wants.of(template, family)
    history = read_messages(messages)
    if not family.taught:
        history, tools = _in_words(history, tools or ()), None
    elif "tool_calls" not in template:
        history = [_calls_in_content(each, family) for each in history]
    history = _with_first_system(history, wants, later_system)
    history = [_answered(each) for each in history if not _is_empty(each)]
    if wants.one_call:
        history = _one_call_each(history)
    if wants.calls_apart:
        history = [part for each in history for part in _content_and_calls(each)]
    if wants.turns:
        history = _in_turns(history)
    history = _with_question(history)
    write = _Writer(family, wants)
    return [write.message(each) for each in history], list(tools) if tools else None


def _is_empty(message: Message) -> bool:
    """Whether an answer says nothing and calls nothing."""
    return message.role == "assistant" and not message.content and not message.calls


def _answered(message: Message) -> Message:
    """A tool's result without a call as the user's words."""
    if message.role == "tool" and message.call is None:
        return Message("user", message.content)
    return message


def _with_first_system(history: list[Message], wants: _Wants, later_system: bool) -> list[Message]:
    """Those at the beginning as one system message; later ones where they stand.

    So the prompt stays what is in a cache when a message is added. What the template does not write
    where it stands is a part of the tool's result before it, or else the user's words.
    """
    count = next((i for i, each in enumerate(history) if each.role != "system"), len(history))
    text = "\n\n".join(each.content for each in history[:count] if each.content)
    rest = history[count:] if later_system else _without_system(history[count:])
    if not text:
        return rest
    if not wants.no_system:
        return [Message("system", text), *rest]
    if rest and rest[0].role == "user":
        return [replace(rest[0], content=f"{text}\n\n{rest[0].content}"), *rest[1:]]
    return [Message("user", text), *rest]


def _without_system(history: Iterable[Message]) -> list[Message]:
    """The history with system messages in the words of others.

    Behind a tool's result they are no question: there, templates leave out the reasoning of what
    comes before a user's message.
    """
    result: list[Message] = []
    for message in history:
        if message.role != "system":
            result.append(message)
        elif result and result[-1].role == "tool":
            content = f"{result[-1].content}\n\n{message.content}"
            result[-1] = replace(result[-1], content=content)
        else:
            result.append(replace(message, role="user"))
    return result


def _with_question(history: list[Message]) -> list[Message]:
    """The history with a question in it, if an empty one."""
    if any(each.role == "user" for each in history):
        return history
    start = 1 if history and history[0].role == "system" else 0
    return [*history[:start], Message("user"), *history[start:]]


def _one_call_each(history: Iterable[Message]) -> list[Message]:
    """Messages with several calls as several, each before its result."""
    result: list[Message] = []
    waiting: dict[str, Message] = {}
    for message in history:
        if message.call is not None and message.call.id in waiting:
            result.append(waiting.pop(message.call.id))
        elif waiting and message.role != "tool":
            result += waiting.values()
            waiting = {}
        if len(message.calls) > 1:
            first, *others = (replace(message, calls=(call,)) for call in message.calls)
            each = [first, *(replace(other, content="", extra={}) for other in others)]
            waiting = {part.calls[0].id: part for part in each}
        else:
            result.append(message)
    return [*result, *waiting.values()]


def _content_and_calls(message: Message) -> list[Message]:
    """A message with content and calls as two."""
    if not message.content or not message.calls:
        return [message]
    return [replace(message, calls=()), replace(message, content="", extra={})]


def _in_turns(history: Iterable[Message]) -> list[Message]:
    """User and assistant by turns: neighbours of one role are one message."""
    result: list[Message] = []
    speaker = "assistant"  # who spoke last, calls and results not counted
    for message in history:
        last = result[-1] if result else Message("tool")
        if message.role == last.role != "tool" and not last.calls:
            content = "\n\n".join(filter(None, (last.content, message.content)))
            result[-1] = replace(message, content=content, extra={**last.extra, **message.extra})
            speaker = "user" if message.calls else message.role
            continue
        if message.role == speaker == "user":
            result.append(Message("assistant", _NO_ANSWER))
        elif message.role == "assistant" and speaker == "assistant":
            result.append(Message("user"))
            speaker = "user"
        if message.role == "user" or (message.role == "assistant" and not message.calls):
            speaker = message.role
        result.append(message)
    return result


def _in_words(history: Iterable[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Tools, calls and results as text."""
    result: list[Message] = []
    if tools:
        described = "\n".join(json.dumps(tool, ensure_ascii=False, default=str) for tool in tools)
        result.append(Message("system", _TOOLS_IN_WORDS + described))
    for message in history:
        if message.role == "tool":
            text = f"<tool_response>\n{message.content}\n</tool_response>"
            if result and result[-1].call is not None:
                result[-1] = replace(result[-1], content=f"{result[-1].content}\n{text}")
            else:
                result.append(Message("user", text, call=message.call))
        else:
            result.append(_calls_in_content(message, HERMES))
    return [replace(each, call=None) for each in result]


def _calls_in_content(message: Message, family: Family) -> Message:
    """A message's calls as text, as Python writes them or as JSON."""
    if not message.calls:
        return message
    if isinstance(syntax := family.syntax, PythonCalls):
        written = ", ".join(map(_as_python, message.calls))
        written = f"[{written}]" if syntax.bare else f"{syntax.opening}[{written}]{syntax.closing}"
    else:
        written = "\n".join(map(_as_object, message.calls))
    content = "\n".join(filter(None, (message.content, written)))
    return replace(message, content=content, calls=())


def _as_python(call: PastCall) -> str:
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _as_object(call: PastCall) -> str:
    called = {"name": call.name, "arguments": call.arguments}
    written = json.dumps(called, ensure_ascii=False, default=str)
    return f"<tool_call>\n{written}\n</tool_call>"


class _Writer:
    """Writes messages as a template reads them."""

    def __init__(self, family: Family, wants: _Wants) -> None:
        self._family = family
        self._wants = wants
        self._ids: dict[str, str] = {}

    def message(self, message: Message) -> dict[str, Any]:
        written: dict[str, Any] = {**message.extra, "role": message.role}
        written["content"] = message.content
        if message.call is not None:
            written["tool_call_id"] = self._id(message.call)
            written["name"] = message.call.name
        if message.calls:
            written["tool_calls"] = [self._call(call) for call in message.calls]
            if self._wants.calls_apart:
                written["content"] = None
        if self._family == HARMONY:
            _name_thinking(written)
        return written

    def _call(self, call: PastCall) -> dict[str, Any]:
        arguments: Any = call.arguments
        if self._wants.text_arguments:
            arguments = json.dumps(arguments, ensure_ascii=False, default=str)
        function = {"name": call.name, "arguments": arguments}
        return {"id": self._id(call), "type": "function", "function": function}

    def _id(self, call: PastCall) -> str:
        """The id of a call, the same one for its result."""
        if self._family == KIMI:
            return self._ids.setdefault(call.id, f"functions.{call.name}:{len(self._ids)}")
        return short_id(call.id) if self._wants.short_ids else call.id


def _name_thinking(written: dict[str, Any]) -> None:
    """gpt-oss's template reads reasoning as `thinking`, beside calls only without content."""
    thinking = written.pop("reasoning_content", None) or written.pop("reasoning", None)
    if isinstance(thinking, str) and not (written["content"] and "tool_calls" in written):
        written["thinking"] = thinking


_LETTERS: Callable[[int], str] = (string.ascii_letters + string.digits).__getitem__


def short_id(call_id: str) -> str:
    """An id of nine letters and digits, which Mistral's templates insist on."""
    if re.fullmatch(r"[a-zA-Z0-9]{9}", call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="replace")).digest()
    return "".join(_LETTERS(byte % 62) for byte in digest[:9])
