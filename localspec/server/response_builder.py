"""ResponseBuilder: an answer of /v1/responses as it grows."""

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from secrets import token_hex
from typing import Any

from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import event_line
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.reply import Delta, Reply
from localspec.server.responses_request import ResponsesRequest
from localspec.server.service import Service
from localspec.server.tool_calls import Arguments, CallBegun, CallEnded, Event, Text
from localspec.server.tool_calls import Reasoning as Thought

Line = tuple[str, JSON]


class ResponseBuilder:
    """The items of an answer so far, and the events that say so."""

    def __init__(self, request: ResponsesRequest, service: Service) -> None:
        self.items: list[JSON] = []
        self._request = request
        self._service = service
        self._id = f"resp_{token_hex(16)}"
        self._created = int(time.time())
        self._sequence = -1
        self._open = False
        # The log-probabilities of tokens whose text is still to come.
        self._logprobs: list[JSON] = []

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

    def add(self, delta: Delta) -> Iterator[Line]:
        """Add what the model wrote."""
        if delta.token and (settings := self._request.chat.settings).logprobs:
            if self._is_open("reasoning"):
                self._logprobs.clear()  # those of the tag that ends it
            self._logprobs.append(token_logprobs(delta.token, settings, self._service))
        for event in delta.events:
            yield from self._add(event)

    def _add(self, event: Event) -> Iterator[Line]:
        logprobs, self._logprobs = self._logprobs, []
        match event:
            case Thought(text):
                yield from self._text("reasoning", text)
            case Text(text):
                if text.strip() or self._is_open("message"):
                    yield from self._text("message", text, logprobs)
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
            "model": self._service.name,
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

    def _text(self, kind: str, text: str, logprobs: Sequence[JSON] = ()) -> Iterator[Line]:
        """Add text to an item of this kind: a message, or reasoning."""
        if not self._is_open(kind):
            yield from self._end_item()
            yield from self._begin_text(kind)
        item = self.items[-1]
        (part,) = item["content"]
        part["text"] += text
        delta: JSON = {"content_index": 0, "delta": text}
        if "logprobs" in part:
            part["logprobs"] += logprobs
            delta["logprobs"] = [*logprobs]
        yield self._part(f"response.{part['type']}.delta", delta)
        for summary in item.get("summary", ()):
            summary["text"] += text
            members: JSON = {"summary_index": 0, "delta": text}
            yield self._part("response.reasoning_summary_text.delta", members)

    def _begin_text(self, kind: str) -> Iterator[Line]:
        reasons = kind == "reasoning"
        if reasons:
            part: JSON = {"type": "reasoning_text", "text": ""}
            yield from self._begin_item(kind, "rs", {"summary": [], "content": []})
        else:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield from self._begin_item(kind, "msg", {"role": "assistant", "content": []})
        self.items[-1]["content"].append(part)
        added: JSON = {"content_index": 0, "part": deepcopy(part)}
        yield self._part("response.content_part.added", added)
        if reasons and self._request.summarizes:
            summary = {"type": "summary_text", "text": ""}
            self.items[-1]["summary"].append(summary)
            added = {"summary_index": 0, "part": {**summary}}
            yield self._part("response.reasoning_summary_part.added", added)

    def _begin_item(self, kind: str, prefix: str, members: JSON) -> Iterator[Line]:
        item = {"id": f"{prefix}_{token_hex(16)}", "type": kind, "status": "in_progress", **members}
        self.items.append(item)
        self._open = True
        shown = deepcopy(item)  # the item grows, and what was sent does not
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
            text: JSON = {"content_index": 0, "text": part["text"]}
            if "logprobs" in part:
                text["logprobs"] = part["logprobs"]
            yield self._part(f"response.{part['type']}.done", text)
            yield self._part("response.content_part.done", {"content_index": 0, "part": part})
            for summary in item.get("summary", ()):
                at = {"summary_index": 0}
                done = {**at, "text": summary["text"]}
                yield self._part("response.reasoning_summary_text.done", done)
                yield self._part("response.reasoning_summary_part.done", {**at, "part": summary})
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
