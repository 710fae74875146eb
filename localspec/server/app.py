"""App: the paths of the server.

Requests are read in threads: a large schema takes a second or two to compile.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from localspec.errors import LocalspecError
from localspec.server import (
    anthropic_messages,
    infill,
    llama_server,
    native_completion,
    ollama_chat,
    ollama_models,
    openai_chat,
    openai_completions,
    openai_responses,
)
from localspec.server.catalog import Catalog
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import (
    JsonAnswer,
    body_of,
    data_lines,
    event_stream,
    service_of,
    unless_gone,
)
from localspec.server.fields import Fields
from localspec.server.guard import error_body
from localspec.server.log import log_refusal
from localspec.server.native_answer import NativeAnswer
from localspec.server.openai_parts import token_count
from localspec.server.page import page
from localspec.server.service import Service
from localspec.server.stored_responses import StoredResponses
from localspec.utils.similar_names import did_you_mean

log = logging.getLogger("localspec.server")


# A request of a protocol, read and checked.
_Asked = TypeVar("_Asked")


def make_app(
    service: Service, catalog: Catalog | None = None, stored: StoredResponses | None = None
) -> Starlette:
    """The application of a service, without the guard.

    catalog: the models of the server; None: this one alone. stored: the answers so far.
    """
    app = _app(
        catalog or Catalog.of(service),
        stored or StoredResponses(),
        [
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
            Route("/v1/messages", _messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
            Route("/api/chat", _ollama_chat, methods=["POST"]),
            Route("/api/generate", _ollama_generate, methods=["POST"]),
            *llama_server.routes(),
        ],
    )
    app.state.service = service
    return app


def make_aside(catalog: Catalog, stored: StoredResponses) -> Starlette:
    """The application at the paths that need no model."""
    return _app(catalog, stored, [])


def _app(catalog: Catalog, stored: StoredResponses, routes: Sequence[Route]) -> Starlette:
    app = Starlette(
        routes=[
            Route("/", _page, methods=["GET"]),
            *routes,
            Route("/v1/responses/{name}", _response, methods=["GET"]),
            *llama_server.catalog_routes(),
            *ollama_models.routes(),
        ],
        exception_handlers={
            ApiError: _refused,
            LocalspecError: _failed,
            ClientDisconnect: _gone,
            HTTPException: _not_found,
            Exception: _failed,
        },
    )
    app.state.catalog, app.state.stored = catalog, stored
    return app


async def _page(_request: Request) -> Response:
    return page()


def _answers(
    read: Callable[[Fields, Service], _Asked],
    chunks: Callable[[_Asked, Service], AsyncGenerator[JSON]],
    complete: Callable[[_Asked, Service], Awaitable[JSON | list[JSON]]],
    *,
    done: bool = True,
) -> Callable[[Request], Awaitable[Response]]:
    """A path whose stream is its chunks as lines of data. done: whether a last line says so."""

    async def answer(request: Request) -> Response:
        service, body = service_of(request), await body_of(request)
        asked = await asyncio.to_thread(read, body, service)
        if body.flag("stream"):
            return await event_stream(request, data_lines(chunks(asked, service), done=done))
        return JsonAnswer(await unless_gone(request, complete(asked, service)))

    return answer


def _native_answers(
    read: Callable[[Fields, Service], _Asked],
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


async def _responses(request: Request) -> Response:
    service, body = service_of(request), await body_of(request)
    stored: StoredResponses = request.app.state.stored
    asked = await asyncio.to_thread(openai_responses.read, body, service, stored)
    if body.flag("stream"):
        answer = openai_responses.ResponseBuilder(asked, service)
        lines = openai_responses.events(asked, service, stored, answer)
        return await event_stream(request, lines, heartbeat=answer.heartbeat)
    work = openai_responses.complete(asked, service, stored)
    return JsonAnswer(await unless_gone(request, work))


async def _chat_tokens(request: Request) -> Response:
    service, body = service_of(request), await body_of(request)
    asked = await asyncio.to_thread(openai_chat.read, body, service)
    return JsonAnswer(await token_count(asked.chat, service))


async def _response_tokens(request: Request) -> Response:
    service, body = service_of(request), await body_of(request)
    stored: StoredResponses = request.app.state.stored
    asked = await asyncio.to_thread(openai_responses.read, body, service, stored)
    return JsonAnswer(await token_count(asked.chat, service))


async def _response(request: Request) -> Response:
    stored: StoredResponses = request.app.state.stored
    return JsonAnswer(stored.response(request.path_params["name"]))


async def _messages(request: Request) -> Response:
    service, body = service_of(request), await body_of(request)
    asked = await asyncio.to_thread(anthropic_messages.read, body, service)
    if body.flag("stream"):
        lines = anthropic_messages.events(asked, service)
        return await event_stream(request, lines, heartbeat=anthropic_messages.ping)
    return JsonAnswer(await unless_gone(request, anthropic_messages.complete(asked, service)))


async def _count_tokens(request: Request) -> Response:
    service, body = service_of(request), await body_of(request)
    asked = await asyncio.to_thread(anthropic_messages.read, body, service, counts_only=True)
    return JsonAnswer(await anthropic_messages.count(asked, service))


def _ollama_answers(
    read: Callable[[Fields, Service], ollama_chat.OllamaRequest],
) -> Callable[[Request], Awaitable[Response]]:
    """A path of Ollama's, whose answer is a stream unless something else is asked for."""

    async def answer(request: Request) -> Response:
        service, body = service_of(request), await body_of(request)
        asked = await asyncio.to_thread(read, body, service)
        if asked.loads or body.flag("stream") is False:
            return JsonAnswer(await unless_gone(request, ollama_chat.complete(asked, service)))
        return await event_stream(
            request,
            ollama_chat.lines(asked, service),
            heartbeat=lambda: ollama_chat.json_line(asked.part(service, "", "", ())),
            error_line=ollama_chat.json_line,
            media_type=ollama_chat.NDJSON,
        )

    return answer


_ollama_chat = _ollama_answers(ollama_chat.read_chat)
_ollama_generate = _ollama_answers(ollama_chat.read_generate)


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
    if allowed := (error.headers or {}).get("Allow"):
        return f"use {allowed}"
    known = [each.path for each in request.app.routes if "{" not in each.path]
    return did_you_mean(request.url.path, known) or f"the paths are {', '.join(known)}"


async def _failed(request: Request, error: Exception) -> Response:
    told = ApiError.of(error)
    if told.status >= 500:
        log.error("%r failed", request.url.path, exc_info=error)
    return await _refused(request, told)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)
