"""Request members: a sampler's settings in the words of a request to llama-server, or to ours."""

from typing import Any

from localspec.sampling.params import SamplingParams

# The samplers of llama-server's `samplers` in their order, and one more that is on if it is named.
CHAIN = (
    *("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"),
    "temperature",
)
ADAPTIVE_P = "adaptive_p"


def request_members(params: SamplingParams) -> dict[str, Any]:
    """The members that say how tokens are drawn; some only where they are on."""
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
        "mirostat": params.mirostat,
    }
    if params.mirostat:
        members["mirostat_tau"] = params.mirostat_tau
        members["mirostat_eta"] = params.mirostat_eta
    if params.adaptive_target >= 0:
        members["adaptive_target"] = params.adaptive_target
        members["adaptive_decay"] = params.adaptive_decay
        # There the target alone switches nothing on.
        members["samplers"] = [*CHAIN, ADAPTIVE_P]
    if params.dynatemp_range:
        members["dynatemp_range"] = params.dynatemp_range
        members["dynatemp_exponent"] = params.dynatemp_exponent
    if params.top_n_sigma:
        members["top_n_sigma"] = params.top_n_sigma
    if params.has_dry:
        members |= {
            "dry_multiplier": params.dry_multiplier,
            "dry_base": params.dry_base,
            "dry_allowed_length": params.dry_allowed_length,
            "dry_penalty_last_n": params.dry_penalty_last_n,
        }
        if params.dry_sequence_breakers:  # llama-server takes no empty list
            members["dry_sequence_breakers"] = [*params.dry_sequence_breakers]
    return members
