"""POST /api/chat and /api/generate, as Ollama's clients speak them."""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex
from time import perf_counter
from typing import Any

from localspec.llama.model import Model
from localspec.server.catalog import TAG
from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE
from localspec.server.content_reader import ContentReader
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members, unused_options
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.options import TextSettings
from localspec.server.reply import Delta, Reply
from localspec.server.service import Service
from localspec.server.template_messages import messages_of
from localspec.server.text_request import TextRequest
from localspec.server.thinking import Effort, asked_variables, beside
from localspec.server.thinking_budget import refuse_budget, thinking_budget
from localspec.server.tool_calls import Arguments, CallBegun, CallEnded, Event, whole_arguments
from localspec.server.tool_use import openai_tools
from localspec.utils.reasoning_levels import EFFORTS

NDJSON = "application/x-ndjson"
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "template": ("",),
    "context": ([],),
    "_debug_render_only": (False,),
    "width": (0,),
    "height": (0,),
    "steps": (0,),
}
# Of `keep_alive`: the model is to be unloaded.
_NOTHING = (0, "0", "0s", "0m", "0h")
# Under which names the most tokens of an answer are asked for.
_LIMITS = ("num_predict", "max_tokens", "max_completion_tokens", "n_predict")
_NANOSECONDS = 1e9


class OllamaForm:
    """What an answer of one path looks like. is_chat: a message, as of /api/chat, or a text."""

    def __init__(self, *, is_chat: bool) -> None:
        self.is_chat = is_chat

    def part(
        self, name: str, thought: str = "", text: str = "", calls: Sequence[JSON] = ()
    ) -> JSON:
        """A part of the answer, or all of it. name: the model's."""
        said: JSON = {"content" if self.is_chat else "response": text}
        if thought:
            said["thinking"] = thought
        if calls:
            said["tool_calls"] = calls
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        head = {"model": name + TAG, "created_at": now, "done": False}
        return head | ({"message": {"role": "assistant", **said}} if self.is_chat else said)

    def is_empty(self, body: Fields) -> bool:
        """Whether a request asks for no text, but only that the model be loaded or unloaded."""
        names = ("messages",) if self.is_chat else ("prompt", "suffix")
        return not any(body.values.get(name) for name in names)

    def unloads(self, body: Fields) -> bool:
        """Whether a request asks that the model be unloaded."""
        return self.is_empty(body) and body.values.get("keep_alive") in _NOTHING

    def read(self, body: Fields, service: Service) -> "OllamaRequest":
        """Read a request. Raises ApiError."""
        body.refuse(_NOT_HERE)
        fields = _settings_fields(body)
        settings = _settings(fields, body, service, "chat" if self.is_chat else "generate")
        asked = OllamaRequest(self, settings, writes=not self.is_empty(body))
        if not asked.writes:
            return asked
        model = service.engine.model
        if self.is_chat:
            return replace(asked, chat=_chat(body, fields, settings, model))
        return _with_text(asked, body, fields, model)


CHAT, GENERATE = OllamaForm(is_chat=True), OllamaForm(is_chat=False)


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """A request, read and checked.

    chat: the messages to answer; None: a text is continued. prompt, suffix: what is before and
    behind that text. writes: whether it asks for a text at all.
    """

    form: OllamaForm
    settings: TextSettings
    chat: ChatInput | None = None
    prompt: str = ""
    suffix: str | None = None
    writes: bool = True

    async def asked(self, service: Service) -> TextRequest:
        """What the model is to write."""
        if self.chat:
            return await service.inputs.chat(self.chat)
        return await service.inputs.continuation(self.prompt, self.settings, suffix=self.suffix)


def _chat(body: Fields, fields: Fields, settings: TextSettings, model: Model) -> ChatInput:
    messages = [*map(_message, body.items("messages") or [])]
    return ChatInput(
        messages_of(Fields({"messages": messages}), model.projector),
        settings,
        {**_thinking(body, fields), CONTINUE: True},
        thinking_budget(fields, model.chat_template),
        openai_tools(body, body.items("tools") or []),
    )


def _with_text(asked: OllamaRequest, body: Fields, fields: Fields, model: Model) -> OllamaRequest:
    """A request with the text of /api/generate to go on with, or to answer."""
    template = model.chat_template
    prompt, suffix, system = (body.text(name) or "" for name in ("prompt", "suffix", "system"))
    raw = body.flag("raw")
    if system and (raw or suffix):
        raise body.wrong("system", "left out beside raw and suffix: the text is taken as it is")
    # A model without a template continues the text, as with Ollama's own default one.
    if suffix or raw or not (template or system):
        if body.items("images"):
            raise body.wrong("images", "left out where the text is taken as it is")
        refuse_budget(fields)
        return replace(asked, prompt=prompt, suffix=suffix or None)
    question = Fields({**body.values, "role": "user"})
    prompt = ContentReader([question], model.projector).with_images(prompt, question)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    budget = thinking_budget(fields, template)
    return replace(asked, chat=ChatInput(messages, asked.settings, _thinking(body, fields), budget))


def _settings_fields(body: Fields) -> Fields:
    """The members that say how a text is written: `options`, and ours beside them."""
    options = body.member("options")
    ours = {name: body.values.get(name) for name in ("localspec", "draft_model")}
    found = Fields({**ours, **(options.values if options else {})})
    found.refuse({"n": (1,), "n_cmpl": (1,)})
    return found


