"""Messages in Anthropic's protocol: what a request says, as a conversation to answer."""

import json
import logging
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from localspec.engine.media_marks import join_parts
from localspec.llama.model import MediaReader
from localspec.server.anthropic_tools import AnthropicTools
from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE
from localspec.server.content_reader import ContentReader
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members
from localspec.server.log import tell_once
from localspec.server.options import most_tokens
from localspec.server.service import Service
from localspec.server.template_messages import require_said
from localspec.server.thinking import Effort
from localspec.server.thinking_signature import text_in
from localspec.utils.format import printable
from localspec.utils.reasoning_levels import EFFORTS

# Members that only Anthropic's own servers have.
_NOT_HERE: dict[str, tuple[Any, ...]] = {"container": (), "mcp_servers": ([],)}
# The edit that leaves out the thinking of earlier answers.
_THINKING = "clear_thinking_20251015"
# So many edits are told.
_MOST_EDITS = 16
# Claude Code puts this block first, with a number that changes in every request: nothing behind it
# would ever be found in a cache.
_BILLING = "x-anthropic-billing-header"


def read(body: Fields, service: Service, *, counts_only: bool = False) -> ChatInput:
    """Read a request. counts_only: whether its tokens are counted, and nothing is written."""
    body.needed("messages")
    if not counts_only:
        body.needed("max_tokens")
    body.refuse(_NOT_HERE)
    thinking, output = body.member("thinking"), body.member("output_config")
    settings = service.settings_of(
        body,
        max_tokens=most_tokens(body, "max_tokens", context=service.engine.context),
        stop=[each for each in body.texts("stop_sequences") if each] or None,
        formats={"output_config.format": _format(output)},
        not_used=[*unused_members(body, "messages"), *_unused_edits(body)],
    )
    options: dict[str, Any] = {CONTINUE: True}
    budget, display = None, None
    if effort := output.one_of("effort", EFFORTS) if output else None:
        options["reasoning_effort"] = Effort(effort)
    if thinking is not None:
        kind = thinking.one_of("type", ("enabled", "disabled", "adaptive"))
        display = thinking.one_of("display", ("summarized", "omitted"))
        options["enable_thinking"] = kind != "disabled"
        budget = thinking.whole("budget_tokens", 0, 2**31 - 1) if kind == "enabled" else None
    elif "enable_thinking" in service.template_options:
        if effort:
            options["enable_thinking"] = effort != "none"
    elif not effort:
        # Most models of Anthropic think only if asked: programs take the first block for the text.
        options["enable_thinking"] = False
    tools = AnthropicTools(body)
    messages = [*_system(body), *_messages(body, tools, service.engine.model.projector)]
    omits_thinking = display == "omitted"
    return ChatInput(messages, settings, options, budget, tools.use(), omits_thinking)


def _unused_edits(body: Fields) -> Iterator[str]:
    """Yield the edits of the conversation that are asked for, a line for each: there are none here.

    All of the thinking is kept, as far as the template writes it.
    """
    given = body.member("context_management")
    for edit in islice(given.objects("edits"), _MOST_EDITS) if given else ():
        kind, kept = edit.text("type") or "", edit.values.get("keep")
        if kind != _THINKING or kept not in ("all", {"type": "all"}):
            yield f"{edit.path}: nothing is cleared here, {printable(kind)[:40]} has no effect"


def _format(output: Fields | None) -> Mapping[str, Any] | None:
    """The JSON schema of the answer in `output_config`, as chat completions have it."""
    given = output.member("format") if output else None
    if given is None:
        return None
    given.one_of("type", ("json_schema",))
    given.needed("schema")
    given.member("schema")  # raises where it is no object
    return given.values


def _system(body: Fields) -> Iterator[Mapping[str, Any]]:
    """The system prompt: a text, or blocks of text. An empty one is none."""
    given = body.values.get("system")
    if isinstance(given, str):
        if given:
            yield {"role": "system", "content": given}
        return
    for block in body.objects("system"):
        text = block.text("text") or ""
        if text.startswith(_BILLING):
            line = f"left out the block {_BILLING}, which would end the reuse of caches"
            tell_once(line, logging.INFO)
        elif text:
            yield {"role": "system", "content": text}


