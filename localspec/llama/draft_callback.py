"""DraftCallback: what llama-cpp-python's `Llama(draft_model=...)` asks for drafts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llama_cpp.llama_speculative import LlamaDraftModel
from numpy.typing import NDArray


class DraftCallback(LlamaDraftModel):
    """Asks `propose` for the tokens that may follow a text.

    propose: takes the ids of the text, and returns the drafted ones.
    """

    def __init__(self, propose: Callable[[list[int]], Sequence[int]]) -> None:
        self._propose = propose

    def __call__(self, input_ids: NDArray[np.intc], /, **_: Any) -> NDArray[np.intc]:
        """The drafted tokens, (n,) of type intc. input_ids: the whole text, of the same type."""
        return np.array(self._propose(input_ids.tolist()), dtype=np.intc)
