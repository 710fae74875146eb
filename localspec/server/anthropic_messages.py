"""POST /v1/messages, as Anthropic's clients and Claude Code speak it."""

import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from secrets import token_hex
from typing import Any

from localspec.conversation.thinking import EFFORTS
from localspec.engine.media_marks import join_parts
from localspec.llama.model import MediaReader
from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE
from localspec.server.content_reader import ContentReader
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import event_line
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.options import most_tokens
from localspec.server.reply import Reply
from localspec.server.service import Service
from localspec.server.template_messages import require_said
from localspec.server.text_request import TextRequest
from localspec.server.thinking import Effort
from localspec.server.tool_calls import (
    Arguments,
    CallBegun,
    Event,
    Reasoning,
    Text,
    whole_arguments,
)
from localspec.server.tool_use import anthropic_tools

log = logging.getLogger("localspec.server")

_REASONS = {"eos": "end_turn", "stop": "stop_sequence", "length": "max_tokens"}
# Members that only Anthropic's own servers have.
_NOT_HERE: dict[str, tuple[Any, ...]] = {"container": (), "mcp_servers": ([],)}
# Claude Code puts this block first, with a number that changes in every request: nothing behind it
# would ever be found in a cache.
_BILLING = "x-anthropic-billing-header"
# Of thinking blocks: clients send those back that have one. It is not read here.
_SIGNATURE = "localspec"


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
    )
    options: dict[str, Any] = {CONTINUE: True}
    budget = None
    if effort := output.one_of("effort", EFFORTS) if output else None:
        options["reasoning_effort"] = Effort(effort)
    if thinking is not None:
        kind = thinking.one_of("type", ("enabled", "disabled", "adaptive"))
        options["enable_thinking"] = kind != "disabled"
        budget = thinking.whole("budget_tokens", 0, 2**31 - 1) if kind == "enabled" else None
    elif "enable_thinking" in service.template_options:
        if effort:
            options["enable_thinking"] = effort != "none"
    elif not effort:
        # Most models of Anthropic think only if asked: programs take the first block for the text.
        options["enable_thinking"] = False
    messages = [*_system(body), *_messages(body, service.engine.model.projector)]
    return ChatInput(messages, settings, options, budget, anthropic_tools(body))


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
    """The system prompt: a text, or blocks of text."""
    given = body.values.get("system")
    if isinstance(given, str):
        yield {"role": "system", "content": given}
        return
    for block in body.objects("system"):
        text = block.text("text") or ""
        if text.startswith(_BILLING):
            log.info("left out the block %s, which would end the reuse of caches", _BILLING)
        else:
            yield {"role": "system", "content": text}


def _messages(body: Fields, projector: MediaReader | None) -> Iterator[Mapping[str, Any]]:
    given = [_with_texts(message) for message in body.objects("messages")]
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


def _with_texts(holder: Fields) -> Fields:
    """A message or a tool's result, with what lies in documents and search results as blocks."""
    content = holder.values.get("content")
    if not isinstance(content, list):
        return holder
    blocks = [each for block in content for each in _opened(block)]
    return Fields({**holder.values, "content": blocks}, holder.path)


def _opened(block: Any) -> list[Any]:
    """A block; of a document or search result its title and its content, one text if it can be."""
    match block:
        case {"type": "tool_result"}:
            return [_with_texts(Fields(block)).values]
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
                thoughts.append(block.text("thinking") or "")
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
                log.warning("left out a block of the type %.40r, which is not known here", kind)
            case _:
                texts.append(reader.part(block))
    if texts or calls or thoughts:
        found: dict[str, Any] = {"role": role, "content": join_parts(texts)}
        if thoughts:
            found["reasoning_content"] = "\n".join(thoughts)
        if calls:
            found["tool_calls"] = calls
        yield found


async def count(chat: ChatInput, service: Service) -> JSON:
    """How many tokens the prompt has."""
    asked = await service.inputs.chat(chat, must_fit=False)
    return {"input_tokens": len(asked.prompt)}


