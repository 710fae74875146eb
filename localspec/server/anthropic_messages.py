"""POST /v1/messages, as Anthropic's clients and Claude Code speak it."""

from collections.abc import AsyncGenerator, Iterator
from secrets import token_hex

from localspec.server.chat_input import ChatInput
from localspec.server.errors import JSON
from localspec.server.exchange import event_line
from localspec.server.metrics import speculation
from localspec.server.reply import Reply
from localspec.server.service import Service
from localspec.server.text_request import TextRequest
from localspec.server.thinking_signature import SIGNATURE, signature_of
from localspec.server.tool_calls import (
    Arguments,
    CallBegun,
    Event,
    Reasoning,
    Text,
    whole_arguments,
)

_REASONS = {"eos": "end_turn", "stop": "stop_sequence", "length": "max_tokens"}


async def count(chat: ChatInput, service: Service) -> JSON:
    """How many tokens the prompt has."""
    asked = await service.inputs.chat(chat, must_fit=False)
    return {"input_tokens": len(asked.prompt)}


class _Blocks:
    """The content blocks of an answer, as they grow.

    continues: whether it goes on with a text. omits_thinking: whether thinking blocks have no text.
    """

    def __init__(self, *, continues: bool, omits_thinking: bool = False) -> None:
        self._continues, self._omits_thinking = continues, omits_thinking
        self.blocks: list[JSON] = []
        # The text of the thinking block that is open.
        self._thought: list[str] = []
        self._json: list[str] = []

    def add(self, event: Event) -> Iterator[tuple[str, JSON]]:
        """Add what the model wrote; yields the stream's events, by name."""
        match event:
            case Reasoning(text):
                yield from self._begin("thinking", {"thinking": "", "signature": ""})
                self._thought.append(text)
                if not self._omits_thinking:
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
            text, self._thought = "".join(self._thought), []
            last["thinking"] = "" if self._omits_thinking else text
            last["signature"] = signature_of(text) if self._omits_thinking else SIGNATURE
            yield self._delta({"type": "signature_delta", "signature": last["signature"]})
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


def _blocks(chat: ChatInput, asked: TextRequest) -> _Blocks:
    # Where the answer goes on with a text, spaces are a part of it.
    continues = bool(asked.continued) and not asked.thinking
    return _Blocks(continues=continues, omits_thinking=chat.omits_thinking)


async def complete(chat: ChatInput, service: Service) -> JSON:
    """The whole answer."""
    asked = await service.inputs.chat(chat)
    blocks = _blocks(chat, asked)
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
    blocks, begun = _blocks(chat, asked), False
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
        "output_tokens_details": {"thinking_tokens": reply.thinking_budget.used},
    }
