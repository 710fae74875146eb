"""Samplers and toys with exact laws: the probability of each text, multiplied out."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from fakes.enumeration import SEED
from fakes.plain_sampling import plain_stateful
from fakes.toy import ToyModel

from localspec.sampling.filters import distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.xtc import applies

PLAIN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
PROMPT = [0, 1, 0, 1]
# The most that rounding may make of a total variation.
EXACT = 1e-12

# Sampler settings: the full distribution, a support with zeros, penalties on earlier tokens.
SAMPLERS = {
    "full": PLAIN,
    "temperature": SamplingParams(temperature=0.6, top_k=0, top_p=1, min_p=0),
    "top-k": SamplingParams(temperature=1, top_k=2, top_p=1, min_p=0),
    "top-p": SamplingParams(temperature=1.3, top_k=0, top_p=0.7, min_p=0),
    "penalties": SamplingParams(
        temperature=1, top_k=0, top_p=1, min_p=0, repeat_penalty=1.5, presence_penalty=0.4
    ),
    "dry": SamplingParams(
        temperature=1,
        top_k=0,
        top_p=1,
        min_p=0,
        dry_multiplier=0.7,
        dry_allowed_length=1,
        dry_penalty_last_n=5,
        dry_breaker_tokens={2: ((),), 1: ((2,),)},
    ),
    "xtc": SamplingParams(
        temperature=0.9, top_k=0, top_p=1, min_p=0, xtc_probability=0.5, xtc_threshold=0.25
    ),
    # Tokens of more than the state's bits are left out, so that each draw shows in the next.
    "mirostat": SamplingParams(mirostat=1, temperature=1, mirostat_tau=0.9, mirostat_eta=0.7),
    "mirostat 2": SamplingParams(mirostat=2, temperature=1, mirostat_tau=0.9, mirostat_eta=0.7),
    "adaptive-p": SamplingParams(
        temperature=1, top_k=0, top_p=1, min_p=0, adaptive_target=0.4, adaptive_decay=0.5
    ),
    "greedy": SamplingParams(temperature=0),
}

# The drafter ranks the two likely tokens the other way round, so that a wrong residual or a wrong
# row changes the distribution clearly.
LOUD_P = np.log([[[0.5, 0.3, 0.2]] * 3, [[0.2, 0.7, 0.1]] * 3, [[0.1, 0.1, 0.8]] * 3])
LOUD_Q = np.log([[[0.15, 0.25, 0.6]] * 3, [[0.6, 0.25, 0.15]] * 3, [[0.5, 0.3, 0.2]] * 3])

TARGET = ToyModel.random(3, seed=1)
TOYS = {
    "generic": (TARGET, TARGET.like(seed=2, noise=0.6)),
    "loud": (ToyModel(LOUD_P), ToyModel(LOUD_Q)),
    "same": (TARGET, TARGET),
}


def product_law(
    model: ToyModel, params: SamplingParams, length: int
) -> dict[tuple[int, ...], float]:
    """The probability of each text of this length, as a product over its tokens."""
    return {
        text: probability(model, params, text)
        for text in product(range(model.n_vocab), repeat=length)
    }


def probability(
    model: ToyModel, params: SamplingParams, text: Sequence[int], start: int = 0
) -> float:
    """That of the text from token `start` on, given the tokens before it."""
    found, state = 1.0, params.first_state
    for i, token in enumerate(text):
        before = [*PROMPT, *text[:i]]
        row = model.logits(before)
        if state is None:
            xtc = applies(params, SEED, len(before))
            chances = distribution(row, params, before, xtc=xtc).dense(model.n_vocab).tolist()
        else:
            chances, moved = plain_stateful(row, params, state)
            state = moved[token] or state
        found *= chances[token] if i >= start else 1.0
    return found
