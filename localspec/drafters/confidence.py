"""Confidence: how far ahead of the others the token was that a drafter drew."""

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler

# Tokens whose score is so far below the best need too much luck to matter.
_REACH = 8.0
_SURE = 100.0


def margin(
    logits: NDArray[np.float32],
    distribution: Distribution,
    token: int,
    sampler: Sampler,
    prefix: Prefix,
) -> float:
    """By how much the drawn token's score leads that of the next best; larger is surer.

    logits: (n_vocab,) what the distribution was made of. Greedy: the lead of raw logits. With
    shared noise: of the perturbed scores, which is direct evidence of what the target will draw,
    since it adds the same noise. Else: the log-odds of the token.
    """
    if len(distribution) == 1:
        return _lead_of_raw(logits, token) if sampler.params.temperature == 0 else _SURE
    randomness = sampler.randomness
    if not isinstance(randomness, Noise):
        index = distribution.index(token)
        p = 0.0 if index is None else float(distribution.probabilities()[index])
        return float(np.log(max(p, 1e-9) / max(1 - p, 1e-9)))
    near = distribution
    if len(near) > _FEW:
        least = near.logits.max() - np.float32(_REACH * near.temperature)
        entries = np.flatnonzero(near.logits >= least)
        ids = entries if near.ids is None else near.ids[entries]
        near = Distribution(near.logits[entries], ids, near.temperature)
    ids = np.arange(len(near)) if near.ids is None else near.ids
    scores = near.scores() + randomness.gumbel(prefix.position, ids)
    own = scores[ids == token]
    others = scores[ids != token]
    if not own.size:
        return 0.0  # it won by luck from far behind
    return float(own[0] - others.max()) if others.size else _SURE


_FEW = 256


def _lead_of_raw(logits: NDArray[np.float32], token: int) -> float:
    rest = [part.max() for part in (logits[:token], logits[token + 1 :]) if part.size]
    return float(logits[token] - max(rest)) if rest else _SURE
