"""Sampling defaults: what each option of GenerationConfig is where the user sets none."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig

_ELSE = "model's, else "
_MODELS_OWN = _ELSE + "{}"
# What an empty input stands for, by the option of GenerationConfig: first what people change most.
USUAL = {
    "temperature": _MODELS_OWN.format("0.8"),
    "top_k": _MODELS_OWN.format("40"),
    "top_p": _MODELS_OWN.format("0.95"),
    "min_p": _MODELS_OWN.format("0.05"),
    "max_tokens": "as many as fit",
    "seed": "random for each answer",
    "depth": "the fastest number",
    "rule": "coupled",
}
RARE = {
    "typical_p": "1 (off)",
    "top_n_sigma": "0 (off)",
    "dynatemp_range": "0 (off)",
    "dynatemp_exponent": "1",
    "repeat_penalty": "1 (off)",
    "frequency_penalty": "0 (off)",
    "presence_penalty": "0 (off)",
    "penalty_window": "64",
    "dry_multiplier": "0 (off)",
    "dry_base": "1.75",
    "dry_allowed_length": "2",
    "dry_penalty_last_n": "64",
    "xtc_probability": _MODELS_OWN.format("0 (off)"),
    "xtc_threshold": _MODELS_OWN.format("0.1"),
    "mirostat": _MODELS_OWN.format("0 (off)"),
    "mirostat_tau": _MODELS_OWN.format("5"),
    "mirostat_eta": _MODELS_OWN.format("0.1"),
    "adaptive_target": "-1 (off)",
    "adaptive_decay": "0.9",
}
SAMPLING_DEFAULTS = {**USUAL, **RARE}


class Recommended(NamedTuple):
    """A value that is recommended for a model, and who says so."""

    value: float
    source: str

    def __str__(self) -> str:
        return f"{self.value:g}, {self.source}"


def models_own(
    metadata: Mapping[str, Any], listed: Mapping[str, float]
) -> Mapping[str, Recommended]:
    """The options for which another value than the default is recommended for a model.

    metadata, listed: what its file and models.toml say, as in `SamplingParams.for_model`.
    """
    usual = GenerationConfig().params({})
    try:
        params = GenerationConfig().params(metadata, listed)
    except InvalidValueError:
        # The first answer says what is wrong with them.
        return {}
    names = [name for name in SAMPLING_DEFAULTS if hasattr(usual, name)]
    return {
        name: Recommended(getattr(params, name), "the pair's" if name in listed else "the model's")
        for name in names
        if getattr(params, name) != getattr(usual, name)
    }


def defaults_with(own: Mapping[str, Recommended]) -> Mapping[str, str]:
    """What unset options stand for with a loaded model. own: as of `models_own`."""
    return {
        name: str(own[name]) if name in own else text.removeprefix(_ELSE)
        for name, text in SAMPLING_DEFAULTS.items()
    }
