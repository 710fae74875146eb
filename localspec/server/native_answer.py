"""Native answer: texts in llama-server's own form, of /completion and /infill."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from localspec.engine.generation import Token
from localspec.generation_config import GenerationConfig
from localspec.sampling.request_members import request_members
from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members
from localspec.server.metrics import speculation, timings
from localspec.server.openai_logprobs import token_logprobs
from localspec.server.openai_parts import AnswerForm, merged
from localspec.server.options import TextSettings, most_tokens
from localspec.server.reply import Delta, Reply
from localspec.server.service import Service
from localspec.server.text_request import TextRequest
from localspec.utils.media import words_of

_STOP_TYPES = {"eos": "eos", "stop": "word"}
_MOST_PROBABILITIES = 100


@dataclass(frozen=True, slots=True)
class Form:
    """What the answer has, in llama-server's own form.

    reads_only: whether the prompt is only read, for a request that comes soon. most_ms: after so
    many milliseconds a text ends at the next line. least_indent: a text ends before a line that is
    indented less, its first line aside. fields: the members that are wanted; none: all.
    shared: what other protocols' answers have too.
    """

    reads_only: bool
    most_ms: float | None
    least_indent: int
    fields: list[str]
    shows_tokens: bool
    shared: AnswerForm

    @classmethod
    def of(cls, body: Fields) -> "Form":
        """That of a request. Raises ApiError."""
        most_ms = body.number("t_max_predict_ms", -1)
        return cls(
            body.whole("n_predict") == 0,
            most_ms if most_ms and most_ms > 0 else None,
            body.whole("n_indent", 0, 2**31 - 1) or 0,
            body.texts("response_fields"),
            bool(body.flag("return_tokens")),
            AnswerForm.of(body),
        )

    def settings(self, body: Fields, service: Service, context: int) -> TextSettings:
        """The settings of a request; `context` tokens where it does not say. Raises ApiError."""
        most = 1
        if not self.reads_only:
            names = "n_predict", "max_completion_tokens", "max_tokens"
            most = most_tokens(body, *names, context=context)
        name = "n_probs" if "n_probs" in body else "logprobs"
        top = body.whole(name, 0, _MOST_PROBABILITIES) or 0
        rest = Fields({name: value for name, value in body.values.items() if name != "n_probs"})
        return service.settings_of(
            rest,
            max_tokens=most,
            logprobs=top > 0,
            top_logprobs=top or None,
            not_used=unused_members(body, "native"),
        )

    def require_one(self, body: Fields, prompts: int) -> None:
        """Raise ApiError for what ends a text early where a request asks for several."""
        texts = prompts * self.shared.choices
        for name, is_there in (("t_max_predict_ms", self.most_ms), ("n_indent", self.least_indent)):
            if is_there and texts > 1:
                raise body.wrong(name, "left out where there are several texts")


class NativeAnswer:
    """The answer for some prompts. is_list: whether they are a list of prompts."""

    def __init__(
        self,
        form: Form,
        prompts: Sequence[TextRequest],
        service: Service,
        *,
        is_list: bool,
    ) -> None:
        self._form = form
        self._prompts = prompts
        self._service = service
        self._several = is_list or form.shared.choices > 1

    async def complete(self) -> JSON | list[JSON]:
        """The whole answer: of several texts a list, in the order of the prompts."""
        pieces: dict[int, list[str]] = {}
        last: dict[int, JSON] = {}
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                number = part["index"]
                pieces.setdefault(number, []).append(part["content"])
                last[number] = part
        found = [
            self._wanted({**part, "content": "".join(pieces[number])})
            for number, part in sorted(last.items())
        ]
        return found if self._several else found[0]

    async def chunks(self) -> AsyncGenerator[JSON]:
        """The texts in parts, as they come; the last one of each says how it was written."""
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                yield self._wanted(part) if part["stop"] else part

    async def _parts(self) -> AsyncGenerator[JSON]:
        written: dict[int, _Written] = defaultdict(_Written)
        texts = merged(self._service, self._prompts, self._form.shared)
        async with aclosing(texts) as deltas:
            async for number, reply, delta in deltas:
                own = written[number]
                if delta is None:
                    yield self._last(number, reply, own)
                    continue
                if delta.progress:
                    yield {**self._part(number, reply, own), **delta.progress.members()}
                    continue
                if self._form.reads_only:
                    continue
                text = own.add(delta, self._form.least_indent)
                if text or (delta.token and reply.asked.settings.logprobs):
                    yield self._part(number, reply, own, text)
                if own.is_dedented or ("\n" in text and own.is_late(self._form.most_ms)):
                    await deltas.aclose()
                    # The model may have ended it a few tokens later, before this was read.
                    ending = {"stop_type": "limit", "stopping_word": "", "truncated": False}
                    yield self._last(number, reply, own) | ending
                    return

    def _wanted(self, answer: JSON) -> JSON:
        return dict(_chosen(self._form.fields, answer)) if self._form.fields else answer

    def _part(self, number: int, reply: Reply, written: "_Written", text: str = "") -> JSON:
        new = written.take_new()
        part: JSON = {
            "index": number,
            "content": text,
            "tokens": [token.id for token in new] if self._form.shared.stream else [],
            "stop": False,
            "id_slot": reply.number,
            "tokens_predicted": len(written.tokens),
            "tokens_evaluated": len(reply.asked.prompt),
            **self._form.shared.so_far(reply),
        }
        if new and reply.asked.settings.logprobs:
            part["completion_probabilities"] = self._probabilities(reply, new)
        return part

    def _last(self, number: int, reply: Reply, written: "_Written") -> JSON:
        service, form = self._service, self._form
        last = {
            **self._part(number, reply, written),
            "stop": True,
            "model": service.name,
            "generation_settings": self._settings(reply.asked.settings),
            "prompt": service.text(words_of(reply.asked.prompt)),
            "has_new_line": "\n" in written.text,
            "truncated": reply.stop_reason == "context",
            "stop_type": _STOP_TYPES.get(reply.stop_reason or "", "limit"),
            "stopping_word": reply.stop_string or "",
            "tokens_cached": reply.stats.prompt_cached,
            **speculation(reply),
        }
        if form.reads_only:
            # The engine writes a token behind what it has read, which is not passed on.
            last["timings"] = timings(replace(reply.stats, generated_tokens=0))
        if not form.shared.stream:
            if form.shows_tokens:
                last["tokens"] = [token.id for token in written.tokens]
            if reply.asked.settings.logprobs:
                last["completion_probabilities"] = self._probabilities(reply, written.tokens)
        return last

    def _settings(self, settings: GenerationConfig) -> JSON:
        """The settings of a text, in llama-server's names."""
        most = 0 if self._form.reads_only else settings.max_tokens
        return {
            **request_members(self._service.engine.slots.own.params(settings)),
            "seed": settings.seed,
            "n_predict": most,
            "max_tokens": most,
            "n_indent": self._form.least_indent,
            "stop": [*settings.stop],
            "ignore_eos": settings.ignore_eos,
            "stream": self._form.shared.stream,
            "n_probs": settings.top_logprobs,
            "post_sampling_probs": settings.post_sampling_probs,
            "grammar": settings.grammar or "",
        }

    def _probabilities(self, reply: Reply, tokens: Sequence[Token]) -> list[JSON]:
        settings = reply.asked.settings
        return [token_logprobs(token, settings, self._service) for token in tokens]


