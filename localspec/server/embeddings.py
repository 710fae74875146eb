"""Embeddings: vectors of texts in the protocols of OpenAI, Ollama and llama-server."""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from localspec.engine.prompt import checked_ids, text_tokens
from localspec.llama.embedder import Embedder
from localspec.server.embedding_model import Embedded, EmbeddingModel
from localspec.server.errors import JSON, ApiError, too_long
from localspec.server.exchange import JsonAnswer, body_of, catalog_of, unless_gone
from localspec.server.fields import Fields
from localspec.server.input_processor import LONGEST_TOKEN
from localspec.server.known_members import unused_members

# As at OpenAI.
_MOST_INPUTS = 2048
# llama-server's `embd_normalize`: the p of a norm; 0 stands for the largest number.
_NONE, _LARGEST, _EUCLIDEAN, _MOST_NORM = -1, 0, 2, 16
_INT16 = 32760.0
# Options of other servers that would change a vector, and what they are where they do not.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "embedding_type": ("float",),
    "embedding_types": (["float"],),
    "input_type": (),
    "late_chunking": (False,),
    "normalize": (True,),
    "normalized": (True,),
    "output_dimension": (),
    "output_dtype": ("float",),
    "prompt_name": (),
    "return_multivector": (False,),
    "task": (),
    "truncate_prompt_tokens": (),
    "truncation": (False,),
}


def routes() -> list[Route]:
    """The paths, for an app whose state has the catalog."""
    paths = {
        "/v1/embeddings": _openai,
        "/embeddings": _native,
        "/embedding": _native,
        "/api/embed": _ollama,
        "/api/embeddings": _ollama_older,
    }
    return [Route(path, handler, methods=["POST"]) for path, handler in paths.items()]


async def _openai(request: Request) -> Response:
    body = await body_of(request)
    if "input" not in body and "content" in body:
        return await _in_native_form(request, body)
    as_base64 = body.one_of("encoding_format", ("float", "base64")) == "base64"
    vectors, found, model = await _embedded(request, body, "input")

    def entry(number: int, vector: NDArray[np.float32]) -> JSON:
        data = base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else None
        return {"object": "embedding", "index": number, "embedding": data or vector.tolist()}

    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    head = {"object": "list", "model": model.name, "usage": usage}
    return await _answer(head, "data", (entry(*each) for each in enumerate(vectors)))


async def _native(request: Request) -> Response:
    return await _in_native_form(request, await body_of(request))


async def _in_native_form(request: Request, body: Fields) -> Response:
    vectors, _, _ = await _embedded(request, body, "content" if "content" in body else "input")
    entries = ({"index": at, "embedding": [each.tolist()]} for at, each in enumerate(vectors))
    return await _answer(None, "", entries)


async def _ollama(request: Request) -> Response:
    body = await body_of(request)
    if body.values.get("input") in (None, "", []):  # loads the model
        body = Fields({**body.values, "input": []})
    vectors, found, model = await _embedded(
        request, body, "input", truncate=True, may_be_empty=True
    )
    head = {
        "model": body.text("model") or model.name,
        "total_duration": int(1e9 * found.seconds),
        "load_duration": int(1e9 * found.load_seconds),
        "prompt_eval_count": found.tokens,
    }
    return await _answer(head, "embeddings", (each.tolist() for each in vectors))


async def _ollama_older(request: Request) -> Response:
    body = await body_of(request)
    prompt = body.text("prompt")
    asked = Fields({**body.values, "prompt": [prompt] if prompt else []})
    vectors, _, _ = await _embedded(request, asked, "prompt", truncate=True, may_be_empty=True)
    return JsonAnswer({"embedding": vectors[0].tolist() if len(vectors) else []})


