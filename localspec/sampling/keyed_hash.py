"""Keyed hash: words of 32 bits that are a pure function of (seed, position, token id)."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Ids = NDArray[np.integer]

_MASK64 = (1 << 64) - 1
# Arrays without a dimension: numpy is twice as quick with them as with its scalars.
_SPREAD, _FIRST, _SECOND, _15, _16 = (
    np.array(word, np.uint32) for word in (0x9E3779B1, 0x7FEB352D, 0x846CA68B, 15, 16)
)
# Words per operation, so that its arrays stay in the processor's cache.
_CHUNK = 16384


@lru_cache(1024)
def keys_of(seed: int, position: int) -> Words:
    """(3, 2, 1) keys, by the splitmix64 finaliser: those of a token's coarse and of its fine word.

    seed: 0 to 2**64 - 1.
    """
    state = _splitmix(_splitmix(seed) ^ (position & _MASK64))
    words = []
    for _ in range(3):
        state = _splitmix(state)
        words += [state & 0xFFFFFFFF, state >> 32]
    coarse, fine = words[:3], words[3:]
    # The first shift of the hash, which `mixed` has done for the tokens.
    coarse[0] ^= coarse[0] >> 16
    fine[0] ^= fine[0] >> 16
    keys = np.array([*zip(coarse, fine, strict=True)], np.uint32).reshape(3, 2, 1)
    keys.flags.writeable = False
    return keys


def derive_seed(seed: int, *numbers: int) -> int:
    """A seed derived from another seed and from these numbers."""
    for number in numbers:
        seed = _splitmix(_splitmix(seed) ^ (number & _MASK64))
    return seed


def mixed(ids: Ids) -> Words:
    """(n,) the part of the hash that depends on the token alone."""
    spread = ids.astype(np.uint32)
    spread *= _SPREAD
    spread ^= spread >> _16
    return spread


def hashed(tokens: Words, keys: Words) -> Words:
    """A keyed bijection of 32-bit words: multiply-xorshift rounds with a key between them.

    tokens: (n,) from `mixed`. keys: (3, 1) -> (n,), or (3, 2, 1) -> (2, n).
    """
    words: Words = tokens ^ keys[0]
    scratch = np.empty_like(words)
    _rounds(words, keys, scratch)
    np.right_shift(words, _16, out=scratch)
    words ^= scratch
    return words


def tokens_below(bound: int, n_vocab: int, keys: Words) -> NDArray[np.intp]:
    """The tokens, ascending, whose hash is below `bound`, a multiple of 2**16. keys: (3, 1).

    The last shift changes only the lower half of a word, so it is left out.
    """
    tokens, least = _mixed_vocabulary(n_vocab), np.uint32(bound)
    words, scratch = np.empty((2, min(_CHUNK, n_vocab)), np.uint32)
    found = []
    for start in range(0, n_vocab, _CHUNK):
        part = tokens[start : start + _CHUNK]
        here = np.bitwise_xor(part, keys[0], out=words[: part.size])
        _rounds(here, keys, scratch[: part.size])
        found.append(start + np.flatnonzero(here < least))
    return np.concatenate(found)


def _rounds(words: Words, keys: Words, scratch: Words) -> None:
    """All of the hash between its first and its last shift, in place."""
    words *= _FIRST
    words += keys[1]
    np.right_shift(words, _15, out=scratch)
    words ^= scratch
    words *= _SECOND
    words += keys[2]


@lru_cache(4)
def _mixed_vocabulary(n_vocab: int) -> Words:
    tokens = mixed(np.arange(n_vocab))
    tokens.flags.writeable = False
    return tokens


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)
