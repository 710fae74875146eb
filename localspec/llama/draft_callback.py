"""DraftCallback: what llama-cpp-python's `Llama(draft_model=...)` asks for drafts."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llama_cpp.llama_speculative import LlamaDraftModel
from numpy.typing import NDArray


class DraftCallback(LlamaDraftModel):
    """Asks `propose` for the tokens that may follow a text.

    propose: takes the ids of the text, and how many may be drafted at most; returns the drafted
    ones.
    """

    def __init__(self, propose: Callable[[list[int], int], Sequence[int]]) -> None:
        self._propose = propose

    def __call__(self, input_ids: NDArray[np.intc], /, **_: Any) -> NDArray[np.intc]:
        """The drafted tokens, (n,) of type intc. input_ids: the whole text, of the same type."""
        # `Llama` shows the beginning of an array for `n_ctx` tokens. It may write on behind the end
        # of that, as the library rounds `n_ctx` up, but fails there if more tokens come at once.
        whole = input_ids.base
        room = whole.size - input_ids.size if isinstance(whole, np.ndarray) else sys.maxsize
        return np.array(self._propose(input_ids.tolist(), room), dtype=np.intc)
