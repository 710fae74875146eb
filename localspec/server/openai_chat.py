"""POST /v1/chat/completions, as OpenAI's clients speak it."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE, REQUIRED, can_continue
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.openai_parts import AnswerForm, answer_head, finish_reason, merged, usage
from localspec.server.options import most_tokens
from localspec.server.reply import Delta, Reply
from localspec.server.service import Service
from localspec.server.template_messages import messages_of
from localspec.server.thinking import asked_variables
from localspec.server.thinking_budget import thinking_budget
from localspec.server.tool_calls import Arguments, CallBegun, Event
from localspec.server.tool_use import openai_tools

# Members that only OpenAI's own models have, or had before `tools`, and those of llama-server.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "functions": ([],),
    "function_call": ("none",),
    "web_search_options": (),
    "reasoning_format": ("auto", "deepseek"),
    "echo": (False,),
    "best_of": (1,),
    "parse_tool_calls": (True,),
    "t_max_predict_ms": (-1, 0),
    "n_indent": (0,),
    "reasoning_budget_message": ("",),
    "reasoning_control": (False,),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request, read and checked."""

    chat: ChatInput
    form: AnswerForm
    origins: bool


def read(body: Fields, service: Service) -> ChatRequest:
    """Read a request. Raises ApiError."""
    body.needed("messages")
    body.refuse(_NOT_HERE)
    if body.items("modalities") not in (None, ["text"]):
        raise body.wrong("modalities", '["text"]')
    top = body.whole("top_logprobs", 0, 20)
    if top and not body.flag("logprobs"):
        raise body.wrong("top_logprobs", "beside logprobs: true, or left out")
    ours = body.member("localspec")
    settings = service.settings_of(
        body,
        max_tokens=most_tokens(
            body,
            *("max_completion_tokens", "max_tokens", "n_predict"),
            context=service.engine.context,
        ),
        logprobs=bool(body.flag("logprobs")),
        top_logprobs=top or None,
        prediction=_prediction(body),
        not_used=unused_members(body, "chat"),
    )
    messages = messages_of(body, service.engine.model.projector)
    chat = ChatInput(
        messages,
        settings,
        template_options(body, messages),
        thinking_budget(body, service.engine.model.chat_template),
        openai_tools(body, body.items("tools") or []),
    )
    return ChatRequest(chat, AnswerForm.of(body), bool(ours and ours.flag("origins")))


def _prediction(body: Fields) -> str | None:
    """What most of the answer is known to be: a text, or parts that are texts. Raises ApiError."""
    if (given := body.member("prediction")) is None:
        return None
    given.needed("type")
    given.one_of("type", ("content",))
    if isinstance(content := given.needed("content"), str):
        return content
    if not isinstance(content, list):
        raise given.wrong("content", "a text or a list of parts")
    parts = [*given.objects("content")]
    for part in parts:
        part.needed("type")
        part.one_of("type", ("text",))
        part.needed("text")
    return "".join(part.text("text") or "" for part in parts)


