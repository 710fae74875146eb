"""The rows of a target of any family, as llama.cpp computes them in one pass of the whole text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fakes.numpy_llama import Floats, NumpyLlama

from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.speculation.draft import NOTHING
from localspec.speculation.passes import OUTPUT, Pass, draft_pass
from localspec.utils.closing import Closing

EXACT = ContextParams(512, flash_attention=False, kv_type="f32")


class LibraryRows(NumpyLlama, Closing):
    """A target in a context of its own, for the oracles of heads.

    layers: whose rows are read.
    """

    def __init__(self, path: Path, layers: Sequence[int]) -> None:
        super().__init__(path)
        self._reads = tuple(sorted(set(layers)))
        self._model = Model(path, ON_PROCESSOR)
        self._text = Context(self._model, EXACT).new_sequence()

    def hidden(self, tokens: list[int]) -> list[Floats]:
        """As NumpyLlama.hidden; empty for layers that are not read."""
        found: list[Floats] = [np.empty((0, 0))] * (1 + max(self._reads))
        if not tokens:
            width = int(self.weights.own("embedding_length"))
            return [np.empty((0, width)) for _ in found]
        self._text.truncate(0)
        (scores,) = self._text.context.decode([Pass(self._text, tokens, hidden=self._reads)])
        for layer, rows in scores.hidden.items():
            found[layer] = rows.astype(np.float64)
        return found

    def normed(self, tokens: list[int]) -> Floats:
        """The row behind the output norm of the last token: (1, width)."""
        self._text.truncate(0)
        if tokens[:-1]:
            self._text.extend(tokens[:-1])
        requested = draft_pass(self._text, tokens[-1], NOTHING, (OUTPUT,))
        (scores,) = self._text.context.decode([requested])
        rows: Floats = scores.hidden[OUTPUT][-1:].astype(np.float64)
        self._text.commit([])
        return rows

    def close(self) -> None:
        self._text.close()
        self._model.close()
