"""POST /v1/responses, OpenAI's newest protocol, which Codex speaks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from localspec.server.chat_input import ChatInput
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import event_line, log_failed_stream
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members
from localspec.server.options import most_tokens
from localspec.server.response_builder import Line, ResponseBuilder
from localspec.server.responses_input import input_messages, input_tools
from localspec.server.responses_items import given_items
from localspec.server.responses_request import ResponsesRequest
from localspec.server.service import Service
from localspec.server.stored_responses import StoredResponses
from localspec.server.thinking import asked_variables
from localspec.server.thinking_budget import thinking_budget
from localspec.server.tool_names import ToolNames
from localspec.server.tool_use import openai_tools

# Members that only OpenAI's own server has.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "conversation": (),
    "prompt": (),
}
_LOGPROBS = "message.output_text.logprobs"


def read(body: Fields, service: Service, stored: StoredResponses) -> ResponsesRequest:
    """Read a request. Raises ApiError."""
    body.refuse(_NOT_HERE)
    top = body.whole("top_logprobs", 0, 20)
    tools, names = input_tools(body)
    messages, marks = input_messages(body, names, stored, service.engine.model.projector)
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
        logprobs=bool(top) or _LOGPROBS in (body.items("include") or ()),
        top_logprobs=top or None,
        not_used=unused_members(body, "responses"),
    )
    chat = ChatInput(
        messages,
        settings,
        asked_variables(body),
        thinking_budget(body, service.engine.model.chat_template),
        openai_tools(_with_choice(body, names), tools),
    )
    return ResponsesRequest(
        chat,
        conversation,
        names,
        body.flag("store") is not False,
        _summarizes(body),
        body,
        marks,
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


def _summarizes(body: Fields) -> bool:
    reasoning = body.member("reasoning")
    return reasoning is not None and reasoning.text("summary") not in (None, "none")


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


def error_line(body: JSON) -> str:
    """The event of an error before the response has begun.

    Some clients ask for its `type`, and others for `error`, as behind other streams.
    """
    error, first = body["error"], {"type": "error", "sequence_number": 0}
    members = {name: error[name] for name in ("code", "message", "param")}
    return event_line("error", first | members | body)


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
        log_failed_stream(error)
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
                    for line in answer.add(delta):
                        yield line
            for line in (*answer.begin(), *answer.end(reply)):
                if request.store:
                    whole = line[1].get("response")
                    if whole is not None:
                        given = await asyncio.to_thread(given_items, request, whole["id"])
                        stored.add([*request.conversation, answer.message], whole, given)
                yield line
        except BaseException:
            # A client may refer to what it has got of an answer that it has stopped, or left.
            if request.store:
                stored.add_items(answer.items)
            raise
