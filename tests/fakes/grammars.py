"""Texts of grammars: random ones, and what llama.cpp's own grammar sampler allows."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.llama.grammar import Grammar
from localspec.llama.model import Model

Mask = NDArray[np.bool_]


@contextmanager
def reference(text: str, model: Model) -> Iterator[tuple[Callable[[], Mask], Callable[[int], Any]]]:
    """llama.cpp's own grammar sampler: its mask, and going on by a token."""
    vocab = llama_cpp.llama_model_get_vocab(model.handle)
    sampler = llama_cpp.llama_sampler_init_grammar(vocab, text.encode(), b"root")
    assert sampler

    def allowed() -> Mask:
        entries = (llama_cpp.llama_token_data * model.n_vocab)()
        for i in range(model.n_vocab):
            entries[i].id = i
        array = llama_cpp.llama_token_data_array(entries, model.n_vocab, -1, False)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        return np.array([entry.logit == 0 for entry in entries])

    yield allowed, lambda token: llama_cpp.llama_sampler_accept(sampler, token)
    llama_cpp.llama_sampler_free(sampler)


def walk(state: Grammar, model: Model, seed: int, steps: int) -> list[int]:
    """Allowed tokens at random, up to one that ends the text."""
    rng, tokens = np.random.default_rng(seed), list[int]()
    for _ in range(steps):
        token = int(rng.choice(np.flatnonzero(state.allowed())))
        if model.ends_generation(token):
            break
        tokens.append(token)
        state = state.then(token)
    return tokens


def text_of(tokens: list[int], model: Model) -> str:
    return b"".join(model.piece(token) for token in tokens).decode()


def is_utf8(data: bytes) -> bool:
    """Whether it is, or is the beginning of some."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
