"""Emission: one token of text, as the decoder gives it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from localspec.sampling.block_maxima import Row
from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import largest, logprobs
from localspec.sampling.params import SamplerState


@dataclass(frozen=True, slots=True)
class Emission:
    """One token of text.

    id: the token id.
    origin: the name of the drafter that proposed it, or `corrected`, `bonus` or `plain`.
    logprob: natural logarithm of the target's own probability (softmax of its raw logits, before
        any filter), or of the one with which the samplers draw it; None unless log-probabilities
        were requested.
    top: the likeliest tokens with their log-probabilities, as many as were requested.
    state: what the text up to the token has made of mirostat's or adaptive-p's state; None where
        neither is on.
    """

    id: int
    origin: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    state: SamplerState | None = None

    @classmethod
    def scored(cls, token: int, origin: str, logits: Row, count: int) -> "Emission":
        """A token with its log-probability, and with the `count` likeliest tokens of its row."""
        top = largest(logits, count).tolist() if count else []
        own, *others = logprobs(logits, [token, *top])
        return cls(token, origin, own, tuple(zip(top, others, strict=True)))

    @classmethod
    def drawn(cls, token: int, origin: str, law: Distribution, count: int) -> "Emission":
        """A token with the log-probability that it is drawn, and the `count` likeliest ones.

        law: what it is drawn from. Tokens that are never drawn are not among the likeliest.
        """
        chances = law.probabilities()
        ids = np.arange(len(law)) if law.ids is None else law.ids
        order = [each for each in np.lexsort((ids, -chances))[:count] if chances[each] > 0]
        top = tuple((int(ids[each]), math.log(chances[each])) for each in order)
        index = law.index(token)
        return cls(token, origin, None if index is None else math.log(chances[index]), top)


def until_end(emissions: list[Emission], ends: Callable[[int], bool]) -> list[Emission]:
    """The tokens up to the first one that ends the text. ends: whether a token does."""
    for count, emission in enumerate(emissions, start=1):
        if ends(emission.id):
            return emissions[:count]
    return emissions
