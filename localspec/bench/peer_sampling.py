"""Peer sampling: a sampler's settings in the words of llama.cpp's programs."""

from typing import Any

from localspec.sampling.params import SamplingParams

# The options of its command line are the members of its requests, but for these.
_OPTIONS = {"temperature": "--temp", "typical_p": "--typical"}
# As many tokens as there are: -1 in a request, and the size of the context on a command line.
_WINDOWS = ("repeat_last_n", "dry_penalty_last_n")
_BREAKERS = "dry_sequence_breakers"


def request_members(params: SamplingParams) -> dict[str, Any]:
    """The members of a request to llama-server, and to ours."""
    members: dict[str, Any] = {
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "typical_p": params.typical_p,
        "repeat_penalty": params.repeat_penalty,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "repeat_last_n": params.penalty_window,
        # Also where it is off: a GGUF may recommend it.
        "xtc_probability": params.xtc_probability,
        "xtc_threshold": params.xtc_threshold,
    }
    if params.has_dry:
        members |= {
            "dry_multiplier": params.dry_multiplier,
            "dry_base": params.dry_base,
            "dry_allowed_length": params.dry_allowed_length,
            "dry_penalty_last_n": params.dry_penalty_last_n,
        }
        if params.dry_sequence_breakers:  # llama-server takes no empty list
            members[_BREAKERS] = [*params.dry_sequence_breakers]
    return members


def unusual_members(params: SamplingParams) -> dict[str, Any]:
    """The members that are not as by default, besides the temperature."""
    usual = request_members(SamplingParams(temperature=params.temperature))
    members = request_members(params)
    return {name: value for name, value in members.items() if value != usual.get(name)}


def command_words(params: SamplingParams, context: int) -> list[str]:
    """The options of a program's command line. context: the size of its context, in tokens."""
    members = request_members(params)
    breakers = members.pop(_BREAKERS, ["none"]) if params.has_dry else ()
    for name in _WINDOWS:
        if members.get(name) == -1:
            members[name] = context
    words = [
        word
        for name, value in members.items()
        for word in (_OPTIONS.get(name, f"--{name.replace('_', '-')}"), str(value))
    ]
    return [*words, *(word for text in breakers for word in ("--dry-sequence-breaker", text))]
