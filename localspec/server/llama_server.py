"""The paths that llama-server has beside the chat, as dashboards and scripts read them."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import localspec
from localspec.conversation.thinking import thinking_switch
from localspec.engine.media_marks import without_marks
from localspec.engine.prompt import special_texts
from localspec.errors import WorkerError
from localspec.sampling.request_members import request_members
from localspec.server.catalog import AnyModel, Catalog
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.errors import ApiError, shutting_down
from localspec.server.exchange import JsonAnswer, body_of, catalog_of, lease, switch_of
from localspec.server.fields import Fields
from localspec.server.metrics import timings
from localspec.server.modalities import modalities_of
from localspec.server.native_completion import MEDIA_MARKER
from localspec.server.openai_chat import template_options
from localspec.server.service import Service
from localspec.server.slot_pool import PooledSlot
from localspec.server.template_messages import messages_of
from localspec.server.thinking import with_switches
from localspec.utils.reasoning_levels import EFFORT

# The most of one request to /tokenize and /detokenize, which take seconds.
_MOST_CHARACTERS, _MOST_TOKENS = 1 << 20, 1 << 16
_TEXT = "text"


def routes() -> list[Route]:
    """The paths, for an app whose state has the models."""
    gets = {
        "/health": _health,
        "/v1/health": _health,
        "/metrics": _metrics,
        "/props": _props,
        "/slots": _slots,
        "/lora-adapters": _lora_adapters,
        "/tokenizer_info": _tokenizer_info,
        "/models": _models,
        "/v1/models": _models,
        "/v1/models/{name:path}": _model,
    }
    posts = {
        "/tokenize": _tokenize,
        "/detokenize": _detokenize,
        "/apply-template": _apply_template,
        "/lora-adapters": _scale_adapters,
    }
    return [Route(path, handler, methods=["GET"]) for path, handler in gets.items()] + [
        Route(path, handler, methods=["POST"]) for path, handler in posts.items()
    ]


async def _health(request: Request) -> Response:
    switch = switch_of(request)
    if switch.closing:
        raise shutting_down()
    if service := switch.catalog.service:
        try:
            service.engine.model.require_workers()
        except WorkerError as error:
            raise ApiError(503, str(error), code="worker_gone") from error
    return JsonAnswer({"status": "ok"})


async def _metrics(request: Request) -> Response:
    switch = switch_of(request)
    catalog, waiting = switch.catalog, switch.waiting
    busy = 0
    if catalog.service:
        busy, waiting = catalog.service.pool.busy, waiting + catalog.service.pool.waiting
    text = catalog.metrics.text(busy, waiting)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def _props(request: Request) -> Response:
    catalog = catalog_of(request)
    service = catalog.service
    reads = await asyncio.to_thread(modalities_of, catalog.usual, catalog)
    found: dict[str, Any] = {
        "total_slots": len(service.pool.slots) if service else 0,
        "model_alias": catalog.usual.name,
        "chat_template": "",
        "default_generation_settings": {"n_ctx": catalog.contexts.get(catalog.usual, 0)},
        "modalities": {"vision": reads.images, "audio": reads.sounds},
        "media_marker": MEDIA_MARKER,
        "build_info": f"localspec-{localspec.__version__}",
        "localspec": {"drafters": [], "no_drafter": "no model is loaded just now", "notes": []},
    }
    if service:
        engine, model = service.engine, service.engine.model
        bos, eos = special_texts(model)
        found |= {
            "chat_template": model.chat_template or "",
            "bos_token": bos,
            "eos_token": eos,
            "default_generation_settings": _usual(service),
            "localspec": {
                "drafters": list(engine.drafter_set.names),
                "no_drafter": engine.drafter_set.reason,
                "notes": list(engine.notes),
                "thinking": await asyncio.to_thread(
                    thinking_switch, model.chat_template, with_switches(service.template_options)
                ),
                "system": service.system,
                "reasoning_effort": service.template_options.get(EFFORT),
            },
        }
    return JsonAnswer(found)


def _usual(service: Service) -> dict[str, Any]:
    """The settings of a text whose request says nothing, in llama-server's names."""
    context = service.engine.context
    settings = service.settings_of(Fields({}), max_tokens=context)
    members = request_members(service.engine.slots.own.params(settings))
    # Its words for a random seed, and for an answer as long as there is room.
    members |= {"seed": service.usual.get("seed", -1), "n_predict": -1, "max_tokens": -1}
    return {"n_ctx": context, "params": members}


async def _slots(request: Request) -> Response:
    service = catalog_of(request).service
    return JsonAnswer([_slot(service, each) for each in service.pool.slots] if service else [])


async def _lora_adapters(request: Request) -> Response:
    return JsonAnswer(
        [
            {
                "id": number,
                "path": each.lora.path.name,
                "scale": each.lora.scale,
                "task_name": each.task,
                "prompt_prefix": each.prompt_prefix,
            }
            for number, each in enumerate(catalog_of(request).adapters)
        ]
    )


async def _scale_adapters(_request: Request) -> Response:
    raise ApiError(
        400,
        "the adapters and their scales are those of --lora, the same for all texts: what is kept "
        "of texts counts with them alone; start the server with --lora FILE:SCALE",
    )


