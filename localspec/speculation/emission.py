"""Emission: one token of text, as the decoder gives it."""

from collections.abc import Callable
from dataclasses import dataclass

from localspec.sampling.block_maxima import Row
from localspec.sampling.filters import largest, logprobs


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

    @classmethod
    def scored(cls, token: int, origin: str, logits: Row, count: int) -> "Emission":
        """A token with its log-probability, and with the `count` likeliest tokens of its row."""
        top = largest(logits, count).tolist() if count else []
        own, *others = logprobs(logits, [token, *top])
        return cls(token, origin, own, tuple(zip(top, others, strict=True)))


def until_end(emissions: list[Emission], ends: Callable[[int], bool]) -> list[Emission]:
    """The tokens up to the first one that ends the text. ends: whether a token does."""
    for count, emission in enumerate(emissions, start=1):
        if ends(emission.id):
            return emissions[:count]
    return emissions
