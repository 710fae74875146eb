"""Peer sampling: a sampler's settings in the words of llama.cpp's programs."""

from typing import Any

from localspec.sampling.params import SamplingParams
from localspec.sampling.request_members import request_members

# The options of its command line are the members of its requests, but for these.
_OPTIONS = {
    "temperature": "--temp",
    "typical_p": "--typical",
    "dynatemp_exponent": "--dynatemp-exp",
    "mirostat_tau": "--mirostat-ent",
    "mirostat_eta": "--mirostat-lr",
}
# As many tokens as there are: -1 in a request, and the size of the context on a command line.
_WINDOWS = ("repeat_last_n", "dry_penalty_last_n")
_BREAKERS = "dry_sequence_breakers"


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
        for word in (_OPTIONS.get(name, f"--{name.replace('_', '-')}"), _word(value))
    ]
    return [*words, *(word for text in breakers for word in ("--dry-sequence-breaker", text))]


def _word(value: Any) -> str:
    return ";".join(value) if isinstance(value, list) else str(value)
