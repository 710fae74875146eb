"""App: the paths of the server.

Requests are read in threads: a large schema takes a second or two to compile.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from localspec.errors import LocalspecError
from localspec.server import (
    anthropic_input,
    anthropic_messages,
    embeddings,
    infill,
    llama_server,
    native_completion,
    ollama_chat,
    ollama_models,
    openai_chat,
    openai_completions,
    openai_responses,
    reranking,
)
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import (
    JsonAnswer,
    body_of,
    comment,
    data_lines,
    event_stream,
    lease,
    switch_of,
    unless_gone,
)
from localspec.server.fields import Fields
from localspec.server.guard import error_body
from localspec.server.log import log_refusal
from localspec.server.model_switch import ModelSwitch
from localspec.server.native_answer import NativeAnswer
from localspec.server.ollama_chat import CHAT, GENERATE, NDJSON, OllamaForm, json_line
from localspec.server.openai_chat import ChatRequest
from localspec.server.openai_parts import token_count
from localspec.server.page import page, page_paths
from localspec.server.response_builder import ResponseBuilder
from localspec.server.responses_items import item_page
from localspec.server.responses_request import ResponsesRequest
from localspec.server.service import Service
from localspec.server.stored_responses import StoredResponses
from localspec.utils.similar_names import did_you_mean

log = logging.getLogger("localspec.server")


# What other servers have, by a part of its path.
_ELSEWHERE = {
    "audio": "a model for speech",
    "images": "a model for pictures",
    "moderations": "a model for moderation",
    "compact": "compaction, or ask the model for a summary of the conversation and go on from that",
    "conversations": "stored conversations, or send previous_response_id to /v1/responses",
}
# A request of a protocol, read and checked.
_Asked = TypeVar("_Asked")


def make_app(switch: ModelSwitch) -> Starlette:
    """The application of these models, without the guard."""
    app = Starlette(
        routes=[
            *[Route(path, _page, methods=["GET"]) for path in page_paths()],
            Route("/v1/chat/completions", _chat, methods=["POST"]),
            Route("/chat/completions", _chat, methods=["POST"]),
            Route("/v1/completions", _completions, methods=["POST"]),
            Route("/completion", _native, methods=["POST"]),
            Route("/completions", _native, methods=["POST"]),
            Route("/infill", _infill, methods=["POST"]),
            Route("/v1/chat/completions/input_tokens", _chat_tokens, methods=["POST"]),
            Route("/chat/completions/input_tokens", _chat_tokens, methods=["POST"]),
            Route("/v1/responses", _responses, methods=["POST"]),
            Route("/responses", _responses, methods=["POST"]),
            Route("/v1/responses/input_tokens", _response_tokens, methods=["POST"]),
            Route("/responses/input_tokens", _response_tokens, methods=["POST"]),
            Route("/v1/responses/{name}", _response, methods=["GET", "DELETE"]),
            Route("/v1/responses/{name}/input_items", _input_items, methods=["GET"]),
            Route("/v1/messages", _messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
            Route("/api/chat", _ollama_chat, methods=["POST"]),
            Route("/api/generate", _ollama_generate, methods=["POST"]),
            *embeddings.routes(),
            *reranking.routes(),
            *ollama_models.routes(),
            *llama_server.routes(),
        ],
        exception_handlers={
            ApiError: _refused,
            LocalspecError: _failed,
            ClientDisconnect: _gone,
            HTTPException: _not_found,
            Exception: _failed,
        },
    )
    app.state.switch, app.state.stored = switch, StoredResponses()
    return app


async def _page(request: Request) -> Response:
    return page(request.scope["path"])


# What reads a body.
_Read = Callable[[Fields, Service], _Asked]


async def _stream(
    request: Request,
    body: Fields,
    read: _Read[_Asked],
    lines: Callable[[_Asked, Service], AsyncGenerator[str]],
    **form: Any,
) -> Response:
    """A stream of the model that a body names; the stream begins while that is waited for.

    form: as of `event_stream`.
    """

    async def leased() -> AsyncGenerator[str]:
        async with lease(request, body) as service:
            asked = await asyncio.to_thread(read, body, service)
            async with aclosing(lines(asked, service)) as made:
                async for line in made:
                    yield line

    return await event_stream(request, leased(), **form)


async def _whole(
    request: Request,
    body: Fields,
    read: _Read[_Asked],
    work: Callable[[_Asked, Service], Awaitable[JSON | list[JSON]]],
) -> Response:
    """A whole answer of the model that a body names."""

    async def leased() -> JSON | list[JSON]:
        async with lease(request, body) as service:
            return await work(await asyncio.to_thread(read, body, service), service)

    # The log-probabilities of long prompts are megabytes.
    return await asyncio.to_thread(JsonAnswer, await unless_gone(request, leased()))


def _answers(
    read: _Read[_Asked],
    chunks: Callable[[_Asked, Service], AsyncGenerator[JSON]],
    complete: Callable[[_Asked, Service], Awaitable[JSON | list[JSON]]],
    *,
    done: bool = True,
) -> Callable[[Request], Awaitable[Response]]:
    """A path whose stream is its chunks as lines of data. done: whether a last line says so."""

    def lines(asked: _Asked, service: Service) -> AsyncGenerator[str]:
        return data_lines(chunks(asked, service), done=done)

    async def answer(request: Request) -> Response:
        body = await body_of(request)
        if body.flag("stream"):
            return await _stream(request, body, read, lines)
        return await _whole(request, body, read, complete)

    return answer


def _native_answers(
    read: _Read[_Asked],
    answer: Callable[[_Asked, Service], Awaitable[NativeAnswer]],
) -> Callable[[Request], Awaitable[Response]]:
    """A path whose answer has llama-server's own form."""

    async def complete(asked: _Asked, service: Service) -> JSON | list[JSON]:
        return await (await answer(asked, service)).complete()

    async def chunks(asked: _Asked, service: Service) -> AsyncGenerator[JSON]:
        async with aclosing((await answer(asked, service)).chunks()) as parts:
            async for part in parts:
                yield part

    return _answers(read, chunks, complete, done=False)


