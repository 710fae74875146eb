"""RoundPlan: a choice of what all texts of a round draft."""

from collections.abc import Sequence
from typing import NamedTuple


class RoundPlan(NamedTuple):
    """A choice of drafts for all texts.

    depth: of this text's draft. others: rows of the other texts' passes. tokens: those that the
    others may expect, by their weights, where a token of this text has the weight 1. seconds: of
    the round. most: those that all bear. depths: of the others' drafts.
    """

    depth: int
    others: tuple[int, ...]
    tokens: float
    seconds: float
    most: float
    depths: Sequence[int] = ()
