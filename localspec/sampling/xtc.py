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

import numpy as np

from localspec.sampling.block_maxima import Ids, Row
from localspec.sampling.distribution import relative_scores
from localspec.sampling.keyed_hash import derive_seed
from localspec.sampling.params import SamplingParams

# Part of the key, so that no other number derived from a seed is the same: "xtc" in ASCII.
_STREAM = 0x787463 << 40


def applies(params: SamplingParams, seed: int, position: int) -> bool:
    """Whether XTC applies to the token at this position of the text."""
    if not params.has_xtc:
        return False
    return derive_seed(seed, _STREAM, position) < params.xtc_probability * 2**64


def without_top_choices(logits: Row, ids: Ids, threshold: float) -> tuple[Row, Ids]:
    """What is left where XTC applies, in the same order. logits, ids: (n,), n >= 1.

    Of equally likely tokens the one with the highest id stays.
    """
    weights = np.exp(relative_scores(logits, logits.max(), 1.0))
    # As float32, in which llama.cpp compares. A token that is forbidden is no choice.
    reach = (weights / weights.sum()).astype(np.float32) >= np.float32(threshold)
    (likely,) = (reach & (logits > -np.inf)).nonzero()
    if likely.size < 2:
        return logits, ids
    least = likely[np.lexsort((ids[likely], -logits[likely]))[-1]]
    kept = np.ones(logits.size, bool)
    kept[likely] = False
    kept[least] = True
    return logits[kept], ids[kept]
