"""The paths at which Ollama's clients see which models there are."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import localspec
from localspec.conversation.reasoning import tags_for
from localspec.errors import LocalspecError
from localspec.gguf.facts import facts_of
from localspec.gguf.files import ModelFiles
from localspec.gguf.fingerprint import fingerprint
from localspec.llama.devices import usual_gpus
from localspec.llama.placement import Placement
from localspec.server.catalog import TAG, AnyModel, Catalog
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import JsonAnswer, body_of, catalog_of, switch_of
from localspec.server.modalities import modalities_of
from localspec.server.service import Service
from localspec.server.tool_calls import family_of
from localspec.utils.format import format_count

log = logging.getLogger("localspec.server")

# The version of Ollama whose API is spoken here: clients ask whether it is new enough.
_SPOKEN = "0.33.0"
_NO_CHANGES = "this server fetches and changes no models: use localspec pull, ls and rm"
_ELSEWHERE = ("pull", "push", "create", "copy", "delete")
_NUMBERS = ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv")
# When the model is unloaded of a server that keeps it.
_NEVER = "9999-12-31T23:59:59Z"


def routes() -> list[Route]:
    """The paths, for an app whose state has the catalog."""
    gets = {"/api/version": _version, "/api/tags": _tags, "/api/ps": _running}
    return [
        *(Route(path, handler, methods=["GET"]) for path, handler in gets.items()),
        Route("/api/show", _show, methods=["POST"]),
        Route("/api/{name}", _elsewhere, methods=["POST", "DELETE"]),
    ]


async def _elsewhere(request: Request) -> Response:
    """Another path of Ollama's."""
    if request.path_params["name"] in _ELSEWHERE:
        raise ApiError(501, _NO_CHANGES)
    raise HTTPException(404)


async def _version(_request: Request) -> Response:
    return JsonAnswer({"version": _SPOKEN, "localspec": localspec.__version__})


async def _tags(request: Request) -> Response:
    catalog = catalog_of(request)

    def listed() -> list[JSON]:
        found = ((each, _entry(each, catalog)) for each in catalog.every)
        # As at Ollama, a model is there once for each of its names.
        return [
            {**entry, "name": name + TAG, "model": name + TAG}
            for each, entry in found
            if entry
            for name in each.names
            if catalog.called(name) in (each, None)
        ]

    return JsonAnswer({"models": await asyncio.to_thread(listed)})


def _entry(model: AnyModel, catalog: Catalog) -> JSON | None:
    """A model in the list; None, with a line in the log, where its file cannot be read."""
    try:
        capabilities = _capabilities(model, catalog)
        return _listed(model) | {"capabilities": capabilities}
    except (LocalspecError, OSError) as error:
        log.warning("left out of the list: %s", error)
        return None


async def _running(request: Request) -> Response:
    switch = switch_of(request)
    found: list[tuple[AnyModel, datetime | None, Placement, int]] = []
    if loaded := switch.catalog.loaded:
        model, service = loaded
        ends, placement = switch.ends_at, service.engine.model.placement
        found = [(model, ends, placement, service.engine.context)]
    found += [
        (each, each.ends_at, each.placement, each.n_ctx)
        for each in switch.catalog.embedders
        if each.placement
    ]

    def listed() -> list[JSON]:
        return [
            {
                **_listed(model),
                "expires_at": ends.isoformat() if ends else _NEVER,
                "size_vram": _bytes_on_gpus(model, placement),
                "context_length": context,
            }
            for model, ends, placement, context in found
        ]

    return JsonAnswer({"models": await asyncio.to_thread(listed)})


async def _show(request: Request) -> Response:
    catalog, body = catalog_of(request), await body_of(request)
    model = catalog.shown(body.text("model") or body.text("name"))
    return JsonAnswer(await asyncio.to_thread(_shown, model, catalog))


def _listed(model: AnyModel) -> JSON:
    name, file = model.name + TAG, _file(model.path)
    return {
        "name": name,
        "model": name,
        "modified_at": file.modified,
        "size": file.size,
        "digest": file.digest,
        "details": file.details,
    }


def _shown(model: AnyModel, catalog: Catalog) -> JSON:
    file, service = _file(model.path), catalog.service_of(model)
    context = _context(model, file, catalog)
    numbers = {**file.numbers, "context_length": context}
    architecture = file.details["family"]
    return {
        "modelfile": "",
        "parameters": f"num_ctx {context}",
        "template": _template(file, service),
        "details": file.details,
        "model_info": {
            "general.architecture": architecture,
            "general.basename": file.name or model.name,
            "general.parameter_count": file.parameters,
            **{f"{architecture}.{key}": each for key, each in numbers.items() if each is not None},
        },
        "capabilities": _capabilities(model, catalog),
        "modified_at": file.modified,
    }


def _context(model: AnyModel, file: "_File", catalog: Catalog) -> int | None:
    """What clients fit their prompts into: what the server has room for."""
    if isinstance(model, EmbeddingModel):
        return model.n_ctx
    limits = (model.context, file.numbers["context_length"])
    made_for = min((each for each in limits if each), default=None)
    return catalog.contexts.get(model, made_for)


def _bytes_on_gpus(model: AnyModel, placement: Placement) -> int:
    """About how much of the model is on GPUs: the share of its layers, and the output as one."""
    file = _file(model.path)
    if placement.is_on_processor or not usual_gpus():
        return 0
    count, layers = placement.gpu_layers, (file.numbers["block_count"] or 0) + 1
    return file.size if count in (None, -1) else file.size * min(count, layers) // layers


def _capabilities(model: AnyModel, catalog: Catalog) -> list[str]:
    """What a model can do. Whether it fills gaps is known once it is loaded."""
    if isinstance(model, EmbeddingModel):
        return ["rerank" if model.ranks else "embedding"]
    service, reads = catalog.service_of(model), modalities_of(model, catalog)
    found = ["completion", *["vision"] * reads.images, *["audio"] * reads.sounds]
    if template := _template(_file(model.path), service):
        found.append("tools")
        if family_of(template).always_read or any(tag in template for tag in tags_for(template)):
            found.append("thinking")
    if service and service.engine.model.fim_tokens:
        found.append("insert")
    return found


def _template(file: "_File", service: Service | None) -> str:
    """The chat template, which may be another than the file's once the model is loaded."""
    return (service.engine.model.chat_template if service else file.template) or ""


@dataclass(frozen=True, slots=True)
class _File:
    """What is told of a GGUF, without its vocabulary, which is large."""

    name: str | None
    size: int
    modified: str
    digest: str
    details: JSON
    parameters: int
    numbers: Mapping[str, int | None]
    template: str | None


@lru_cache(maxsize=64)
def _file(path: Path) -> _File:
    facts = facts_of(path)
    architecture, types = facts.header.architecture or "", [*facts.weights_by_type]
    details = {
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": format_count(facts.parameters),
        "quantization_level": ModelFiles((path.name,)).quant or (types or [""])[0],
    }
    return _File(
        facts.name,
        facts.size,
        datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(),
        fingerprint(path),
        details,
        facts.parameters,
        {
            "context_length": facts.header.context_length,
            **{key: facts.number(key) for key in _NUMBERS},
        },
        facts.chat_template,
    )