def _messages(
    body: Fields, tools: AnthropicTools, projector: MediaReader | None
) -> Iterator[Mapping[str, Any]]:
    given = [_with_texts(message, tools) for message in body.objects("messages")]
    if not given:
        raise ApiError(400, "messages is empty; send one at least", param="messages")
    reader = ContentReader(given, projector)
    for message in given:
        role = message.text("role")
        if role not in ("user", "assistant", "system"):
            raise message.wrong("role", "user or assistant")
        require_said(message, role)
        if isinstance(message.values.get("content"), str):
            yield {"role": role, "content": message.values["content"]}
        else:
            yield from _blocks(message, role, reader)


def _with_texts(holder: Fields, tools: AnthropicTools) -> Fields:
    """A message or a tool's result, with what lies in documents and search results as blocks.

    Tools that are referred to stand there as the model is told of them.
    """
    content = holder.values.get("content")
    if not isinstance(content, list):
        return holder
    blocks: list[Any] = []
    for are_references, group in groupby(content, _is_reference):
        if are_references:
            shown = tools.show(block.get("tool_name") for block in group)
            blocks.append({"type": "text", "text": shown})
        else:
            blocks += [each for block in group for each in _opened(block, tools)]
    return Fields({**holder.values, "content": blocks}, holder.path)


def _is_reference(block: Any) -> bool:
    match block:
        case {"type": "tool_reference"}:
            return True
    return False


def _opened(block: Any, tools: AnthropicTools) -> list[Any]:
    """A block; of a document or search result its title and its content, one text if it can be."""
    match block:
        case {"type": "tool_result"}:
            return [_with_texts(Fields(block), tools).values]
        case {"type": "document", "source": {"type": "text", "data": str(content)}} | {
            "type": "document",
            "source": {"type": "content", "content": str(content)},
        }:
            within: list[Any] = [{"type": "text", "text": content}]
        case {"type": "document", "source": {"type": "content", "content": [*within]}} | {
            "type": "search_result",
            "content": [*within],
        }:
            pass
        case _:
            return [block]
    about = [block.get(name) for name in ("title", "source", "context")]
    heads = [{"type": "text", "text": each} for each in about if isinstance(each, str) and each]
    opened = [*heads, *within]
    texts = [each["text"] for each in opened if _is_text(each)]
    return opened if len(texts) < len(opened) else [{"type": "text", "text": "\n".join(texts)}]


def _is_text(block: Any) -> bool:
    match block:
        case {"type": "text", "text": str()}:
            return True
    return False


def _blocks(message: Fields, role: str, reader: ContentReader) -> Iterator[Mapping[str, Any]]:
    """The messages that a list of blocks makes: results of tools are messages of their own."""
    texts, thoughts, calls = [], [], []
    for block in message.objects("content"):
        match block.text("type"):
            case "text":
                texts.append(block.text("text") or "")
            case "thinking":
                held = text_in(block.text("signature") or "")
                thoughts.append(block.text("thinking") or held)
            case "tool_use":
                arguments = block.values.get("input")
                function = {
                    "name": block.text("name") or "",
                    "arguments": json.dumps({} if arguments is None else arguments),
                }
                calls.append({"id": block.text("id"), "type": "function", "function": function})
            case "tool_result":
                yield {
                    "role": "tool",
                    "content": reader.text_of(block),
                    "tool_call_id": block.text("tool_use_id") or "",
                }
            case kind if role == "assistant":
                # Of another server, where the conversation began: no model here can read it.
                tell_once(f"left out a block of the type {kind!r:.40}, which is not known here")
            case _:
                texts.append(reader.part(block))
    if texts or calls or thoughts:
        found: dict[str, Any] = {"role": role, "content": join_parts(texts)}
        if thoughts:
            found["reasoning_content"] = "\n".join(thoughts)
        if calls:
            found["tool_calls"] = calls
        yield found
