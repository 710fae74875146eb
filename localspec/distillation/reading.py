"""Reading: the target evaluates a text, and its distributions and hidden rows are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.distillation.texts import Stopped, Text
from localspec.distillation.top_logits import TopLogits, joined, top_logits
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import MAX_DEPTH
from localspec.speculation.passes import Pass, direct

# Rows of a pass: as many as may have logits.
_ROWS = MAX_DEPTH + 1


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text, and what the target computed on it.

    top: the distributions from the last token of the prompt to the last token of all: those of the
    answer's tokens, and of the token behind it. hidden: by layer (tokens, width) float32, as in
    `Pass.hidden`.
    """

    text: Text
    top: TopLogits
    hidden: Mapping[int, NDArray[np.float32]]


class TargetReader:
    """Reads texts in a cache of the target. layers: whose hidden rows are kept.

    Every text begins with an empty cache and has passes of the same rows, so that the same text is
    read with the same digits.
    """

    def __init__(self, sequence: KVSequence, layers: Sequence[int] = ()) -> None:
        self._sequence, self._layers = sequence, tuple(layers)

    def read(self, text: Text, stopped: Callable[[], bool] = lambda: False) -> ReadText:
        """Read one text. stopped: asked before each pass. Raises Stopped where it says so."""
        sequence, first = self._sequence, text.prompt - 1
        sequence.truncate(0)
        tops: list[TopLogits] = []
        hidden: dict[int, list[NDArray[np.float32]]] = {layer: [] for layer in self._layers}
        rows = min(_ROWS, sequence.context.chunk)
        for start in range(0, len(text.tokens), rows):
            if stopped():
                raise Stopped
            tokens = text.tokens[start : start + rows]
            wanted = len(tokens)
            scores = direct(Pass(sequence, tokens, wanted=wanted, hidden=self._layers))
            for layer, own in hidden.items():
                own.append(scores.hidden[layer].copy())
            if start + wanted > first:
                tops.append(top_logits(scores.logits[max(0, first - start) :]))
        return ReadText(
            text, joined(tops), {layer: np.concatenate(own) for layer, own in hidden.items()}
        )
