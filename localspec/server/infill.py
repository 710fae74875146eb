"""POST /infill, llama-server's way to fill a gap in a file, which editors use."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from localspec.engine.fim_prompt import Snippet
from localspec.generation_config import GenerationConfig
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.openai_completions import USUAL_TOKENS
from localspec.server.options import most_tokens, settings_of
from localspec.server.reply import Reply
from localspec.server.service import Service

_STOP_TYPES = {"eos": "eos", "stop": "word"}


@dataclass(frozen=True, slots=True)
class InfillRequest:
    """A request, read and checked.

    prefix, suffix, written, snippets: as in `infill_prompt`. reads_only: whether the prompt is only
    read, for a request that comes soon. most_ms: after so many milliseconds the text ends at the
    next line. fields: the members of the answer that are wanted; none: all.
    """

    prefix: str
    suffix: str
    written: str
    snippets: list[Snippet]
    settings: GenerationConfig
    reads_only: bool
    most_ms: float | None
    fields: list[str]
    stream: bool
    shows_tokens: bool


def read(body: Fields, service: Service) -> InfillRequest:
    """Read a request. Raises ApiError."""
    service.require_model(body.text("model"))
    for name in ("input_prefix", "input_suffix"):
        body.needed(name)
    reads_only = body.whole("n_predict") == 0
    most = 1 if reads_only else most_tokens(body, "n_predict", "max_tokens", context=USUAL_TOKENS)
    return InfillRequest(
        body.text("input_prefix") or "",
        body.text("input_suffix") or "",
        body.text("prompt") or "",
        [_snippet(each) for each in body.objects("input_extra")],
        settings_of(_without_order(body), service.usual, max_tokens=most),
        reads_only,
        body.number("t_max_predict_ms", 0) or None,
        body.texts("response_fields"),
        bool(body.flag("stream")),
        bool(body.flag("return_tokens")),
    )


def _without_order(body: Fields) -> Fields:
    """The body without `samplers`: editors name `infill` there, which is not there."""
    return Fields({name: value for name, value in body.values.items() if name != "samplers"})


def _snippet(given: Fields) -> Snippet:
    given.needed("text")
    return Snippet(given.text("filename") or "tmp", given.text("text") or "")


async def complete(request: InfillRequest, service: Service) -> JSON:
    """The whole answer."""
    pieces: list[str] = []
    last: JSON = {}
    async with aclosing(chunks(request, service)) as parts:
        async for part in parts:
            pieces.append(part["content"])
            last = part
    whole = {**last, "content": "".join(pieces)}
    return dict(_chosen(request.fields, whole)) if request.fields else whole


async def chunks(request: InfillRequest, service: Service) -> AsyncGenerator[JSON]:
    """The answer in parts; the last one says how it was written."""
    asked = await service.infill(
        request.prefix,
        request.suffix,
        request.settings,
        written=request.written,
        snippets=request.snippets,
    )
    text = ""
    async with service.reply(asked) as reply:
        async with reply.deltas() as deltas:
            began: float | None = None
            async for delta in deltas:
                began = began or perf_counter()
                if delta.text and not request.reads_only:
                    text += delta.text
                    yield _part(reply, delta.text)
                    late = request.most_ms and 1e3 * (perf_counter() - began) > request.most_ms
                    if late and "\n" in delta.text:
                        break
        tokens = [] if request.reads_only else [token.id for token in reply.tokens]
        yield {
            **_part(reply, ""),
            "stop": True,
            "tokens": tokens if request.shows_tokens else [],
            "tokens_predicted": len(tokens),
            "model": service.name,
            "prompt": _text(asked.prompt, service),
            "has_new_line": "\n" in text,
            "truncated": False,
            "stop_type": _STOP_TYPES.get(reply.stop_reason or "", "limit"),
            "stopping_word": reply.stop_string or "",
            "tokens_cached": reply.stats.prompt_tokens - reply.stats.prompt_evaluated,
            **speculation(reply),
        }


def _part(reply: Reply, text: str) -> JSON:
    return {
        "index": 0,
        "content": text,
        "tokens": [],
        "stop": False,
        "id_slot": reply.number,
        "tokens_predicted": reply.stats.generated_tokens,
        "tokens_evaluated": len(reply.asked.prompt),
    }


def _text(tokens: tuple[int, ...], service: Service) -> str:
    """The text of a prompt, with its control tokens."""
    model = service.engine.model
    pieces = (model.piece(token) or model.piece_text(token).encode() for token in tokens)
    return b"".join(pieces).decode("utf-8", "replace")


def _chosen(fields: list[str], answer: JSON) -> Iterator[tuple[str, Any]]:
    """The wanted members of an answer, of which some are named by a path (`timings/prompt_n`)."""
    for path in fields:
        value: Any = answer
        for name in path.split("/"):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            yield path, value