def _settings(fields: Fields, body: Fields, service: Service, path: str) -> TextSettings:
    context = service.engine.context
    options = body.member("options") or Fields({}, "options")
    limits = (fields.whole(name) for name in _LIMITS)
    most = next((each for each in limits if each is not None), -1)
    depth = fields.whole("draft_num_predict", most=64)
    top = body.whole("top_logprobs", 0, 20)
    return service.settings_of(
        fields,
        max_tokens=most if most > 0 else context,
        depth=None if depth is None else max(depth, 0),
        logprobs=bool(body.flag("logprobs")),
        top_logprobs=top if body.flag("logprobs") and top else None,
        formats={"format": _format(body)},
        not_used=[*unused_members(body, f"ollama {path}"), *unused_options(options, context)],
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


def _thinking(body: Fields, fields: Fields) -> Mapping[str, Any]:
    """The template's variables for `think`, and for what other servers' clients have in `options`.

    Without both, the model does as it usually does.
    """
    within = asked_variables(fields)
    match body.values.get("think"):
        case None:
            return within
        case bool(wanted):
            return beside(within, {"enable_thinking": wanted})
        case str(level) if level in EFFORTS:
            asked = {"reasoning_effort": Effort(level), "enable_thinking": level != "none"}
            return beside(within, asked)
    raise body.wrong("think", f"true, false or one of {', '.join(EFFORTS)}")


def _message(given: Any) -> Any:
    """A message in the shape of chat completions."""
    if not isinstance(given, Mapping):
        return given
    message = dict(given)
    if thought := given.get("thinking"):
        message["reasoning_content"] = thought
    if isinstance(role := given.get("role"), str):
        message["role"] = role.lower()
    if "tool_name" in given:
        message["name"] = given["tool_name"]
    return message


class _Calls:
    """The tool calls of one answer, each told as a whole."""

    def __init__(self) -> None:
        self._name = ""
        self._arguments: list[str] = []

    def ended(self, events: Iterable[Event]) -> tuple[list[JSON], str]:
        """The calls that end with these events, and the text of one that is no whole one."""
        found: list[JSON] = []
        rest = ""
        for event in events:
            match event:
                case CallBegun(_, name):
                    self._name, self._arguments = name, []
                case Arguments(_, text):
                    self._arguments.append(text)
                case CallEnded(index, complete=complete):
                    arguments = "".join(self._arguments)
                    if not complete:
                        rest += f'{{"name": {json.dumps(self._name)}, "arguments": {arguments}'
                        continue
                    function = {"index": index, "name": self._name}
                    function["arguments"] = whole_arguments(arguments)
                    found.append({"id": f"call_{token_hex(12)}", "function": function})
        return found, rest


async def complete(request: OllamaRequest, service: Service, began: float) -> JSON:
    """The whole answer. began: when it was asked for."""
    name, loaded = service.name, perf_counter()
    if not request.writes:
        return request.form.part(name) | {"done": True, "done_reason": "load"}
    found: list[Delta] = []
    async with service.reply(await request.asked(service)) as reply, reply.deltas() as deltas:
        async for delta in deltas:
            found.append(delta)
    calls, rest = _Calls().ended(event for delta in found for event in delta.events)
    text = "".join(delta.text for delta in found)
    thought = "".join(delta.thought for delta in found)
    answer = request.form.part(name, thought, (text.strip() if calls else text) + rest, calls)
    return answer | _logprobs(reply, service, *found) | _end(reply, began, loaded)


async def lines(request: OllamaRequest, service: Service, began: float) -> AsyncGenerator[str]:
    """The answer as lines of JSON. began: when it was asked for."""
    calls, loaded, form = _Calls(), perf_counter(), request.form
    async with service.reply(await request.asked(service)) as reply:
        async with reply.deltas() as deltas:
            async for delta in deltas:
                ended, rest = calls.ended(delta.events)
                logprobs, text = _logprobs(reply, service, delta), delta.text + rest
                if delta.thought or text or ended or logprobs:
                    part = form.part(service.name, delta.thought, text, ended)
                    yield json_line(part | logprobs)
        yield json_line(form.part(service.name) | _end(reply, began, loaded))


def json_line(body: JSON) -> str:
    """A line of a stream."""
    return json.dumps(body) + "\n"


def _logprobs(reply: Reply, service: Service, *deltas: Delta) -> JSON:
    """The log-probabilities of the deltas' tokens, if they are wanted; else nothing."""
    settings = reply.asked.settings
    tokens = [delta.token for delta in deltas if delta.token] if settings.logprobs else []
    found = [token_logprobs(token, settings, service) for token in tokens]
    return {"logprobs": found} if found else {}


def _end(reply: Reply, began: float, loaded: float) -> JSON:
    """What the end of an answer says; times are nanoseconds. loaded: when the model was there."""
    stats = reply.stats
    wrote = stats.seconds.generate + stats.seconds.waited
    return {
        "done": True,
        "done_reason": "stop" if reply.stop_reason in ("eos", "stop") else "length",
        "total_duration": _nanoseconds(perf_counter() - began),
        "load_duration": _nanoseconds(loaded - began),
        "prompt_eval_count": stats.prompt_tokens,
        "prompt_eval_duration": _nanoseconds(stats.seconds.prompt),
        "eval_count": stats.text_tokens,
        "eval_duration": _nanoseconds(wrote),
        **speculation(reply),
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)
