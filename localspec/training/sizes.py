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

    def metadata(self, architecture: str, *, layers: int, context: int) -> dict[str, object]:
        """What a GGUF says of the shape. layers, context: those of the file."""
        said = {
            "block_count": layers,
            "context_length": context,
            "embedding_length": self.width,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.heads,
            "attention.layer_norm_rms_epsilon": EPSILON,
            "rope.dimension_count": self.head,
            "rope.freq_base": self.rope_base,
            "vocab_size": self.vocabulary,
        }
        return {f"{architecture}.{key}": value for key, value in said.items()}
