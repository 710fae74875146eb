"""POST /v1/responses, OpenAI's newest protocol, which Codex speaks."""

import json
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from localspec.server.chat_input import ChatInput
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import event_line
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.options import EFFORTS, most_tokens
from localspec.server.reply import Reply
from localspec.server.responses_input import input_messages, input_tools
from localspec.server.service import Service
from localspec.server.stored_responses import StoredResponses
from localspec.server.thinking import Effort
from localspec.server.thinking_budget import thinking_budget
from localspec.server.tool_calls import Arguments, CallBegun, CallEnded, Event, Text
from localspec.server.tool_calls import Reasoning as Thought
from localspec.server.tool_names import ToolNames
from localspec.server.tool_use import openai_tools

log = logging.getLogger("localspec.server")

# Members that only OpenAI's own server has.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "conversation": (),
    "prompt": (),
    "top_logprobs": (0,),
}
Line = tuple[str, JSON]


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request, read and checked.

    conversation: the messages without the instructions, which are for this answer alone. names: of
    the tools. body: as it came, of which the answer repeats a part.
    """

    chat: ChatInput
    conversation: list[Mapping[str, Any]]
    names: ToolNames
    store: bool
    body: Fields


def read(body: Fields, service: Service, stored: StoredResponses) -> ResponsesRequest:
    """Read a request. Raises ApiError."""
    body.refuse(_NOT_HERE)
    if "message.output_text.logprobs" in (body.items("include") or ()):
        raise body.wrong("include", "without logprobs; ask /v1/chat/completions for them")
    tools, names = input_tools(body)
    messages = input_messages(body, names, stored, service.engine.model.projector)
    if previous := body.text("previous_response_id"):
        messages = [*stored.conversation(previous), *messages]
    conversation = messages
    if instructions := body.text("instructions"):
        messages = [{"role": "system", "content": instructions}, *messages]
    if not messages:
        raise ApiError(400, "input is empty; send a message at least", param="input")
    if body.flag("background"):
        raise body.wrong("background", "false")
    settings = service.settings_of(
        body,
        max_tokens=most_tokens(body, "max_output_tokens", context=service.engine.context),
        formats={"text.format": _format(body)},
    )
    chat = ChatInput(
        messages,
        settings,
        _template_options(body),
        thinking_budget(body, service.engine.model.chat_template),
        openai_tools(_with_choice(body, names), tools),
    )
    return ResponsesRequest(
        chat,
        conversation,
        names,
        body.flag("store") is not False,
        body,
    )


def _with_choice(body: Fields, names: ToolNames) -> Fields:
    """The body, whose `tool_choice` names tools as the model does."""
    return Fields({**body.values, "tool_choice": names.chosen(body.values.get("tool_choice"))})


def _format(body: Fields) -> Mapping[str, Any] | None:
    """`text.format`, as chat completions have it."""
    text = body.member("text")
    given = text.member("format") if text else None
    if given is None or given.text("type") != "json_schema":
        return given.values if given else None
    return {"type": "json_schema", "json_schema": given.values}


def _template_options(body: Fields) -> Mapping[str, Any]:
    reasoning = body.member("reasoning")
    effort = reasoning.one_of("effort", EFFORTS) if reasoning else None
    if effort is None:
        return {}
    return {"reasoning_effort": Effort(effort), "enable_thinking": effort != "none"}


class ResponseBuilder:
    """An answer as it grows: its items, and the events that say so."""

    def __init__(self, request: ResponsesRequest, service: Service) -> None:
        self.items: list[JSON] = []
        self._request = request
        self._id = f"resp_{token_hex(16)}"
        self._created = int(time.time())
        self._model = service.name
        self._sequence = -1
        self._open = False

    @property
    def begun(self) -> bool:
        """Whether an event was made."""
        return self._sequence >= 0

    def begin(self) -> Iterator[Line]:
        """The events before the first item, once."""
        if self.begun:
            return
        yield self._line("response.created", {"response": self.whole("in_progress")})
        yield self._in_progress()

    def heartbeat(self) -> str:
        """The events of a stream in which nothing is written just now."""
        lines = [*self.begin()] or [self._in_progress()]
        return "".join(event_line(*line) for line in lines)

    def add(self, event: Event) -> Iterator[Line]:
        """Add what the model wrote."""
        match event:
            case Thought(text):
                yield from self._text("reasoning", text)
            case Text(text):
                if text.strip() or self._is_open("message"):
                    yield from self._text("message", text)
            case CallBegun(_, name):
                yield from self._end_item()
                tool = self._request.names.members(name)
                item = {"call_id": f"call_{token_hex(12)}", **tool, "arguments": ""}
                yield from self._begin_item("function_call", "fc", item)
            case Arguments(_, text):
                self.items[-1]["arguments"] += text
                yield self._part("response.function_call_arguments.delta", {"delta": text})
            case CallEnded(_, complete):
                yield from self._end_item("completed" if complete else "incomplete")

    def end(self, reply: Reply) -> Iterator[Line]:
        """The events behind the last item."""
        status = "completed" if reply.stop_reason in ("eos", "stop") else "incomplete"
        yield from self._end_item(status)
        yield self._line(f"response.{status}", {"response": self.whole(status, reply)})

    def failed(self, error: ApiError) -> Line:
        """The last event of an answer that failed."""
        whole = self.whole("failed")
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        whole["error"] = {"code": code, "message": error.message}
        return self._line("response.failed", {"response": whole})

    def whole(self, status: str, reply: Reply | None = None) -> JSON:
        """The answer as an object."""
        body, settings = self._request.body.values, self._request.chat.settings
        reason = "max_output_tokens" if status == "incomplete" else None
        found: JSON = {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": self._model,
            "output": [] if status == "in_progress" else self.items,
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
            "store": self._request.store,
            "temperature": settings.sampling.get("temperature"),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": settings.sampling.get("top_p"),
            "truncation": "disabled",
            "usage": None,
        }
        if reply:
            found |= {"usage": _usage(reply), **speculation(reply)}
        return found

    @property
    def message(self) -> Mapping[str, Any]:
        """The answer as a message of the conversation."""
        texts = [
            part["text"] for item in self.items if item["type"] == "message"
            for part in item["content"]
        ]  # fmt: skip
        joined = self._request.names.joined
        calls = [
            {"id": item["call_id"], "type": "function",
             "function": {"name": joined(item.get("namespace", ""), item["name"]),
                          "arguments": item["arguments"]}}
            for item in self.items if item["type"] == "function_call"
        ]  # fmt: skip
        found: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
        thoughts = [
            part["text"] for item in self.items if item["type"] == "reasoning"
            for part in item["content"]
        ]  # fmt: skip
        if thoughts:
            found["reasoning_content"] = "".join(thoughts)
        return {**found, "tool_calls": calls} if calls else found

    def _is_open(self, kind: str) -> bool:
        return self._open and self.items[-1]["type"] == kind

    def _text(self, kind: str, text: str) -> Iterator[Line]:
        """Add text to an item of this kind: a message, or reasoning."""
        reasons = kind == "reasoning"
        if not self._is_open(kind):
            yield from self._end_item()
            part: JSON = {"type": "reasoning_text" if reasons else "output_text", "text": ""}
            if reasons:
                yield from self._begin_item(kind, "rs", {"summary": [], "content": []})
            else:
                part |= {"annotations": [], "logprobs": []}
                yield from self._begin_item(kind, "msg", {"role": "assistant", "content": []})
            yield self._part("response.content_part.added", {"content_index": 0, "part": {**part}})
            self.items[-1]["content"].append(part)
        self.items[-1]["content"][0]["text"] += text
        delta: JSON = {"content_index": 0, "delta": text}
        if not reasons:
            delta["logprobs"] = []
        name = "reasoning_text" if reasons else "output_text"
        yield self._part(f"response.{name}.delta", delta)

    def _begin_item(self, kind: str, prefix: str, members: JSON) -> Iterator[Line]:
        item = {"id": f"{prefix}_{token_hex(16)}", "type": kind, "status": "in_progress", **members}
        self.items.append(item)
        self._open = True
        shown = json.loads(json.dumps(item))  # the item grows, and what was sent does not
        index = len(self.items) - 1
        yield self._line("response.output_item.added", {"output_index": index, "item": shown})

    def _end_item(self, status: str = "completed") -> Iterator[Line]:
        """End the last item, if it has not ended."""
        if not self._open:
            return
        self._open, item = False, self.items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield self._part("response.function_call_arguments.done", done)
        else:
            (part,) = item["content"]
            name = part["type"]
            text: JSON = {"content_index": 0, "text": part["text"]}
            if name == "output_text":
                text["logprobs"] = []
            yield self._part(f"response.{name}.done", text)
            yield self._part("response.content_part.done", {"content_index": 0, "part": part})
        index = len(self.items) - 1
        yield self._line("response.output_item.done", {"output_index": index, "item": item})

    def _in_progress(self) -> Line:
        return self._line("response.in_progress", {"response": self.whole("in_progress")})

    def _part(self, kind: str, members: JSON) -> Line:
        """An event of the last item."""
        place = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return self._line(kind, {**place, **members})

    def _line(self, kind: str, members: JSON) -> Line:
        self._sequence += 1
        return kind, {"type": kind, "sequence_number": self._sequence, **members}


async def complete(request: ResponsesRequest, service: Service, stored: StoredResponses) -> JSON:
    """The whole answer."""
    last: JSON = {}
    async with aclosing(
        _lines(request, service, stored, ResponseBuilder(request, service))
    ) as lines:
        async for _, body in lines:
            last = body
    whole: JSON = last["response"]
    return whole


async def events(
    request: ResponsesRequest, service: Service, stored: StoredResponses, answer: ResponseBuilder
) -> AsyncGenerator[str]:
    """The answer as lines of text/event-stream."""
    try:
        async with aclosing(_lines(request, service, stored, answer)) as lines:
            async for line in lines:
                yield event_line(*line)
    except Exception as error:
        if not answer.begun:
            raise
        log.error("a stream failed", exc_info=error)
        yield event_line(*answer.failed(ApiError.of(error)))


async def _lines(
    request: ResponsesRequest, service: Service, stored: StoredResponses, answer: ResponseBuilder
) -> AsyncGenerator[Line]:
    asked = await service.inputs.chat(request.chat)
    async with service.reply(asked) as reply:
        try:
            async with reply.deltas() as deltas:
                async for delta in deltas:
                    # Not earlier: what fails before the first token has a status of its own.
                    for line in answer.begin():
                        yield line
                    for event in delta.events:
                        for line in answer.add(event):
                            yield line
        except BaseException:
            # A client may refer to what it has got of an answer that it has stopped.
            if request.store:
                stored.add_items(answer.items)
            raise
        for line in (*answer.begin(), *answer.end(reply)):
            if request.store:
                whole = line[1].get("response")
                if whole is not None:
                    stored.add([*request.conversation, answer.message], whole)
            yield line


def _usage(reply: Reply) -> JSON:
    stats = reply.stats
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": stats.prompt_cached,
            "cache_write_tokens": 0,
        },
        "output_tokens": stats.text_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.thinking_budget.used},
        "total_tokens": stats.prompt_tokens + stats.text_tokens,
    }
