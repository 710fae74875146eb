"""POST /api/chat and /api/generate, as Ollama's clients speak them."""

import json
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from time import perf_counter
from typing import Any

from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.ollama_models import OLLAMA_TAG
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.options import EFFORTS, TextSettings
from localspec.server.reply import Delta, Reply
from localspec.server.service import Service
from localspec.server.template_messages import messages_of
from localspec.server.text_request import TextRequest
from localspec.server.thinking import Effort
from localspec.server.thinking_budget import refuse_budget, thinking_budget
from localspec.server.tool_calls import Arguments, CallBegun, CallEnded, Event, whole_arguments
from localspec.server.tool_use import openai_tools

log = logging.getLogger("localspec.server")

NDJSON = "application/x-ndjson"
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "template": ("",),
    "context": ([],),
    "_debug_render_only": (False,),
    "width": (0,),
    "height": (0,),
    "steps": (0,),
}
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """A request, read and checked.

    is_chat: whether the answer is a message, as of /api/chat, or a text. chat: the messages to
    answer; None: a text is continued. prompt, suffix: what is before and behind that text. loads:
    whether it only asks that the model be loaded, as one without messages or a prompt does.
    """

    is_chat: bool
    settings: TextSettings
    chat: ChatInput | None = None
    prompt: str = ""
    suffix: str | None = None
    loads: bool = False

    async def asked(self, service: Service) -> TextRequest:
        """What the model is to write."""
        if self.chat:
            return await service.inputs.chat(self.chat)
        return await service.inputs.continuation(self.prompt, self.settings, suffix=self.suffix)

    def part(self, service: Service, thought: str, text: str, calls: Sequence[JSON]) -> JSON:
        """A part of the answer, or all of it."""
        said: JSON = {"content" if self.is_chat else "response": text}
        if thought:
            said["thinking"] = thought
        if calls:
            said["tool_calls"] = calls
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        head = {"model": service.name + OLLAMA_TAG, "created_at": now, "done": False}
        return head | ({"message": {"role": "assistant", **said}} if self.is_chat else said)


def read_chat(body: Fields, service: Service) -> OllamaRequest:
    """Read a request to /api/chat. Raises ApiError."""
    fields = _settings_fields(body, service)
    settings = _settings(fields, body, service)
    given = body.items("messages")
    if not given:
        return _load(body, OllamaRequest(True, settings, loads=True))
    messages = messages_of(Fields({"messages": [*map(_message, given)]}))
    chat = ChatInput(
        messages,
        settings,
        {**_thinking(body), CONTINUE: True},
        thinking_budget(fields, service.engine.model.chat_template),
        openai_tools(body, body.items("tools") or []),
    )
    return OllamaRequest(True, settings, chat)


def read_generate(body: Fields, service: Service) -> OllamaRequest:
    """Read a request to /api/generate. Raises ApiError."""
    fields = _settings_fields(body, service)
    settings = _settings(fields, body, service)
    if body.items("images"):
        raise body.wrong("images", "left out: this model reads text only")
    prompt, suffix, system = (body.text(name) or "" for name in ("prompt", "suffix", "system"))
    if not prompt and not suffix:
        return _load(body, OllamaRequest(False, settings, loads=True))
    template = service.engine.model.chat_template
    # A model without a template continues the text, as with Ollama's own default one.
    if suffix or body.flag("raw") or not (template or system):
        refuse_budget(fields)
        return OllamaRequest(False, settings, prompt=prompt, suffix=suffix or None)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    chat = ChatInput(messages, settings, _thinking(body), thinking_budget(fields, template))
    return OllamaRequest(False, settings, chat)


def _settings_fields(body: Fields, service: Service) -> Fields:
    """The members that say how a text is written: `options`, and ours beside them."""
    service.require_model((body.text("model") or "").removesuffix(OLLAMA_TAG))
    body.refuse(_NOT_HERE)
    options = body.member("options")
    ours = {name: body.values.get(name) for name in ("localspec", "draft_model")}
    return Fields({**ours, **(options.values if options else {})})


def _settings(fields: Fields, body: Fields, service: Service) -> TextSettings:
    context = service.engine.context
    if (wanted := fields.whole("num_ctx") or 0) > context:
        log.info("num_ctx is %d, and the context has %d tokens; start with --ctx", wanted, context)
    most, depth = fields.whole("num_predict"), fields.whole("draft_num_predict", most=64)
    top = body.whole("top_logprobs", 0, 20)
    return service.settings_of(
        fields,
        max_tokens=most if most and most > 0 else context,
        depth=None if depth is None else max(depth, 0),
        logprobs=bool(body.flag("logprobs")),
        top_logprobs=top if body.flag("logprobs") and top else None,
        formats={"format": _format(body)},
    )


