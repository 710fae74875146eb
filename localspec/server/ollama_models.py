"""The paths at which Ollama's clients see which models there are: here, the one that is served."""

import asyncio
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import localspec
from localspec.conversation.reasoning import tags_for
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.files import ModelFiles
from localspec.gguf.fingerprint import fingerprint
from localspec.llama.devices import usual_gpus
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import JsonAnswer, body_of, service_of
from localspec.server.service import Service
from localspec.server.tool_calls import family_of
from localspec.utils.format import format_count

# The version of Ollama whose API is spoken here: clients ask whether it is new enough.
_SPOKEN = "0.33.0"
# How the name of a model ends that has no other tag; clients take names apart there.
OLLAMA_TAG = ":latest"
_ONE_MODEL = "this server has one model and changes none: use localspec pull, ls and rm"
_NO_EMBEDDINGS = "no embeddings here; ask a server with a model for them"
_ELSEWHERE = {
    **dict.fromkeys(("pull", "push", "create", "copy", "delete"), _ONE_MODEL),
    **dict.fromkeys(("embed", "embeddings"), _NO_EMBEDDINGS),
}
# The server keeps its model as long as it runs.
_NEVER = "9999-12-31T23:59:59Z"


def routes() -> list[Route]:
    """The paths, for an app whose state has the service."""
    gets = {"/api/version": _version, "/api/tags": _tags, "/api/ps": _running}
    return [
        *(Route(path, handler, methods=["GET"]) for path, handler in gets.items()),
        Route("/api/show", _show, methods=["POST"]),
        Route("/api/{name}", _elsewhere, methods=["POST", "DELETE"]),
    ]


async def _elsewhere(request: Request) -> Response:
    """Another path of Ollama's."""
    reason = _ELSEWHERE.get(request.path_params["name"])
    raise ApiError(501, reason) if reason else HTTPException(404)


async def _version(_request: Request) -> Response:
    return JsonAnswer({"version": _SPOKEN, "localspec": localspec.__version__})


async def _tags(request: Request) -> Response:
    service = service_of(request)
    model = await asyncio.to_thread(_listed, service)
    return JsonAnswer({"models": [model | {"capabilities": _capabilities(service)}]})


async def _running(request: Request) -> Response:
    service = service_of(request)
    model = await asyncio.to_thread(_listed, service)
    loaded = {
        "expires_at": _NEVER,
        "size_vram": _bytes_on_gpus(service),
        "context_length": service.engine.context,
    }
    return JsonAnswer({"models": [model | loaded]})


async def _show(request: Request) -> Response:
    service, body = service_of(request), await body_of(request)
    asked = body.text("model") or body.text("name") or ""
    service.require_model(asked.removesuffix(OLLAMA_TAG))
    return JsonAnswer(await asyncio.to_thread(_shown, service))


def _listed(service: Service) -> JSON:
    path = service.engine.model.path
    name, facts = service.name + OLLAMA_TAG, _facts(path)
    return {
        "name": name,
        "model": name,
        "modified_at": _modified(facts),
        "size": facts.size,
        "digest": _digest(path),
        "details": _details(facts),
    }


def _bytes_on_gpus(service: Service) -> int:
    """About how much of the model is on GPUs: the share of its layers, and the output as one."""
    model, facts = service.engine.model, _facts(service.engine.model.path)
    if model.placement.is_on_processor or not usual_gpus():
        return 0
    count, layers = model.placement.gpu_layers, (facts.number("block_count") or 0) + 1
    return facts.size if count in (None, -1) else facts.size * min(count, layers) // layers


def _shown(service: Service) -> JSON:
    facts, context = _facts(service.engine.model.path), service.engine.context
    architecture = facts.header.architecture or ""
    keys = ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv")
    numbers = {f"{architecture}.{key}": facts.number(key) for key in keys}
    return {
        "modelfile": "",
        # What clients fit their prompts into is what the server has room for.
        "parameters": f"num_ctx {context}",
        "template": service.engine.model.chat_template or "",
        "details": _details(facts),
        "model_info": {
            "general.architecture": architecture,
            "general.basename": facts.name or service.name,
            "general.parameter_count": facts.parameters,
            f"{architecture}.context_length": context,
            **{key: number for key, number in numbers.items() if number is not None},
        },
        "capabilities": _capabilities(service),
        "modified_at": _modified(facts),
    }


def _details(facts: Facts) -> JSON:
    architecture, types = facts.header.architecture or "", [*facts.weights_by_type]
    quant = ModelFiles((facts.files[0].name,)).quant
    return {
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": format_count(facts.parameters),
        "quantization_level": quant or (types or [""])[0],
    }


def _capabilities(service: Service) -> list[str]:
    model, found = service.engine.model, ["completion"]
    if template := model.chat_template:
        found.append("tools")
        if family_of(template).always_read or any(tag in template for tag in tags_for(template)):
            found.append("thinking")
    if model.fim_tokens:
        found.append("insert")
    return found


def _modified(facts: Facts) -> str:
    return datetime.fromtimestamp(facts.files[0].stat().st_mtime, UTC).isoformat()


@lru_cache(maxsize=1)
def _facts(path: Path) -> Facts:
    return facts_of(path)


@lru_cache(maxsize=1)
def _digest(path: Path) -> str:
    return fingerprint(path)
