"""Vocabulary padding: extra tokens that are never chosen, for the cost of a larger vocabulary."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from localspec.gguf.writer import TensorType, decode, encode

# The logit of an extra token, times the root mean square of the last hidden state; 16-bit floats
# end at 65504.
EXTRA_LOGIT = -60_000.0
# llama.cpp's number for the type of an unused token.
_UNUSED = 5
# Below the score of every real token.
_LEAST_SCORE = -1e6


@dataclass(frozen=True, slots=True)
class VocabularyPadding:
    """How extra tokens get a logit that never wins, in a model without biases.

    The embedding writes a constant `value` to one more index of the hidden state, `hidden_index`,
    which no layer reads or changes. The `epsilon` of the norms is smaller by its square. After the
    last norm it is a number above zero, which only the extra tokens' rows of the output matrix
    read (so the output matrix can no longer be the embedding).
    """

    hidden_index: int
    value: float
    epsilon: float

    @classmethod
    def of(
        cls, hidden_index: int, epsilon: float, width: int, embedding: TensorType
    ) -> "VocabularyPadding":
        """Choose the constant. epsilon: of the norms without it. embedding: the type it is in."""
        squares = epsilon * width
        block = np.zeros((1, 32), np.float32)
        block[0, 0] = sqrt(squares / 2)
        value = float(decode(encode(block, embedding), embedding)[0, 0])
        return cls(hidden_index, value, (squares - value**2) / width)


def extra_tokens(first: int, end: int) -> dict[str, list[object]]:
    """The entries of the extra tokens `first` to `end` - 1 in the lists of a vocabulary."""
    return {
        "tokens": [f"<|extra_{number}|>" for number in range(first, end)],
        "token_type": [_UNUSED] * (end - first),
        "scores": [_LEAST_SCORE] * (end - first),
    }