async def _embedded(
    request: Request, body: Fields, name: str, *, truncate: bool = False, may_be_empty: bool = False
) -> tuple[NDArray[np.float32], Embedded, EmbeddingModel]:
    """The vectors of the inputs in a member of a body, of a length of 1 unless it says otherwise.

    truncate: whether the ends of texts that are too long are left out, where the body does not say.
    may_be_empty: whether there may be no inputs.
    """
    model = catalog_of(request).embedder(body.text("model"), ranks=False)
    inputs = _inputs(body, name, may_be_empty=may_be_empty)
    truncates = truncate if (said := body.flag("truncate")) is None else said
    norm = body.whole("embd_normalize", _NONE, _MOST_NORM)
    width = body.whole("dimensions", 1)
    body.refuse(_NOT_HERE)
    catalog_of(request).told.log(unused_members(body, "embeddings"))

    def tokens_of(embedder: Embedder, at: int) -> list[int]:
        if width and width > embedder.width:
            raise body.wrong("dimensions", f"at most {embedder.width}, which {model.name} has")
        each, place = inputs[at], f"{name}[{at}]" if len(inputs) > 1 else name
        if isinstance(each, list):
            tokens = checked_ids(f"a token of {place}", each, embedder.model)
        else:
            if not truncates:
                require_short(len(each), embedder, place)
            shown = each[: embedder.n_ctx * LONGEST_TOKEN]
            tokens = text_tokens(shown, embedder.model.tokenize)
        return embedder.shortened(tokens) if truncates else fitting(tokens, embedder, place)

    found = await unless_gone(request, model.embed(range(len(inputs)), tokens_of))
    vectors = await asyncio.to_thread(
        normalized, found.vectors[:, :width], _EUCLIDEAN if norm is None else norm
    )
    return vectors, found, model


def _inputs(body: Fields, name: str, *, may_be_empty: bool) -> list[str | list[int]]:
    """Texts and lists of tokens. Raises ApiError."""
    value = body.needed(name)
    whole = isinstance(value, str) or (isinstance(value, list) and value and _is_token(value[0]))
    inputs: list[Any] = [value] if whole else value
    if not isinstance(inputs, list) or not all(map(_is_input, inputs)):
        raise body.wrong(name, "a text, token ids, or a list of these")
    if not inputs and not may_be_empty:
        raise body.wrong(name, "a text, or a list with one at least")
    require_few(body, name, len(inputs))
    return inputs


def require_few(body: Fields, name: str, count: int) -> None:
    """Raise ApiError for a member of more texts than may be sent at once."""
    if count > _MOST_INPUTS:
        place = body.place(name)
        raise ApiError(
            400, f"{place} has {count} texts; send {_MOST_INPUTS} at most at once", param=place
        )


def _is_input(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_token, value)))


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def require_short(characters: int, embedder: Embedder, place: str) -> None:
    """Raise ApiError for a text that cannot fit, however it is tokenized. place: in the body."""
    if characters > embedder.n_ctx * LONGEST_TOKEN:
        what = f"{characters} characters, and {embedder.model.path.stem} reads {embedder.n_ctx}"
        raise _too_long(f"{what} tokens", embedder, place)


def fitting(tokens: list[int], embedder: Embedder, place: str) -> list[int]:
    """Tokens that the model reads. place: in the body. Raises ApiError for none, and too many."""
    if not tokens:
        raise ApiError(400, f"{place} is empty; give some words", param=place)
    if len(tokens) > embedder.n_ctx:
        what = f"{len(tokens)} tokens > {embedder.n_ctx} maximum"
        raise _too_long(what, embedder, place, len(tokens))
    return tokens


def _too_long(what: str, embedder: Embedder, place: str, tokens: int | None = None) -> ApiError:
    may_grow = embedder.n_ctx < embedder.model.n_ctx_train
    option = "--embed-ctx" if may_grow else None
    error = too_long(f"{what} ({place})", embedder.n_ctx, tokens, option)
    error.param = place
    return error


def normalized(vectors: NDArray[np.float32], norm: int) -> NDArray[np.float32]:
    """Vectors with a length of 1, as llama-server computes it. norm: as its `embd_normalize`."""
    if norm == _NONE or not len(vectors):
        return vectors
    sizes = np.abs(vectors.astype(np.float64))
    if norm == _LARGEST:
        lengths = sizes.max(1, keepdims=True) / _INT16
    else:
        lengths = (sizes**norm).sum(1, keepdims=True) ** (1 / norm)
    lengths[lengths == 0] = np.inf
    scaled: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return scaled


async def _answer(head: JSON | None, name: str, entries: Iterable[Any]) -> Response:
    """An object with a list as its last member; the list alone without a head.

    Vectors are millions of numbers, and Python's lock is held while one entry is written.
    """
    return await asyncio.to_thread(_written, head, name, entries)


def _written(head: JSON | None, name: str, entries: Iterable[Any]) -> Response:
    listed = f"[{','.join(map(_dump, entries))}]"
    text = listed if head is None else f'{_dump(head)[:-1]},"{name}":{listed}}}'
    return Response(text, media_type="application/json")


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
