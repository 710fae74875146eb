"""SamplingParams: the sampler's settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from localspec.errors import InvalidValueError
from localspec.sampling.bounds import MOST_TEMPERATURE, MOST_WHOLE
from localspec.utils.option_types import type_fields
from localspec.utils.unicode import is_unicode


class SamplerState(NamedTuple):
    """What the tokens of a text so far have made of a sampler's state.

    sampler: `mirostat` or `adaptive_p`. value: mirostat's most bits of information per token, or
    adaptive-p's mean probability of what was drawn.
    """

    sampler: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampler settings, with llama.cpp's names, meanings and defaults.

    They apply in the order of llama.cpp's default chain: logit bias, penalties, DRY, top-n-sigma,
    top-k, typical-p, top-p, min-p, XTC, temperature, adaptive-p. Beside mirostat only the bias and
    the temperature apply, as there.

    temperature: 0 takes the likeliest token; otherwise logits are divided by it.
    dynatemp_range: logits are divided by a temperature up to so much lower where the model is sure
    of the token, and up to so much higher where it is not; 0 is off. dynatemp_exponent: how it
    grows with the entropy, as a share of the largest one of as many tokens: it is the lowest one
    plus 2 * dynatemp_range * share ** dynatemp_exponent.
    top_n_sigma: keep the tokens whose logits are at most so many standard deviations of all logits
    below the largest (top-n-sigma, Tang et al. 2024); 0 keeps all.
    top_k: keep the k likeliest tokens; 0 keeps all.
    top_p: keep the likeliest tokens that together reach this probability; 1 keeps all.
    min_p: keep tokens at least this fraction as likely as the likeliest; 0 keeps all.
    typical_p: keep the tokens whose information is nearest to the entropy, until they reach this
    probability (locally typical sampling, Meister et al. 2022); 1 keeps all.
    repeat_penalty: divides the logits of recent tokens (multiplies negative ones); 1 is off.
    frequency_penalty: subtracted from the logit once per occurrence of a token; 0 is off.
    presence_penalty: subtracted once from the logit of each recent token; 0 is off.
    penalty_window: the number of recent tokens, prompt included; -1 is the whole text.
    dry_multiplier: scales the penalty of a token that would go on with a repetition (DRY): it is
    dry_multiplier * dry_base ** (length - dry_allowed_length), where `length` is that of what is
    repeated; 0 is off.
    dry_base: how the penalty grows with each token. dry_allowed_length: shorter repetitions are
    free. dry_penalty_last_n: repetitions are looked for among so many tokens, prompt included; -1
    is the whole text, 0 is off.
    dry_sequence_breakers: texts that no repetition goes beyond. dry_breaker_tokens: the sequences
    of tokens that write one, by their first token; those of a model, which an engine finds itself.
    xtc_probability: how often, drawn for each token, the likeliest tokens are left out (XTC); 0 is
    off. xtc_threshold: only the least likely of the tokens that have at least this probability
    stays then; above 0.5 is off, as no two tokens have that.
    mirostat: 1 or 2: keep the tokens with which the answer carries `mirostat_tau` bits of
    information per token (Basu et al. 2021); 0 is off. mirostat_eta: how fast that follows.
    adaptive_target: make tokens likely whose probability is near this, so that the mean of those
    drawn is (adaptive-p); below 0 is off. adaptive_decay: how much longer ago drawn tokens count
    less, each by this factor (0.99 at most).
    logit_bias: token id -> number added to its logit; -inf forbids the token.

    Raises InvalidValueError, naming the field and its value.
    """

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_n_sigma: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    dry_breaker_tokens: Mapping[int, Sequence[tuple[int, ...]]] = field(
        default_factory=dict, repr=False
    )
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check("logit_bias", isinstance(self.logit_bias, Mapping), "a dict of token ids")
        type_fields(self)
        for name in _NUMBERS:
            self._check(name, math.isfinite(getattr(self, name)), "a finite number")
        for name in _WHOLE:
            self._check(name, getattr(self, name) <= MOST_WHOLE, f"at most {MOST_WHOLE}")
        self._check("temperature", self.temperature >= 0, "0 or more")
        self._check("temperature", self.temperature <= MOST_TEMPERATURE, "at most 100")
        self._check("dynatemp_range", self.dynatemp_range >= 0, "0 (off) or more")
        self._check("dynatemp_exponent", self.dynatemp_exponent >= 0, "0 or more")
        self._check("top_n_sigma", self.top_n_sigma >= 0, "0 (off) or more")
        self._check("top_k", self.top_k >= 0, "0 (off) or more")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1 (1 is off)")
        self._check("min_p", 0 <= self.min_p <= 1, "between 0 (off) and 1")
        self._check("typical_p", 0 < self.typical_p <= 1, "above 0 and at most 1 (1 is off)")
        self._check("repeat_penalty", self.repeat_penalty > 0, "above 0 (1 is off)")
        self._check("penalty_window", self.penalty_window >= -1, "-1 (all), 0 (off) or more")
        self._check("dry_multiplier", self.dry_multiplier >= 0, "0 (off) or more")
        self._check("dry_base", self.dry_base >= 1, "1 or more")
        self._check("dry_allowed_length", self.dry_allowed_length >= 0, "0 or more")
        self._check("dry_penalty_last_n", self.dry_penalty_last_n >= -1, "-1 (all), 0 or more")
        breakers = self.dry_sequence_breakers
        texts = (
            not isinstance(breakers, str)
            and isinstance(breakers, Sequence)
            and all(isinstance(text, str) and text and is_unicode(text) for text in breakers)
        )
        wanted = "a list of texts in valid Unicode that are not empty"
        self._check("dry_sequence_breakers", texts, wanted)
        self._check("xtc_probability", 0 <= self.xtc_probability <= 1, "between 0 (off) and 1")
        self._check("xtc_threshold", 0 <= self.xtc_threshold <= 1, "between 0 and 1")
        self._check("mirostat", self.mirostat in (0, 1, 2), "0 (off), 1 or 2")
        self._check("mirostat_tau", 0 <= self.mirostat_tau <= _MOST_BITS, "between 0 and 100")
        self._check("mirostat_eta", 0 <= self.mirostat_eta <= _MOST_BITS, "between 0 and 100")
        self._check("adaptive_target", self.adaptive_target <= 1, "at most 1; below 0 is off")
        self._check("adaptive_decay", 0 <= self.adaptive_decay <= 1, "between 0 and 1")
        for token, bias in self.logit_bias.items():
            if token < 0 or math.isnan(bias) or bias == math.inf:
                raise InvalidValueError(
                    f"logit_bias {token!r}: {bias!r} must map a token id to a number or -inf"
                )

    def _check(self, name: str, ok: bool, wanted: str) -> None:
        if not ok:
            raise InvalidValueError(f"{name} is {getattr(self, name)}; it must be {wanted}")

    @property
    def penalises(self) -> bool:
        """Whether a penalty is on, so that the distribution depends on recent tokens."""
        if self.mirostat or self.penalty_window == 0:
            return False
        return self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0

    @property
    def has_dry(self) -> bool:
        """Whether DRY is on, so that the distribution depends on recent tokens."""
        return not self.mirostat and self.dry_multiplier > 0 and self.dry_penalty_last_n != 0

    @property
    def has_xtc(self) -> bool:
        """Whether XTC is on, so that the distribution depends on seed and position."""
        return not self.mirostat and self.xtc_probability > 0 and self.xtc_threshold <= 0.5

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature <= GREEDY_UP_TO

    @property
    def first_state(self) -> float | None:
        """The state of mirostat or adaptive-p before the answer; None where neither is on.

        Where the likeliest token is taken they change nothing.
        """
        if self.is_greedy:
            return None
        if self.mirostat:
            return 2 * self.mirostat_tau
        return self.adaptive_target if self.adaptive_target >= 0 else None

    @property
    def stateful(self) -> str | None:
        """The sampler with a state that is on, as in SamplerState; None: neither is."""
        if self.first_state is None:
            return None
        return "mirostat" if self.mirostat else "adaptive_p"

    def state_behind(self, earlier: SamplerState | None) -> float | None:
        """The state with which a text goes on. earlier: what its tokens so far have made of it."""
        goes_on = earlier is not None and earlier.sampler == self.stateful
        return earlier.value if earlier and goes_on else self.first_state

    @property
    def window(self) -> int:
        """How many recent tokens penalties and DRY read; -1 is all."""
        read = [self.penalty_window] if self.penalises else []
        read += [self.dry_penalty_last_n] if self.has_dry else []
        return -1 if -1 in read else max(read, default=0)

    @classmethod
    def for_model(
        cls, metadata: Mapping[str, Any], listed: Mapping[str, Any] = {}, **chosen: Any
    ) -> "SamplingParams":
        """The chosen settings; for others (or None) what is recommended, else the default.

        metadata: the GGUF's key-value pairs; only `general.sampling.*` are read. listed: what
        models.toml recommends, which counts before the GGUF.
        """
        given = {name: value for name, value in chosen.items() if value is not None}
        settings = {**listed, **given}
        for key, (name, kind) in _METADATA_KEYS.items():
            full_key = f"general.sampling.{key}"
            if full_key in metadata and name not in settings:
                settings[name] = _recommended(full_key, metadata[full_key], name, kind)
        try:
            return cls(**settings)
        except InvalidValueError as error:
            name = str(error).partition(" ")[0]
            if chosen.get(name) is not None or name == "logit_bias":
                raise
            raise InvalidValueError(f"the GGUF's own {error}; set {name} yourself") from error