def _slot(service: Service, pooled: PooledSlot) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": pooled.number,
        "n_ctx": service.engine.context,
        "is_processing": pooled.busy,
        "speculative": bool(service.engine.drafter_set.names),
        "n_cached": len(pooled.slot.target.tokens),
    }
    if reply := service.replies.get(pooled.number):
        entry |= {
            "n_prompt_tokens": len(reply.asked.prompt),
            "n_decoded": reply.stats.generated_tokens,
            "timings": timings(reply.stats),
        }
    return entry


async def _models(request: Request) -> Response:
    catalog = catalog_of(request)
    found = await asyncio.to_thread(lambda: [_described(each, catalog) for each in catalog.every])
    ends = {"has_more": False, "first_id": found[0]["id"], "last_id": found[-1]["id"]}
    # llama-server's older list, where its clients look for what a model can do.
    models = [_capable(each) for each in found]
    return JsonAnswer({"object": "list", "data": found, "models": models, **ends})


def _capable(described: dict[str, Any]) -> dict[str, Any]:
    name, kinds = described["id"], described["architecture"]
    capabilities = ["completion", *["multimodal"] * (len(kinds["input_modalities"]) > 1)]
    if _TEXT not in kinds["output_modalities"]:
        capabilities = kinds["output_modalities"]
    return {"name": name, "model": name, "type": "model", "capabilities": capabilities}


async def _model(request: Request) -> Response:
    catalog = catalog_of(request)
    model = catalog.shown(request.path_params["name"])
    return JsonAnswer(await asyncio.to_thread(_described, model, catalog))


def _described(model: AnyModel, catalog: Catalog) -> dict[str, Any]:
    """What is known of a model; of one that is not loaded, not much."""
    reads, gives = [_TEXT], [_TEXT]
    if isinstance(model, EmbeddingModel):
        gives = ["rerank" if model.ranks else "embeddings"]
    else:
        reads = modalities_of(model, catalog).names
    found: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": catalog.created,
        "owned_by": "localspec",
        "aliases": list(model.names[1:]),
        "architecture": {"input_modalities": reads, "output_modalities": gives},
        # Anthropic's list has these.
        "type": "model",
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(catalog.created, UTC).isoformat(),
        "lifecycle": "active",
    }
    if service := catalog.service_of(model):
        engine = service.engine
        found |= {
            "max_input_tokens": engine.context,
            "max_tokens": engine.context,
            "meta": {
                "n_vocab": engine.model.n_vocab,
                "n_ctx": engine.context,
                "n_ctx_train": engine.model.n_ctx_train,
                "size": engine.model.size,
            },
        }
    return found


async def _tokenizer_info(request: Request) -> Response:
    """What clients of vLLM ask, such as lm-eval, which then tokenize here."""
    async with lease(request, Fields({})) as service:
        model = service.engine.model
        bos, eos = special_texts(model)
        return JsonAnswer(
            {
                "bos_token": bos or None,
                "eos_token": eos or None,
                "pad_token": None,
                "chat_template": model.chat_template,
                "model_max_length": service.engine.context,
            }
        )


async def _tokenize(request: Request) -> Response:
    body = await body_of(request)
    # vLLM's clients send a prompt.
    name = "content" if "content" in body or "prompt" not in body else "prompt"
    text = body.text(name)
    if text is None:
        raise ApiError(400, f"{name} is missing; send the text", param=name)
    if len(text) > _MOST_CHARACTERS:
        raise ApiError(
            400,
            f"{name} has {len(text)} characters; send {_MOST_CHARACTERS} at most at once",
            param=name,
        )
    special, pieces = bool(body.flag("add_special")), body.flag("with_pieces")
    if name == "prompt":
        special = body.flag("add_special_tokens") is not False
    parse = body.flag("parse_special") is not False

    def tokens(service: Service) -> list[Any]:
        found = service.tokens(text, add_special=special, parse_special=parse)
        return [_piece(service, token) for token in found] if pieces else found

    async with lease(request, body) as service, service.aside:
        found = await asyncio.to_thread(tokens, service)
        sizes = {"count": len(found), "max_model_len": service.engine.context}
        return JsonAnswer({"tokens": found, **(sizes if name == "prompt" else {})})


def _piece(service: Service, token: int) -> dict[str, Any]:
    piece = service.prompt_piece(token)
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(piece)}


async def _detokenize(request: Request) -> Response:
    body = await body_of(request)
    tokens: Sequence[Any] | None = body.items("tokens")
    async with lease(request, body) as service, service.aside:
        most = max(_MOST_TOKENS, service.engine.context)
        if tokens is None or len(tokens) > most:
            raise body.wrong("tokens", f"a list of token ids, {most} at most")
        try:
            text = await asyncio.to_thread(service.text, tokens)
        except TypeError as error:
            raise body.wrong("tokens", "a list of token ids") from error
    return JsonAnswer({"content": text, "prompt": text})


async def _apply_template(request: Request) -> Response:
    body = await body_of(request)
    async with lease(request, body) as service:
        messages = await asyncio.to_thread(messages_of, body, service.engine.model.projector)
        read = await service.inputs.rendered(
            messages,
            tools=body.items("tools"),
            template_options=template_options(body, messages),
        )
    return JsonAnswer({"prompt": without_marks(read.text)})
