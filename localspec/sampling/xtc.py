"""XTC ("exclude top choices"): at some positions, the likeliest tokens are left out.

Where it applies, only the least likely of the tokens whose probability reaches a threshold stays,
and all that are less likely. The meaning is that of llama.cpp's sampler of this name, which
follows that of text-generation-webui (author: p-e-w).

Whether it applies at a position is a pure function of seed and position, independent of all other
randomness of the seed. So the text of a seed is one text, whatever is drafted, and an audit can
repeat it. The rejection rules read a position more than once, as part of a draft that is given up
and again in the next step: each time its law is the same. All decisions are made before anything
is drawn; given them, the target is a model with one distribution for each prefix, which every rule
keeps. Over seeds the decisions are independent and XTC applies with its probability, so the text
has exactly XTC's distribution.

Drafters ask the same sampler, with the prefix of each drafted token: they leave out their own
likeliest tokens where the target does.
"""

import math

import numpy as np

from localspec.sampling.block_maxima import Ids, Row
from localspec.sampling.distribution import relative_scores
from localspec.sampling.keyed_hash import derive_seed
from localspec.sampling.params import SamplingParams

# Part of the key, so that no other number derived from a seed is the same: "xtc" in ASCII.
_STREAM = 0x787463 << 40
# A logit is a float32.
_ROUNDING = 1e-2


def applies(params: SamplingParams, seed: int, position: int) -> bool:
    """Whether XTC applies to the token at this position of the text."""
    if not params.has_xtc:
        return False
    return derive_seed(seed, _STREAM, position) < params.xtc_probability * 2**64


def without_top_choices(logits: Row, ids: Ids | None, threshold: float) -> tuple[Row, Ids | None]:
    """What is left where XTC applies, in the same order. logits, ids: (n,), n >= 1.

    ids: None: the entries are those of the whole vocabulary, and so are those returned, in which
    what is left out is -inf. Of equally likely tokens the one with the highest id stays.
    """
    top = logits.max()
    total = np.exp(relative_scores(logits, top, 1.0)).sum()
    # No other has the probability: the total is 1 at least. A token that is forbidden is no choice.
    nearest = top - np.inf if threshold <= 0 else top + math.log(threshold) - _ROUNDING
    (near,) = ((logits >= nearest) & (logits > -np.inf)).nonzero()
    weights = np.exp(relative_scores(logits[near], top, 1.0))
    # As float32, in which llama.cpp compares.
    likely = near[(weights / total).astype(np.float32) >= np.float32(threshold)]
    if likely.size < 2:
        return logits, ids
    names = likely if ids is None else ids[likely]
    least = np.lexsort((names, -logits[likely]))[-1]
    left_out = np.delete(likely, least)
    if ids is not None:
        return np.delete(logits, left_out), np.delete(ids, left_out)
    left = logits.copy()
    left[left_out] = -np.inf
    return left, None
