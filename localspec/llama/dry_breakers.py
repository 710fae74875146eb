"""DRY breakers: the token sequences in which a model can write a text that ends repetitions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

from localspec.llama.model import Model

# As in llama.cpp: no more bytes of a breaker, and no more tokens of its end, are read.
_MOST_BYTES, _MOST_TOKENS = 40, 20
# The first token of a breaker, and what must follow it: nothing, or the tokens of its end.
Breakers = Mapping[int, Sequence[tuple[int, ...]]]
_texts: WeakKeyDictionary[Model, list[bytes]] = WeakKeyDictionary()
_found: WeakKeyDictionary[Model, dict[tuple[str, ...], Breakers]] = WeakKeyDictionary()
# So many lists of breakers are remembered for a model.
_MOST_LISTS = 16


def breaker_tokens(model: Model, breakers: Sequence[str]) -> Breakers:
    """The sequences of tokens that write one of these texts, by their first token.

    A breaker may begin within a token and end within another one.
    """
    known, wanted = _found.setdefault(model, {}), tuple(breakers)
    if wanted not in known:
        if model not in _texts:
            _texts[model] = [model.detokenized(token) for token in range(model.n_vocab)]
        if len(known) == _MOST_LISTS:
            known.clear()
        found: dict[int, dict[tuple[int, ...], None]] = {}
        for breaker in wanted:
            whole = breaker.encode()[:_MOST_BYTES]
            for token, tail in _sequences(model, _texts[model], whole):
                found.setdefault(token, {})[tail] = None
        known[wanted] = {token: tuple(tails) for token, tails in found.items()}
    return known[wanted]


def _sequences(
    model: Model, texts: Iterable[bytes], breaker: bytes
) -> Iterator[tuple[int, tuple[int, ...]]]:
    @lru_cache
    def tail(size: int) -> tuple[int, ...]:
        rest = breaker[size:].decode(errors="ignore")
        return tuple(model.tokenize(rest, add_special=False, parse_special=False)[:_MOST_TOKENS])

    for token, text in enumerate(texts):
        if breaker in text:
            yield token, ()
            continue
        for size in range(1, min(len(breaker), len(text) + 1)):
            if text.endswith(breaker[:size]):
                yield token, tail(size)
