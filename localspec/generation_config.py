"""GenerationConfig: the options of one generation, checked before models are loaded."""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypedDict, cast

from localspec.errors import InvalidValueError
from localspec.sampling.params import SamplingParams
from localspec.speculation.draft import MAX_DEPTH
from localspec.speculation.rules import Rule, rule_named
from localspec.utils.format import as_json
from localspec.utils.option_types import require_known, type_fields, typed, whole_number

DEFAULT_MAX_TOKENS = 256

_SAMPLING = frozenset(f.name for f in fields(SamplingParams)) - {"dry_breaker_tokens"}


class GenerationOptions(TypedDict, total=False):
    """The settings as keyword arguments; None or a missing key means the default."""

    max_tokens: int | None
    min_tokens: int | None
    ignore_eos: bool
    seed: int | None
    rule: str | None
    depth: int | None
    drafter: str | None
    prediction: str | None
    stop: Iterable[str] | None
    grammar: str | None
    schema: str | Mapping[str, Any] | None
    response_format: Mapping[str, Any] | None
    logprobs: bool
    top_logprobs: int | None
    prompt_logprobs: bool
    post_sampling_probs: bool
    temperature: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    top_n_sigma: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_window: int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    xtc_probability: float | None
    xtc_threshold: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    adaptive_target: float | None
    adaptive_decay: float | None
    logit_bias: Mapping[int, float] | None


