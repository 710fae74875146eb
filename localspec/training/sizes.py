"""Sizes: the shape of a llama-architecture model that is trained here."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# By name.
Weights = Mapping[str, Floats]

EPSILON = 1e-5
ROPE_BASE = 10_000.0
CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape of a llama-architecture model without grouped heads.

    rope_base: of the angles by which queries and keys turn.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    feed_forward: int
    rope_base: float = ROPE_BASE

    @property
    def head(self) -> int:
        return self.width // self.heads
