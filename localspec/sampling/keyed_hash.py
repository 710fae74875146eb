"""Keyed hash: words of 32 bits that are a pure function of (seed, position, token id)."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Keys = Words | list[Words]
Ids = NDArray[np.integer]

_MASK32, _MASK64 = (1 << 32) - 1, (1 << 64) - 1
_SPREAD_BY, _FIRST_BY, _SECOND_BY = 0x9E3779B1, 0x7FEB352D, 0x846CA68B
# Arrays without a dimension: numpy is twice as quick with them as with its scalars.
_SPREAD, _FIRST, _SECOND, _15, _16 = (
    np.array(word, np.uint32) for word in (_SPREAD_BY, _FIRST_BY, _SECOND_BY, 15, 16)
)
# Words per operation, so that its arrays stay in the processor's cache.
_CHUNK = 16384


@lru_cache(1024)
def keys_of(seed: int, position: int) -> Words:
    """(3, 2, 1) keys, by the splitmix64 finaliser: those of a token's coarse and of its fine word.

    seed: 0 to 2**64 - 1.
    """
    words = _words(seed, position)
    coarse, fine = _word_keys(words), _word_keys(words)
    keys = np.array([*zip(coarse, fine, strict=True)], np.uint32).reshape(3, 2, 1)
    keys.flags.writeable = False
    return keys


@lru_cache(1024)
def coarse_keys_of(seed: int, position: int) -> list[int]:
    """The three keys of a token's coarse word."""
    return _word_keys(_words(seed, position))


def _words(seed: int, position: int) -> Iterator[int]:
    state = _splitmix(_splitmix(seed) ^ (position & _MASK64))
    while True:
        state = _splitmix(state)
        yield state & _MASK32
        yield state >> 32


def _word_keys(words: Iterator[int]) -> list[int]:
    """The keys of one word of noise."""
    first = next(words)
    # The first shift of the hash, which `mixed` has done for the tokens.
    return [first ^ (first >> 16), next(words), next(words)]


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


def hashed(tokens: Words, keys: Keys) -> Words:
    """A keyed bijection of 32-bit words: multiply-xorshift rounds with a key between them.

    tokens: (n,) from `mixed`. keys: (3,) or (3, 1) -> (n,), or (3, 2, 1) -> (2, n).
    """
    words: Words = tokens ^ keys[0]
    scratch = np.empty_like(words)
    _rounds(words, keys, scratch)
    np.right_shift(words, _16, out=scratch)
    words ^= scratch
    return words


def coarse_words(tokens: Sequence[int], keys: Sequence[int]) -> list[int]:
    """The hashes of a few tokens, in Python's own numbers. keys: three, from `coarse_keys_of`."""
    first, second, third = keys
    words = []
    for token in tokens:
        word = token * _SPREAD_BY & _MASK32
        word ^= (word >> 16) ^ first
        word = word * _FIRST_BY + second & _MASK32
        word ^= word >> 15
        word = word * _SECOND_BY + third & _MASK32
        words.append(word ^ (word >> 16))
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


def _rounds(words: Words, keys: Keys, scratch: Words) -> None:
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