def _recommended(key: str, value: Any, name: str, kind: type) -> Any:
    """A recommended value from a GGUF, converted to the type of its setting."""
    try:
        setting = kind(value)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(
            f"the GGUF recommends {key} = {value!r}, which is no {kind.__name__}; "
            f"set {name} yourself"
        ) from error
    # In llama.cpp any negative top-k means "off".
    return max(0, setting) if name == "top_k" else setting


def recommending(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The settings that a GGUF recommends. metadata: as in `SamplingParams.for_model`."""
    keys = _METADATA_KEYS.items()
    return frozenset(name for key, (name, _) in keys if f"general.sampling.{key}" in metadata)


_MOST_BITS = 100
# Those that llama.cpp counts in 32 bits.
_WHOLE = ("top_k", "penalty_window", "dry_allowed_length", "dry_penalty_last_n")
# llama.cpp stores temperatures as float32, where values up to this round to zero.
GREEDY_UP_TO = 2.0**-150
_NUMBERS = tuple(f.name for f in fields(SamplingParams) if f.type in (float, "float"))
# The settings that are numbers.
NUMERIC = tuple(f.name for f in fields(SamplingParams) if f.type in (float, int, "float", "int"))
_METADATA_KEYS: dict[str, tuple[str, type]] = {
    "temp": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "xtc_probability": ("xtc_probability", float),
    "xtc_threshold": ("xtc_threshold", float),
    "mirostat": ("mirostat", int),
    "mirostat_tau": ("mirostat_tau", float),
    "mirostat_eta": ("mirostat_eta", float),
    "penalty_last_n": ("penalty_window", int),
    "penalty_repeat": ("repeat_penalty", float),
}
