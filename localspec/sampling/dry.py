"""DRY ("don't repeat yourself"): penalties of tokens that would go on with a repetition.

The meaning is that of llama.cpp's sampler of this name, which follows Koboldcpp's (author: pi6am).
"""

import math
from collections.abc import Sequence

import numpy as np

from localspec.sampling.block_maxima import Ids
from localspec.sampling.params import SamplingParams

# About the logarithm of the largest float32: no penalty is larger.
_LARGEST_LOG = 88.7228391
_LEAST_GROWTH = 1.000001
_UNLIMITED = 2**31
# What a comparison of all places takes beside them, and what the Z algorithm takes per token, both
# as many times as long as the comparison of one place.
_ROUND, _FAR = 300, 30


def dry_penalties(params: SamplingParams, recent: Sequence[int]) -> dict[int, float]:
    """What is subtracted from the logits of these tokens.

    recent: the tokens before, at least the last `params.dry_penalty_last_n` of them. A token gets
    `dry_multiplier * dry_base ** (length - dry_allowed_length)`, where `length` is that of the
    longest end of the text which this token has followed before.
    """
    last, allowed = params.dry_penalty_last_n, params.dry_allowed_length
    backwards = (recent if last < 0 else recent[max(0, len(recent) - last) :])[::-1]
    if len(backwards) <= allowed:
        return {}
    most = _since_breaker(backwards, params)
    if most < allowed:
        return {}
    ids = np.array(backwards, np.int64)
    lengths = _repeated(ids, min(most, allowed + _largest_exponent(params.dry_base)))
    # The end of the text stands `place + 1` tokens earlier too; the token at `place` has followed.
    (places,) = (lengths >= allowed).nonzero()
    longest = dict[int, int]()
    for token, length in zip(ids[places].tolist(), lengths[places].tolist(), strict=True):
        longest[token] = max(length, longest.get(token, 0))
    return {
        token: _penalty(params, length - allowed)
        for token, length in longest.items()
        if () not in params.dry_breaker_tokens.get(token, ())
    }


def _since_breaker(backwards: Sequence[int], params: SamplingParams) -> int:
    """The number of tokens since the last sequence breaker: no repetition goes beyond it."""
    for place, token in enumerate(backwards):
        tails = params.dry_breaker_tokens.get(token)
        if not tails:
            continue
        if found := [len(tail) for tail in tails if _follows(tail, backwards, place)]:
            return place - max(found)
    return len(backwards)


def _follows(tail: Sequence[int], backwards: Sequence[int], place: int) -> bool:
    """Whether these tokens follow the one at a place."""
    return len(tail) <= place and all(
        token == backwards[place - 1 - offset] for offset, token in enumerate(tail)
    )


def _repeated(backwards: Ids, most: int) -> Ids:
    """(n - 1,) how many tokens at each later place are those of the beginning, `most` at most."""
    size, spent = backwards.size, 0
    lengths, alike = np.zeros(size - 1, np.int64), np.arange(1, size)
    for length in range(min(most, size)):
        alike = alike[: alike.searchsorted(size - length)]
        alike = alike[backwards[alike + length] == backwards[length]]
        if not alike.size:
            break
        lengths[alike - 1] = length + 1
        # Most texts end here early; the other way takes as long for all of them.
        spent += _ROUND + alike.size
        if spent > _FAR * size:
            return _repeated_far(backwards).clip(max=most)
    return lengths


def _repeated_far(backwards: Ids) -> Ids:
    """(n - 1,) how many tokens at each later place are those of the beginning: the Z algorithm.

    Its time is linear, also where a text repeats itself all the way (Gusfield, "Algorithms on
    Strings, Trees, and Sequences", 1997).
    """
    tokens = backwards.tolist()
    size, lengths = len(tokens), [0] * len(tokens)
    # The stretch that is known to be equal to the beginning and reaches furthest.
    start = end = 0
    for place in range(1, size):
        length = min(lengths[place - start], end - place) if place < end else 0
        while place + length < size and tokens[length] == tokens[place + length]:
            length += 1
        lengths[place] = length
        if place + length > end:
            start, end = place, place + length
    return np.array(lengths[1:], np.int64)


def _largest_exponent(base: float) -> int:
    """Larger exponents count as this one, so that no penalty is infinite."""
    found = int(_LARGEST_LOG / math.log(base)) if base > _LEAST_GROWTH else 0
    return found or _UNLIMITED


def _penalty(params: SamplingParams, exponent: int) -> float:
    # In llama.cpp both are float32.
    with np.errstate(over="ignore"):
        multiplier, base = np.array([params.dry_multiplier, params.dry_base], np.float32).tolist()
    return float(multiplier * base**exponent)
