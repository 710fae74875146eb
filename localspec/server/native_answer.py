"""Native answer: texts in llama-server's own form, of /completion and /infill."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from localspec.generation_config import GenerationConfig
from localspec.server.asked import Asked
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.openai_parts import merged
from localspec.server.reply import Delta, Reply
from localspec.server.service import Service

_STOP_TYPES = {"eos": "eos", "stop": "word"}


@dataclass(frozen=True, slots=True)
class Form:
    """What the answer has.

    reads_only: whether the prompt is only read, for a request that comes soon. most_ms: after so
    many milliseconds a text ends at the next line. fields: the members that are wanted; none: all.
    """

    reads_only: bool
    most_ms: float | None
    fields: list[str]
    stream: bool
    shows_tokens: bool

    @classmethod
    def of(cls, body: Fields) -> "Form":
        """That of a request. Raises ApiError."""
        return cls(
            body.whole("n_predict") == 0,
            body.number("t_max_predict_ms", 0) or None,
            body.texts("response_fields"),
            bool(body.flag("stream")),
            bool(body.flag("return_tokens")),
        )


class NativeAnswer:
    """The answer for some prompts. choices: how many texts each of them gets."""

    def __init__(
        self, form: Form, prompts: Sequence[Asked], service: Service, *, choices: int = 1
    ) -> None:
        self._form = form
        self._prompts = prompts
        self._service = service
        self._choices = choices

    async def complete(self) -> list[JSON]:
        """The whole texts, in the order of the prompts."""
        pieces: dict[int, list[str]] = {}
        last: dict[int, JSON] = {}
        async with aclosing(self.chunks()) as parts:
            async for part in parts:
                number = part["index"]
                pieces.setdefault(number, []).append(part["content"])
                last[number] = part
        found = []
        for number, part in sorted(last.items()):
            whole = {**part, "content": "".join(pieces[number])}
            fields = self._form.fields
            found.append(dict(_chosen(fields, whole)) if fields else whole)
        return found

    async def chunks(self) -> AsyncGenerator[JSON]:
        """The texts in parts, as they come; the last one of each says how it was written."""
        texts: dict[int, str] = {}
        began: dict[int, float] = {}
        async with aclosing(merged(self._service, self._prompts, self._choices)) as deltas:
            async for number, reply, delta in deltas:
                if delta is None:
                    yield self._last(number, reply, texts.get(number, ""))
                    continue
                start = began.setdefault(number, perf_counter())
                shows = delta.text or (delta.token and reply.asked.settings.logprobs)
                if not shows or self._form.reads_only:
                    continue
                texts[number] = texts.get(number, "") + delta.text
                yield self._part(number, reply, delta)
                most = self._form.most_ms
                if most and 1e3 * (perf_counter() - start) > most and "\n" in delta.text:
                    await deltas.aclose()
                    yield self._last(number, reply, texts[number])
                    return

    def _part(self, number: int, reply: Reply, delta: Delta | None = None) -> JSON:
        part: JSON = {
            "index": number,
            "content": delta.text if delta else "",
            "tokens": [],
            "stop": False,
            "id_slot": reply.number,
            "tokens_predicted": reply.stats.generated_tokens,
            "tokens_evaluated": len(reply.asked.prompt),
        }
        if delta and delta.token and reply.asked.settings.logprobs:
            part["completion_probabilities"] = [token_logprobs(delta.token, self._service)]
        return part

    def _last(self, number: int, reply: Reply, text: str) -> JSON:
        service, form = self._service, self._form
        tokens = [] if form.reads_only else reply.tokens
        last = {
            **self._part(number, reply),
            "stop": True,
            "tokens": [token.id for token in tokens] if form.shows_tokens else [],
            "tokens_predicted": len(tokens),
            "model": service.name,
            "generation_settings": _settings(reply.asked.settings, service),
            "prompt": _text(reply.asked.prompt, service),
            "has_new_line": "\n" in text,
            "truncated": False,
            "stop_type": _STOP_TYPES.get(reply.stop_reason or "", "limit"),
            "stopping_word": reply.stop_string or "",
            "tokens_cached": reply.stats.prompt_tokens - reply.stats.prompt_evaluated,
            **speculation(reply),
        }
        if reply.asked.settings.logprobs and not form.stream:
            probabilities = [token_logprobs(token, service) for token in tokens]
            last["completion_probabilities"] = probabilities
        return last


def _settings(settings: GenerationConfig, service: Service) -> JSON:
    """The settings of a text, in llama-server's names."""
    params = asdict(service.engine.slot.params(settings))
    for name in ("logit_bias", "dry_breaker_tokens"):
        params.pop(name)
    return {
        "seed": settings.seed,
        "n_predict": settings.max_tokens,
        "max_tokens": settings.max_tokens,
        "stop": [*settings.stop],
        "ignore_eos": settings.ignore_eos,
        **params,
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
