"""Confidence: the lead of a drawn token over the next best token."""

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler

# Tokens this far below the best (logit / temperature) are ignored: noise hardly ever lets them win.
_NEAR = 8.0
# The margin of a token without a rival.
_MAX_MARGIN = 100.0
# Supports of up to this many tokens are not reduced.
_FEW = 256


def margin(
    logits: NDArray[np.float32],
    distribution: Distribution,
    token: int,
    sampler: Sampler,
    prefix: Prefix,
) -> float:
    """Return the drawn token's score minus the score of the next best token.

    logits: (n_vocab,) the logits that the distribution was made from.

    A larger margin means more confidence. At temperature 0 the score is the raw logit. With shared
    noise it is the perturbed score: the target adds the same noise, so the margin directly predicts
    the target's token. Otherwise the margin is the log-odds of the token.
    """
    if len(distribution) == 1:
        return _lead_of_raw(logits, token) if sampler.params.temperature == 0 else _MAX_MARGIN
    randomness = sampler.randomness
    if not isinstance(randomness, Noise):
        index = distribution.index(token)
        p = 0.0 if index is None else float(distribution.probabilities()[index])
        return float(np.log(max(p, 1e-9) / max(1 - p, 1e-9)))
    near = distribution
    if len(near) > _FEW:
        maxima = near.maxima()
        entries = maxima.at_least(maxima.top - np.float32(_NEAR * near.temperature))
        ids = entries if near.ids is None else near.ids[entries]
        near = Distribution(near.logits[entries], ids, near.temperature)
    ids = np.arange(len(near)) if near.ids is None else near.ids
    scores = near.scores() + randomness.gumbel(prefix.position, ids)
    own = scores[ids == token]
    others = scores[ids != token]
    if not own.size:
        return 0.0  # the noise made an unlikely token win
    return float(own[0] - others.max()) if others.size else _MAX_MARGIN


def _lead_of_raw(logits: NDArray[np.float32], token: int) -> float:
    rest = [part.max() for part in (logits[:token], logits[token + 1 :]) if part.size]
    lead = float(logits[token] - max(rest)) if rest else _MAX_MARGIN
    if lead >= 0:
        return lead
    # Likelier tokens were left out (XTC).
    below = logits[logits < logits[token]]
    return float(logits[token] - below.max()) if below.size else _MAX_MARGIN
