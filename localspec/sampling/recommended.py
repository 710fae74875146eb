"""Recommended: what a GGUF recommends for sampling and localspec does not have, one line each."""

from collections.abc import Iterator, Mapping
from typing import Any

from localspec.sampling.params import SamplingParams

# The samplers that are on by default or that a GGUF may switch on, in their order here.
_CHAIN = ["penalties", "top_k", "top_p", "min_p", "xtc", "temperature"]
_BY_DEFAULT = {"top_k", "top_p", "min_p", "temperature"}


def left_out(metadata: Mapping[str, Any], listed: Mapping[str, Any] = {}) -> Iterator[str]:
    """Yield what of a GGUF's recommendation is not used.

    metadata, listed: as in `SamplingParams.for_model`.
    """
    order = metadata.get("general.sampling.sequence")
    if (
        isinstance(order, str)
        and order.strip(" ;")
        and not _is_ours(order, SamplingParams.for_model(metadata, listed))
    ):
        yield (
            f"the model's file recommends the samplers {order:.100}, which is not used: "
            f"here they are {', '.join(_CHAIN)}; top_k 0, top_p 1 and min_p 0 are off"
        )


def _is_ours(order: str, params: SamplingParams) -> bool:
    """Whether the order is the one here, and names all samplers that are on here."""
    if params.mirostat:  # beside which no order has an effect
        return True
    on = {*_BY_DEFAULT, *(["xtc"] if params.has_xtc else [])}
    on |= {"penalties"} if params.repeat_penalty != 1 else set()
    names = [name.strip().lower().replace("-", "_") for name in order.split(";")]
    known = ["temperature" if name == "temp" else name for name in names]
    places = [_CHAIN.index(name) for name in known if name in _CHAIN]
    return places == sorted(set(places)) and {*known} >= on