def concrete(options: GenerationOptions) -> GenerationOptions:
    """The options without iterators, for several configurations; what is read once is a tuple."""
    return cast(
        "GenerationOptions",
        {name: tuple(it) if isinstance(it, Iterator) else it for name, it in options.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """The settings of one generation.

    max_tokens: the most tokens to generate; 0 only with `prompt_logprobs`. min_tokens: the
    model cannot end the text before this many tokens. ignore_eos: the model cannot end the text.
    seed: the seed of all randomness; random by default. rule: the verification rule. depth: drafted
    tokens per step; None lets the policy choose, 0 is plain decoding. drafter: the name of the only
    drafter that may draft; None: all of those that are loaded. prediction: most of the text, as far
    as it is known beforehand: the suffix drafter copies from it. stop: strings that end the text.
    grammar: a GBNF grammar (or, if it begins with %llguidance, one in llguidance's Lark), or
    schema: a JSON schema, that the text must satisfy (`of` also takes OpenAI's `response_format`).
    logprobs: whether tokens have log-probabilities. top_logprobs: how many of the likeliest tokens
    are listed with theirs (`of` then turns `logprobs` on). prompt_logprobs: whether the prompt's
    tokens have log-probabilities, and such lists. post_sampling_probs: whether those of the text
    are of the distribution that samplers and grammar leave. sampling: the chosen settings of
    SamplingParams.

    Raises InvalidValueError, which names the setting and its value.
    """

    max_tokens: int = DEFAULT_MAX_TOKENS
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int = field(default_factory=lambda: secrets.randbits(32))
    rule: str = "coupled"
    depth: int | None = None
    drafter: str | None = None
    prediction: str | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    schema: str | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    post_sampling_probs: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **options: Any) -> Self:
        """A configuration from options by name, those of SamplingParams included.

        None means the default.
        """
        given = {name: value for name, value in options.items() if value is not None}
        require_known(given, GenerationOptions.__annotations__)
        given = typed(given, GenerationOptions)
        sampling = {name: given.pop(name) for name in _SAMPLING & given.keys()}
        if "response_format" in given:
            formatted = as_schema(given.pop("response_format"))
            if formatted and "schema" in given:
                raise InvalidValueError("both a schema and a response_format are given; choose one")
            given |= formatted
        if given.get("top_logprobs"):
            given.setdefault("logprobs", True)
        if "schema" in given:
            given["schema"] = _schema_text(given["schema"])
        if "stop" in given:
            given["stop"] = _stop_texts(given["stop"])
        return cls(**given, sampling=sampling)

    def __post_init__(self) -> None:
        type_fields(self)
        require("max_tokens", self.max_tokens, 0 if self.prompt_logprobs else 1)
        require("min_tokens", self.min_tokens, 0, self.max_tokens)
        if self.depth is not None:
            require("depth", self.depth, 0, MAX_DEPTH)
        require("top_logprobs", self.top_logprobs, 0, 100)
        if self.top_logprobs and not (self.logprobs or self.prompt_logprobs):
            raise InvalidValueError(
                f"top_logprobs is {self.top_logprobs}, and logprobs is off; leave one of them "
                "out, or give top_logprobs=0"
            )
        require("seed", self.seed, 0, 2**64 - 1)
        for stop in self.stop:
            if not isinstance(stop, str):
                raise InvalidValueError(f"stop is {stop!r}; it must be a text")
            if not stop:
                raise InvalidValueError("a stop string is empty; it would end every text at once")
        # These three raise for invalid values.
        rule_named(self.rule)
        self.params({})
        self.compiled_grammar()

    @property
    def verification(self) -> Rule:
        """The verification rule that is named `rule`."""
        return rule_named(self.rule)

    @property
    def is_free(self) -> bool:
        """Whether neither a grammar nor a schema describes the text."""
        return self.grammar is None and self.schema is None

    def compiled_grammar(self) -> str | None:
        """The grammar or schema, compiled for `Grammar.begin`; None if there is neither."""
        if self.is_free:
            return None
        if self.grammar is not None and self.schema is not None:
            raise InvalidValueError("both a grammar and a schema are given; choose one")
        # Imported only when needed: llguidance takes as long to import as everything else.
        if self.grammar is not None:
            from localspec.sampling.gbnf import compile_gbnf
            from localspec.sampling.lark import HEADER, compile_lark

            is_lark = self.grammar.lstrip().startswith(HEADER)
            return compile_lark(self.grammar) if is_lark else compile_gbnf(self.grammar)
        from localspec.sampling.json_schema import compile_schema

        return compile_schema(self.schema or "")

    def params(self, metadata: Mapping[str, Any], listed: Mapping[str, Any] = {}) -> SamplingParams:
        """The sampling parameters: the chosen ones, else the recommended, else the defaults.

        metadata, listed: what the GGUF and models.toml say, as in `SamplingParams.for_model`.
        """
        return SamplingParams.for_model(metadata, listed, **self.sampling)


def _stop_texts(stop: object) -> tuple[str, ...]:
    """`stop` as texts, which are checked later."""
    if isinstance(stop, str):
        return (stop,)
    if isinstance(stop, bytes) or not isinstance(stop, Iterable):
        raise InvalidValueError(f"stop is {stop!r:.60}; it must be a text or a list of texts")
    return tuple(stop)


def _schema_text(schema: object) -> str:
    """A JSON schema as a text, which is checked later."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        pydantic = hasattr(schema, "model_json_schema")
        way_out = "; take its model_json_schema()" if pydantic else ""
        given = as_json(schema)
        raise InvalidValueError(
            f"schema is {given:.60}; it must be a JSON schema, as a text or a dict{way_out}"
        )
    try:
        return json.dumps({**schema})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"schema cannot be written as JSON: {error}") from error


def as_schema(response_format: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's `response_format` as the setting `schema`."""
    match response_format:
        case {"type": "text"}:
            return {}
        # llama-cpp-python's server and llama-server have a schema here, too, and TGI has it as
        # `value`: huggingface_hub sends every schema so.
        case {"type": "json_object", "schema": given} | {
            "type": "json_object",
            "value": given,
        } if given:
            if isinstance(given, Mapping | str):
                return {"schema": given}
        case {"type": "json_object"}:
            return {"schema": {"type": "object"}}
        case {"type": "json_schema", "json_schema": {"schema": Mapping() | str() as schema}} | {
            "type": "json_schema",
            "schema": Mapping() | str() as schema,
        }:
            return {"schema": schema}
    raise InvalidValueError(
        f"response_format is {as_json(response_format):.80}; its type is text, json_object, or "
        "json_schema with json_schema.schema"
    )


def require(name: str, value: object, least: int, most: int | None = None) -> int:
    """The value as an int. Raises InvalidValueError unless it is a whole number from least to most.

    most: None: any number from `least` on.
    """
    value = whole_number(name, value)
    if value < least or (most is not None and value > most):
        upper = "" if most is None else f" and at most {most}"
        raise InvalidValueError(f"{name} is {value}; it must be at least {least}{upper}")
    return value
