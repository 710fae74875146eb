"""Native answer: texts in llama-server's own form, of /completion and /infill."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from localspec.engine.generation import Token
from localspec.generation_config import GenerationConfig
from localspec.server.asked import Asked
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.openai_parts import merged
from localspec.server.options import most_tokens
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

    def most_tokens(self, body: Fields, context: int) -> int:
        """The most tokens of a text; `context` where the request does not say. Raises ApiError."""
        if self.reads_only:
            return 1
        return most_tokens(body, "n_predict", "max_tokens", context=context)


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
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                number = part["index"]
                pieces.setdefault(number, []).append(part["content"])
                last[number] = part
        return [
            self._wanted({**part, "content": "".join(pieces[number])})
            for number, part in sorted(last.items())
        ]

    async def chunks(self) -> AsyncGenerator[JSON]:
        """The texts in parts, as they come; the last one of each says how it was written."""
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                yield self._wanted(part) if part["stop"] else part

    async def _parts(self) -> AsyncGenerator[JSON]:
        written: dict[int, _Written] = defaultdict(_Written)
        async with aclosing(merged(self._service, self._prompts, self._choices)) as deltas:
            async for number, reply, delta in deltas:
                own = written[number]
                if delta is None:
                    yield self._last(number, reply, own)
                    continue
                if self._form.reads_only:
                    continue
                own.add(delta)
                if delta.text or (delta.token and reply.asked.settings.logprobs):
                    yield self._part(number, reply, own, delta.text)
                if "\n" in delta.text and own.is_late(self._form.most_ms):
                    await deltas.aclose()
                    yield self._last(number, reply, own)
                    return

    def _wanted(self, answer: JSON) -> JSON:
        return dict(_chosen(self._form.fields, answer)) if self._form.fields else answer

    def _part(self, number: int, reply: Reply, written: "_Written", text: str = "") -> JSON:
        new = written.take_new()
        part: JSON = {
            "index": number,
            "content": text,
            "tokens": [token.id for token in new] if self._form.stream else [],
            "stop": False,
            "id_slot": reply.number,
            "tokens_predicted": len(written.tokens),
            "tokens_evaluated": len(reply.asked.prompt),
        }
        if new and reply.asked.settings.logprobs:
            part["completion_probabilities"] = self._probabilities(new)
        return part

    def _last(self, number: int, reply: Reply, written: "_Written") -> JSON:
        service, form = self._service, self._form
        last = {
            **self._part(number, reply, written),
            "stop": True,
            "model": service.name,
            "generation_settings": _settings(reply.asked.settings, service),
            "prompt": _text(reply.asked.prompt, service),
            "has_new_line": "\n" in written.text,
            "truncated": False,
            "stop_type": _STOP_TYPES.get(reply.stop_reason or "", "limit"),
            "stopping_word": reply.stop_string or "",
            "tokens_cached": reply.stats.prompt_tokens - reply.stats.prompt_evaluated,
            **speculation(reply),
        }
        if not form.stream:
            if form.shows_tokens:
                last["tokens"] = [token.id for token in written.tokens]
            if reply.asked.settings.logprobs:
                last["completion_probabilities"] = self._probabilities(written.tokens)
        return last

    def _probabilities(self, tokens: Sequence[Token]) -> list[JSON]:
        return [token_logprobs(token, self._service) for token in tokens]


class _Written:
    """What was written of a text, as far as it was passed on."""

    def __init__(self) -> None:
        self.text = ""
        self.tokens: list[Token] = []
        self._new = 0
        self._began = perf_counter()

    def add(self, delta: Delta) -> None:
        if not self.tokens:
            self._began = perf_counter()
        self.text += delta.text
        if delta.token:
            self.tokens.append(delta.token)

    def take_new(self) -> list[Token]:
        """The tokens since the last call."""
        new, self._new = self.tokens[self._new :], len(self.tokens)
        return new

    def is_late(self, most_ms: float | None) -> bool:
        """Whether more time has passed since the first token."""
        return most_ms is not None and 1e3 * (perf_counter() - self._began) > most_ms


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