def template_options(body: Fields, messages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Variables for the template: those that the client names, how much to reason, what to write.

    Raises ApiError.
    """
    return {**asked_variables(body), CONTINUE: _continues(body, messages)}


def _continues(body: Fields, messages: Sequence[Mapping[str, Any]]) -> bool | str:
    """Whether a last message of the assistant is continued, as on llama-server; vLLM must be told.

    One with a name may be another agent's, as group chats send them: it must be asked for.
    Raises ApiError for what cannot be.
    """
    wanted, begins = body.flag(CONTINUE), body.flag("add_generation_prompt")
    if wanted and begins:
        raise body.wrong("add_generation_prompt", f"false beside {CONTINUE}: true, or left out")
    if not can_continue(messages):
        for name, asked in ((CONTINUE, wanted), ("add_generation_prompt", begins is False)):
            if asked:
                raise body.wrong(name, "left out: the last message is no text of the assistant's")
        return False
    if wanted or (begins is False and wanted is None):
        return REQUIRED
    return not begins and wanted is not False and not messages[-1].get("name")


async def complete(request: ChatRequest, service: Service) -> JSON:
    """The whole answer."""
    asked = await service.inputs.chat(request.chat)
    finished: dict[int, tuple[Reply, list[Delta]]] = {}
    async with aclosing(merged(service, [asked], request.form)) as deltas:
        async for number, reply, delta in deltas:
            finished.setdefault(number, (reply, []))
            if delta is not None:
                finished[number][1].append(delta)
    replies = [finished[number][0] for number in sorted(finished)]
    return {
        **answer_head(service, "chat.completion", "chatcmpl"),
        "choices": [
            _choice(number, *finished[number], service, origins=request.origins)
            for number in sorted(finished)
        ],
        "usage": usage(replies),
        **speculation(*replies),
    }


def _choice(
    number: int, reply: Reply, deltas: list[Delta], service: Service, *, origins: bool
) -> JSON:
    message: JSON = {
        "role": "assistant",
        "content": "".join(delta.text for delta in deltas),
        "refusal": None,
    }
    if thought := "".join(delta.thought for delta in deltas):
        message["reasoning_content"] = thought
    calls = _Calls()
    events = [event for delta in deltas for event in delta.events]
    if found_calls := calls.whole(events):
        message |= {"content": message["content"].strip() or None, "tool_calls": found_calls}
    logprobs = None
    if (settings := reply.asked.settings).logprobs:
        entries = [token_logprobs(token, settings, service) for token in reply.tokens]
        logprobs = {"content": entries, "refusal": None}
    found = {} if not origins else {"origins": [token.origin for token in reply.tokens]}
    return {
        **found,
        "index": number,
        "message": message,
        "finish_reason": finish_reason(reply),
        "logprobs": logprobs,
    }


class _Calls:
    """The tool calls of one answer: their ids, and their parts in a stream."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def parts(self, events: Iterable[Event]) -> list[JSON]:
        """The parts of `tool_calls` that these events make, one for each call.

        Clients put the parts of a chunk in the places of their indices, so two parts of one index
        would lose the first.
        """
        found: dict[int, JSON] = {}
        for event in events:
            match event:
                case CallBegun(index, name):
                    self.ids.append(f"call_{token_hex(12)}")
                    function = {"name": name, "arguments": ""}
                    found[index] = {
                        "index": index, "id": self.ids[-1], "type": "function", "function": function
                    }  # fmt: skip
                case Arguments(index, text):
                    part = found.setdefault(index, {"index": index, "function": {"arguments": ""}})
                    part["function"]["arguments"] += text
        return [*found.values()]

    def whole(self, events: Iterable[Event]) -> list[JSON]:
        """The calls of a whole answer."""
        return [
            {name: part[name] for name in ("id", "type", "function")} for part in self.parts(events)
        ]


async def chunks(request: ChatRequest, service: Service) -> AsyncGenerator[JSON]:
    """The answer in chunks. The first is made before anything is sent, so errors have a status."""
    asked = await service.inputs.chat(request.chat)
    head, form = answer_head(service, "chat.completion.chunk", "chatcmpl"), request.form
    replies: dict[int, Reply] = {}
    calls = [_Calls() for _ in range(form.choices)]
    async with aclosing(merged(service, [asked], form)) as deltas:
        async for number, reply, delta in deltas:
            if number not in replies:
                replies[number] = reply
                # There may be calls alone, of which clients show no text.
                content = None if request.chat.tools.offered else ""
                first = {"role": "assistant", "content": content, "refusal": None}
                yield {**head, "choices": [_part(number, first)]}
            if delta is None:
                last = _part(number, {}, finish_reason(reply))
                yield {**head, "choices": [last], **form.at_end(reply)}
                continue
            if delta.progress:
                yield {**head, "choices": [_part(number, {})], **delta.progress.members()}
                continue
            chosen = _delta(number, delta, calls[number])
            if request.origins and delta.token:
                chosen["origin"] = delta.token.origin
            if delta.token and reply.asked.settings.logprobs:
                entry = token_logprobs(delta.token, reply.asked.settings, service)
                chosen["logprobs"] = {"content": [entry], "refusal": None}
            elif not chosen["delta"]:
                continue
            yield {**head, "choices": [chosen], **form.so_far(reply)}
    if form.include_usage:
        every = [replies[number] for number in sorted(replies)]
        yield {**head, "choices": [], "usage": usage(every), **speculation(*every)}


def _delta(number: int, delta: Delta, calls: _Calls) -> JSON:
    """What a delta adds to a choice."""
    part: JSON = {}
    if delta.thought:
        part["reasoning_content"] = delta.thought
    if delta.text:
        part["content"] = delta.text
    if parts := calls.parts(delta.events):
        part["tool_calls"] = parts
    return _part(number, part)


def _part(number: int, delta: JSON, reason: str | None = None) -> JSON:
    return {"index": number, "delta": delta, "finish_reason": reason, "logprobs": None}