class _Written:
    """What was written of a text, as far as it was passed on.

    is_dedented: whether a line has begun that is indented too little, and that is left out.
    """

    def __init__(self) -> None:
        self.text = ""
        self.tokens: list[Token] = []
        self.is_dedented = False
        # None: not within the indentation of a line.
        self._indent: int | None = None
        self._new = 0
        self._began = perf_counter()

    def add(self, delta: Delta, least_indent: int) -> str:
        """Add a part, and return its text up to a line that is indented less."""
        if not self.tokens:
            self._began = perf_counter()
        text = delta.text[: self._length(delta.text, least_indent)] if least_indent else delta.text
        self.text += text
        if delta.token:
            self.tokens.append(delta.token)
        return text

    def _length(self, text: str, least_indent: int) -> int:
        """The length of the text that stays. An empty line is not indented, as in llama-server."""
        for place, char in enumerate(text):
            if self._indent is not None and char in " \t":
                self._indent += 1
                continue
            if self._indent is not None and self._indent < least_indent:
                self.is_dedented = True
                return place
            self._indent = 0 if char == "\n" else None
        return len(text)

    def take_new(self) -> list[Token]:
        """The tokens since the last call."""
        new, self._new = self.tokens[self._new :], len(self.tokens)
        return new

    def is_late(self, most_ms: float | None) -> bool:
        """Whether more time has passed since the first token."""
        return most_ms is not None and 1e3 * (perf_counter() - self._began) > most_ms


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