_chat = _answers(openai_chat.read, openai_chat.chunks, openai_chat.complete)
_completions = _answers(
    openai_completions.read, openai_completions.chunks, openai_completions.complete
)
_native = _native_answers(native_completion.read, native_completion.answer)
_infill = _native_answers(infill.read, infill.answer)


async def _chat_count(asked: ChatRequest | ResponsesRequest, service: Service) -> JSON:
    return await token_count(asked.chat, service)


async def _chat_tokens(request: Request) -> Response:
    return await _whole(request, await body_of(request), openai_chat.read, _chat_count)


async def _responses(request: Request) -> Response:
    body, stored = await body_of(request), _stored_of(request)
    heartbeat = comment

    def lines(asked: ResponsesRequest, service: Service) -> AsyncGenerator[str]:
        nonlocal heartbeat
        answer = ResponseBuilder(asked, service)
        heartbeat = answer.heartbeat
        return openai_responses.events(asked, service, stored, answer)

    read = partial(openai_responses.read, stored=stored)
    if body.flag("stream"):
        return await _stream(
            request,
            body,
            read,
            lines,
            heartbeat=lambda: heartbeat(),
            error_line=openai_responses.error_line,
        )
    return await _whole(request, body, read, partial(openai_responses.complete, stored=stored))


async def _response_tokens(request: Request) -> Response:
    read = partial(openai_responses.read, stored=_stored_of(request))
    return await _whole(request, await body_of(request), read, _chat_count)


async def _response(request: Request) -> Response:
    stored, name = _stored_of(request), request.path_params["name"]
    if request.method == "DELETE":
        stored.forget(name)
        return JsonAnswer({"id": name, "object": "response", "deleted": True})
    return JsonAnswer(stored.response(name))


async def _input_items(request: Request) -> Response:
    items = _stored_of(request).input_items(request.path_params["name"])
    return JsonAnswer(item_page(items, request.query_params))


def _stored_of(request: Request) -> StoredResponses:
    """The answers so far that a request may go on from."""
    stored: StoredResponses = request.app.state.stored
    return stored


async def _messages(request: Request) -> Response:
    body, read = await body_of(request), anthropic_input.read
    if body.flag("stream"):
        ping = anthropic_messages.ping
        return await _stream(request, body, read, anthropic_messages.events, heartbeat=ping)
    return await _whole(request, body, read, anthropic_messages.complete)


async def _count_tokens(request: Request) -> Response:
    read = partial(anthropic_input.read, counts_only=True)
    return await _whole(request, await body_of(request), read, anthropic_messages.count)


def _ollama_answers(form: OllamaForm) -> Callable[[Request], Awaitable[Response]]:
    """A path of Ollama's, whose answer is a stream unless something else is asked for."""

    async def answer(request: Request) -> Response:
        body, began = await body_of(request), perf_counter()
        switch = switch_of(request)
        beside = switch.catalog.called(body.text("model"))
        if isinstance(beside, EmbeddingModel) and form.unloads(body):
            await beside.unload()
            return JsonAnswer(form.part(beside.name) | {"done": True, "done_reason": "unload"})
        name = switch.catalog.present(body.text("model")).name
        if form.unloads(body):
            await unless_gone(request, switch.unload(name))
            return JsonAnswer(form.part(name) | {"done": True, "done_reason": "unload"})
        if form.is_empty(body) or body.flag("stream") is False:
            complete = partial(ollama_chat.complete, began=began)
            return await _whole(request, body, form.read, complete)
        return await _stream(
            request,
            body,
            form.read,
            partial(ollama_chat.lines, began=began),
            heartbeat=lambda: json_line(form.part(name)),
            error_line=json_line,
            media_type=NDJSON,
        )

    return answer


_ollama_chat, _ollama_generate = _ollama_answers(CHAT), _ollama_answers(GENERATE)


async def _refused(request: Request, error: Any) -> Response:
    log_refusal(error, request.method, request.url.path)
    body = error_body(error, request.url.path)
    return JsonAnswer(body, status_code=error.status, headers=error.headers)


async def _not_found(request: Request, error: Any) -> Response:
    what = f"{request.method} {request.url.path:.80} is not served here"
    refused = ApiError(error.status_code, f"{what}; {_way_out(request, error)}")
    refused.headers |= error.headers or {}  # such as Allow
    return await _refused(request, refused)


def _way_out(request: Request, error: Any) -> str:
    for part in request.url.path.split("/"):
        if what := _ELSEWHERE.get(part):
            return f"ask a server with {what}"
    if allowed := (error.headers or {}).get("Allow"):
        return f"use {allowed}"
    known = [each.path for each in request.app.routes if "{" not in each.path]
    return did_you_mean(request.url.path, known) or (
        "this server speaks the protocols of OpenAI (/v1), Anthropic (/v1/messages), Ollama (/api) "
        "and llama-server"
    )


async def _failed(request: Request, error: Exception) -> Response:
    told = ApiError.of(error)
    if told.status >= 500:
        log.error("%r failed", request.url.path, exc_info=error)
    return await _refused(request, told)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)
