"""Entropy of a distribution, and typical-p, which goes by it."""

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.block_maxima import Ids, Row

Scores = NDArray[np.float64]


def typical(values: Row, ids: Ids, typical_p: float) -> tuple[Row, Ids]:
    """values: likeliest first; the result is sorted by how typical they are."""
    probabilities, surprise = information(values.astype(np.float64) - values[0])
    order = np.argsort(np.abs(surprise - entropy(probabilities, surprise)), kind="stable")
    mass = np.cumsum(probabilities[order])
    count = int(np.searchsorted(mass, typical_p, side="right")) + 1
    return values[order[:count]], ids[order[:count]]


def information(scores: Scores) -> tuple[Scores, Scores]:
    """Each token's probability, and the information that it would carry, in nats.

    scores: logits minus the largest.
    """
    weights = np.exp(scores)
    total = weights.sum()
    return weights / total, np.log(total) - scores


def entropy(probabilities: Scores, surprise: Scores) -> float:
    """The mean information, in nats."""
    possible = probabilities > 0
    return float((probabilities[possible] * surprise[possible]).sum())
