"""DRY breakers: the token sequences in which a model can write a text that ends repetitions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from localspec.llama.model import Model

# As in llama.cpp: no more bytes of a breaker, and no more tokens of its end, are read.
_MOST_BYTES, _MOST_TOKENS = 40, 20
# The first token of a breaker, and what must follow it: nothing, or the tokens of its end.
Breakers = Mapping[int, Sequence[tuple[int, ...]]]
# So many lists of breakers are remembered for a model.
_MOST_LISTS = 16


class _Texts:
    """The texts of all tokens of a model, and the breakers that were found in them."""

    def __init__(self, model: Model) -> None:
        self.texts = [model.detokenized(token) for token in range(model.n_vocab)]
        self.found: dict[tuple[str, ...], Breakers] = {}
        self._bytes = np.frombuffer(b"".join(self.texts), np.uint8)
        self._ends = np.cumsum([len(text) for text in self.texts])

    def with_byte(self, byte: int) -> Iterator[tuple[int, bytes]]:
        """The tokens whose text has a byte, and their texts."""
        (places,) = (self._bytes == byte).nonzero()
        for token in np.unique(self._ends.searchsorted(places, "right")).tolist():
            yield token, self.texts[token]


_known: WeakKeyDictionary[Model, _Texts] = WeakKeyDictionary()


def breaker_tokens(model: Model, breakers: Sequence[str]) -> Breakers:
    """The sequences of tokens that write one of these texts, by their first token.

    A breaker may begin within a token and end within another one.
    """
    if (texts := _known.get(model)) is None:
        texts = _known[model] = _Texts(model)
    wanted = tuple(breakers)
    if (known := texts.found.get(wanted)) is not None:
        return known
    found: dict[int, dict[tuple[int, ...], None]] = {}
    for breaker in wanted:
        whole = breaker.encode()[:_MOST_BYTES]
        for token, tail in _sequences(model, texts, whole):
            found.setdefault(token, {})[tail] = None
    if len(texts.found) >= _MOST_LISTS:
        texts.found.clear()
    return texts.found.setdefault(wanted, {each: tuple(tails) for each, tails in found.items()})


def _sequences(
    model: Model, texts: _Texts, breaker: bytes
) -> Iterator[tuple[int, tuple[int, ...]]]:
    @lru_cache
    def tail(size: int) -> tuple[int, ...]:
        # Perhaps the bytes that a character ends with.
        rest = model.tokenize(breaker[size:], add_special=False, parse_special=False)
        return tuple(rest[:_MOST_TOKENS])

    for token, text in texts.with_byte(breaker[0]):
        if breaker in text:
            yield token, ()
            continue
        for size in range(1, min(len(breaker), len(text) + 1)):
            if text.endswith(breaker[:size]):
                yield token, tail(size)