def _format(body: Fields) -> Mapping[str, Any] | None:
    """The form of the answer, as chat completions have it."""
    match body.values.get("format"):
        case None | "":
            return None
        case "json":
            return {"type": "json_object"}
        case {**schema}:
            return {"type": "json_schema", "json_schema": {"schema": schema}}
    raise body.wrong("format", 'left out, "json" or a JSON schema')


def _thinking(body: Fields) -> Mapping[str, Any]:
    """The template's variables for `think`; without it, the model does as it usually does."""
    match body.values.get("think"):
        case None:
            return {}
        case bool(wanted):
            return {"enable_thinking": wanted}
        case str(level) if level in EFFORTS:
            return {"reasoning_effort": Effort(level), "enable_thinking": level != "none"}
    raise body.wrong("think", f"true, false or one of {', '.join(EFFORTS)}")


def _message(given: Any) -> Any:
    """A message in the shape of chat completions."""
    if not isinstance(given, Mapping):
        return given
    message = {**given, "reasoning_content": given.get("thinking")}
    if isinstance(role := given.get("role"), str):
        message["role"] = role.lower()
    if "tool_name" in given:
        message["name"] = given["tool_name"]
    if given.get("images"):
        text = {"type": "text", "text": given.get("content") or ""}
        message["content"] = [text, {"type": "images"}]
    return message


def _load(body: Fields, request: OllamaRequest) -> OllamaRequest:
    """A request that only asks for the model, which is there until the server ends."""
    if body.values.get("keep_alive") in (0, "0", "0s", "0m"):
        raise body.wrong("keep_alive", "left out: the model stays until the server ends")
    return request


class _Calls:
    """The tool calls of one answer, each told as a whole."""

    def __init__(self) -> None:
        self._name = ""
        self._arguments: list[str] = []

    def ended(self, events: Iterable[Event]) -> list[JSON]:
        """The calls that end with these events."""
        found: list[JSON] = []
        for event in events:
            match event:
                case CallBegun(_, name):
                    self._name, self._arguments = name, []
                case Arguments(_, text):
                    self._arguments.append(text)
                case CallEnded(index):
                    arguments = whole_arguments("".join(self._arguments))
                    function = {"index": index, "name": self._name, "arguments": arguments}
                    found.append({"id": f"call_{token_hex(12)}", "function": function})
        return found


async def complete(request: OllamaRequest, service: Service) -> JSON:
    """The whole answer."""
    if request.loads:
        done: JSON = {"done": True, "done_reason": "load"}
        return request.part(service, "", "", ()) | done
    began = perf_counter()
    found: list[Delta] = []
    async with service.reply(await request.asked(service)) as reply, reply.deltas() as deltas:
        async for delta in deltas:
            found.append(delta)
    calls = _Calls().ended(event for delta in found for event in delta.events)
    text = "".join(delta.text for delta in found)
    thought = "".join(delta.thought for delta in found)
    answer = request.part(service, thought, text.strip() if calls else text, calls)
    return answer | _logprobs(reply, service, *found) | _end(reply, began)


async def lines(request: OllamaRequest, service: Service) -> AsyncGenerator[str]:
    """The answer as lines of JSON."""
    began, calls = perf_counter(), _Calls()
    async with service.reply(await request.asked(service)) as reply:
        async with reply.deltas() as deltas:
            async for delta in deltas:
                ended, logprobs = calls.ended(delta.events), _logprobs(reply, service, delta)
                if delta.thought or delta.text or ended or logprobs:
                    part = request.part(service, delta.thought, delta.text, ended)
                    yield json_line(part | logprobs)
        yield json_line(request.part(service, "", "", ()) | _end(reply, began))


def json_line(body: JSON) -> str:
    """A line of a stream."""
    return json.dumps(body) + "\n"


def _logprobs(reply: Reply, service: Service, *deltas: Delta) -> JSON:
    """The log-probabilities of the deltas' tokens, if they are wanted; else nothing."""
    settings = reply.asked.settings
    tokens = [delta.token for delta in deltas if delta.token] if settings.logprobs else []
    found = [token_logprobs(token, settings, service) for token in tokens]
    return {"logprobs": found} if found else {}


def _end(reply: Reply, began: float) -> JSON:
    """What the end of an answer says; times are nanoseconds."""
    stats = reply.stats
    wrote = stats.seconds.generate + stats.seconds.waited
    return {
        "done": True,
        "done_reason": "stop" if reply.stop_reason in ("eos", "stop") else "length",
        "total_duration": _nanoseconds(perf_counter() - began),
        "load_duration": 0,
        "prompt_eval_count": stats.prompt_tokens,
        "prompt_eval_duration": _nanoseconds(stats.seconds.prompt),
        "eval_count": stats.text_tokens,
        "eval_duration": _nanoseconds(wrote),
        **speculation(reply),
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)