class _Blocks:
    """The content blocks of an answer, as they grow. continues: whether it goes on with a text."""

    def __init__(self, *, continues: bool) -> None:
        self._continues = continues
        self.blocks: list[JSON] = []
        self._json: list[str] = []

    def add(self, event: Event) -> Iterator[tuple[str, JSON]]:
        """Add what the model wrote; yields the stream's events, by name."""
        match event:
            case Reasoning(text):
                yield from self._begin("thinking", {"thinking": "", "signature": ""})
                self.blocks[-1]["thinking"] += text
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case Text(text):
                # Models end their reasoning, and begin calls, with empty lines.
                begins = not (self.blocks and self.blocks[-1]["type"] == "text")
                if text.strip() or not begins or (self._continues and not self.blocks):
                    yield from self._begin("text", {"text": ""})
                    self.blocks[-1]["text"] += text
                    yield self._delta({"type": "text_delta", "text": text})
            case CallBegun(_, name):
                yield from self.end()
                call = {"id": f"toolu_{token_hex(12)}", "name": name, "input": {}}
                yield from self._begin("tool_use", call)
            case Arguments(_, text):
                self._json.append(text)
                yield self._delta({"type": "input_json_delta", "partial_json": text})
            case _:
                yield from self.end()

    def end(self) -> Iterator[tuple[str, JSON]]:
        """End the last block, if it has not ended."""
        if not self.blocks or self.blocks[-1].pop("open", None) is None:
            return
        last = self.blocks[-1]
        if last["type"] == "thinking":
            last["signature"] = _SIGNATURE
            yield self._delta({"type": "signature_delta", "signature": _SIGNATURE})
        elif last["type"] == "tool_use":
            last["input"] = whole_arguments("".join(self._json))
            self._json = []
        index = len(self.blocks) - 1
        yield "content_block_stop", {"type": "content_block_stop", "index": index}

    def _begin(self, kind: str, empty: JSON) -> Iterator[tuple[str, JSON]]:
        """Begin a block of this kind, unless the last one is such."""
        if self.blocks and self.blocks[-1].get("open") and self.blocks[-1]["type"] == kind:
            return
        yield from self.end()
        self.blocks.append({"type": kind, **empty, "open": True})
        block = {"type": kind, **empty}
        yield (
            "content_block_start",
            {
                "type": "content_block_start",
                "index": len(self.blocks) - 1,
                "content_block": block,
            },
        )

    def _delta(self, delta: JSON) -> tuple[str, JSON]:
        index = len(self.blocks) - 1
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        return "content_block_delta", event


def _continues(asked: TextRequest) -> bool:
    """Whether the answer goes on with a text, whose spaces are a part of it."""
    return bool(asked.continued) and not asked.thinking


async def complete(chat: ChatInput, service: Service) -> JSON:
    """The whole answer."""
    asked = await service.inputs.chat(chat)
    blocks = _Blocks(continues=_continues(asked))
    async with service.reply(asked) as reply:
        async with reply.deltas() as deltas:
            async for delta in deltas:
                for event in delta.events:
                    for _ in blocks.add(event):
                        pass
        for _ in blocks.end():
            pass
    return {
        **_head(service),
        "content": blocks.blocks,
        **_stop(reply),
        "usage": _usage(reply),
        **speculation(reply),
    }


async def events(chat: ChatInput, service: Service) -> AsyncGenerator[str]:
    """The answer as lines of text/event-stream."""
    asked = await service.inputs.chat(chat)
    blocks, begun = _Blocks(continues=_continues(asked)), False
    async with service.reply(asked) as reply:
        async with reply.deltas() as deltas:
            async for delta in deltas:
                if not begun:
                    begun = True
                    yield _start(reply, service)
                for event in delta.events:
                    for name, body in blocks.add(event):
                        yield event_line(name, body)
        if not begun:  # the server ended before the first token
            yield _start(reply, service)
        for name, body in blocks.end():
            yield event_line(name, body)
        last = {
            "type": "message_delta",
            "delta": _stop(reply),
            "usage": _usage(reply),
            **speculation(reply),
        }
        yield event_line("message_delta", last)
        yield event_line("message_stop", {"type": "message_stop"})


def ping() -> str:
    """The event of a stream in which nothing is written just now."""
    return event_line("ping", {"type": "ping"})


def _start(reply: Reply, service: Service) -> str:
    usage = {**_usage(reply), "output_tokens": 1}
    head = {**_head(service), "content": [], "usage": usage}
    message = {**head, "stop_reason": None, "stop_sequence": None}
    return event_line("message_start", {"type": "message_start", "message": message})


def _head(service: Service) -> JSON:
    return {
        "id": f"msg_{token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": service.name,
    }


def _stop(reply: Reply) -> JSON:
    """Why the answer has ended."""
    reason = _REASONS.get(reply.stop_reason or "", "max_tokens")
    if reason == "end_turn" and reply.has_called:
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": reply.stop_string}


def _usage(reply: Reply) -> JSON:
    stats = reply.stats
    return {
        "input_tokens": stats.prompt_evaluated,
        "cache_read_input_tokens": stats.prompt_cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": stats.text_tokens,
    }
