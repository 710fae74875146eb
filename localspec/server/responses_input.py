"""Responses input: what /v1/responses takes, as messages for a chat template.

Codex sends kinds of items and tools that no local model has; what cannot be said to the model is
left out with a line in the log, and never refused.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from localspec.llama.model import MediaReader
from localspec.server.content_reader import ContentReader
from localspec.server.fields import Fields
from localspec.server.log import tell_once
from localspec.server.stored_responses import StoredResponses
from localspec.server.template_messages import require_said
from localspec.server.tool_names import ToolNames

log = logging.getLogger("localspec.server")

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
Message = Mapping[str, Any]


def input_messages(
    body: Fields, names: ToolNames, stored: StoredResponses, projector: MediaReader | None
) -> tuple[list[Message], Mapping[str, str]]:
    """The messages of `input`, and the marks of their files, as of a ContentReader.

    projector: reads images for the model. Raises ApiError.
    """
    given = body.needed("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}], {}
    items = [*_items(body, stored)]
    reader = ContentReader(items, projector)
    found: list[Message] = []
    for item in items:
        for message in _item(item, names, reader):
            _append(found, message)
    return found, reader.marks


def input_tools(body: Fields) -> tuple[list[dict[str, Any]], ToolNames]:
    """The function tools, in the shape of chat completions, and their names.

    Those among the input too.
    """
    found = [*_functions(body)]
    if isinstance(body.values.get("input"), list):
        for item in body.objects("input"):
            if item.text("type") == "additional_tools":
                found += _functions(item)
    names = ToolNames((namespace, function["name"]) for namespace, function in found)
    tools = [
        {"type": "function",
         "function": {**function, "name": names.joined(namespace, function["name"])}}
        for namespace, function in found
    ]  # fmt: skip
    return tools, names


def _functions(holder: Fields, namespace: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The functions among these tools, each with its namespace."""
    for tool in holder.objects("tools"):
        kind = tool.text("type")
        if kind == "namespace":
            yield from _functions(tool, tool.text("name") or "")
        elif kind == "function":
            function = {
                "name": tool.text("name") or "",
                "description": tool.text("description") or "",
                "parameters": tool.values.get("parameters") or {"type": "object"},
            }
            yield namespace, function
        else:
            tell_once(f"left out a tool of the type {kind!r:.40}, which is not known here")


def _items(body: Fields, stored: StoredResponses) -> Iterator[Fields]:
    """The items of `input`; a reference is the item of an earlier answer. Raises ApiError."""
    named = set[str]()
    for item in body.objects("input"):
        kind = item.text("type")
        # Its type may be missing; a message has a role or a content.
        if kind != "item_reference" and (kind or "role" in item or "content" in item):
            yield item
            continue
        item.needed("id")
        name = item.text("id") or ""
        if name in named:
            log.warning("left out the item %.40r, which is there already", name)
        else:
            named.add(name)
            yield Fields(stored.item(name), item.path)


def _item(item: Fields, names: ToolNames, reader: ContentReader) -> Iterator[Message]:
    """The messages of one item; of most, one."""
    kind = item.text("type") or "message"
    match kind:
        case "message" | "agent_message":
            role = item.text("role") or "assistant"
            if role not in _ROLES:
                raise item.wrong("role", f"one of {', '.join(_ROLES)}")
            if kind == "message":
                require_said(item, role)
            yield {"role": _ROLES[role], "content": reader.text_of(item)}
        case "function_call" | "custom_tool_call":
            arguments = item.text("arguments")
            if arguments is None:
                arguments = json.dumps({"input": item.values.get("input") or ""})
            name = names.joined(item.text("namespace") or "", item.text("name") or "")
            function = {"name": name, "arguments": arguments}
            call = {"id": item.text("call_id") or "", "type": "function", "function": function}
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output" | "custom_tool_call_output":
            yield {
                "role": "tool",
                "content": _output(item, reader),
                "tool_call_id": item.text("call_id") or "",
            }
        case "reasoning":
            texts = [part.text("text") or "" for part in item.objects("content")]
            if any(texts):
                yield {"role": "assistant", "content": "", "reasoning_content": "\n".join(texts)}
        case "additional_tools":
            pass  # see input_tools
        case _:
            tell_once(f"left out an item of the type {kind!r:.40}, which is not known here")


def _output(item: Fields, reader: ContentReader) -> str:
    """What a tool gave back: a text, parts of text, or any JSON."""
    output = item.values.get("output")
    if output is None or isinstance(output, str):
        return output or ""
    parts = output if isinstance(output, list) else []
    kinds = [part.get("type") if isinstance(part, Mapping) else None for part in parts]
    if parts and all(isinstance(kind, str) for kind in kinds):
        return reader.text_of(item, "output")
    return json.dumps(output)


def _append(messages: list[Message], message: Message) -> None:
    """Add a message; reasoning, text and calls of one answer, which are items, make one message."""
    last = messages[-1] if messages else {}
    answers = message["role"] == "assistant" == last.get("role")
    if not answers or (message["content"] and last.get("tool_calls")):
        messages.append(message)
        return
    joined = {**last, "content": last["content"] + message["content"]}
    if calls := [*last.get("tool_calls", ()), *message.get("tool_calls", ())]:
        joined["tool_calls"] = calls
    if reasoning := last.get("reasoning_content", "") + message.get("reasoning_content", ""):
        joined["reasoning_content"] = reasoning
    messages[-1] = joined
