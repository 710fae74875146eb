"""Emission: one token of a text, as the decoder gives it out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Emission:
    """One token of text.

    id: the token id.
    origin: the name of the drafter that proposed it, or `corrected`, `bonus` or `plain`.
    logprob: natural logarithm of the target's own probability (softmax of its raw logits, before
        any filter); None unless log-probabilities were requested.
    top: the likeliest tokens with their log-probabilities, as many as were requested.
    """

    id: int
    origin: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
