"""Hidden states: the rows between the layers of a model, which some drafters read.

Layer i of a model with n layers means the rows that enter it: for 0 the token embeddings, for n the
rows that leave the last layer, which the library calls next-token rows. A row is handed out for
each token of a decode, in the order of the batch, whether its logits were asked for or not.

The library's functions for this are not part of its public interface, so they are looked up when
they are first needed. On an architecture without them, the library ends the process at the first
decode: `hidden_states_probe` finds that out in a child process.
"""

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama import library

_FLOATS = ctypes.POINTER(ctypes.c_float)
_CONTEXT, _LAYER, _FLAG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "llama_set_embeddings_layer_inp": (None, _CONTEXT, _LAYER, _FLAG),
    "llama_get_embeddings_layer_inp": (_FLOATS, _CONTEXT, _LAYER),
    "llama_set_embeddings_nextn": (None, _CONTEXT, _FLAG, _FLAG),
    "llama_get_embeddings_nextn": (_FLOATS, _CONTEXT),
}


class HiddenStates:
    """The hidden rows of one context.

    handle: the library's context. n_layer: the layers of its model. layers: those whose rows are
    handed out.
    """

    def __init__(self, handle: Any) -> None:
        model = llama_cpp.llama_get_model(handle)
        self.n_layer = int(llama_cpp.llama_model_n_layer(model))
        self.layers: set[int] = set()
        self._handle = handle
        self._width = int(llama_cpp.llama_model_n_embd(model))
        self._last_width = int(llama_cpp.llama_model_n_embd_out(model))

    def enable(self, layers: Iterable[int]) -> None:
        """Hand out the rows of these layers from the next decode on.

        Raises LocalspecError for a layer that the model does not have, and ModelLoadError where
        this build of llama.cpp hands out no rows.
        """
        for layer in sorted(set(layers) - self.layers):
            if not 0 <= layer <= self.n_layer:
                raise LocalspecError(
                    f"there is no layer {layer} to read hidden states of: the model has "
                    f"{self.n_layer} layers"
                )
            if layer < self.n_layer:
                _function("llama_set_embeddings_layer_inp")(self._handle, layer, True)
            else:
                # Not masked: a row for each token of a decode.
                _function("llama_set_embeddings_nextn")(self._handle, True, False)
            self.layers.add(layer)

    def rows(self, layer: int, count: int) -> NDArray[np.float32]:
        """Return the (count, width) rows of an enabled layer: a view, valid until the next decode.

        count: the tokens of the last decode, padding included.
        """
        if layer not in self.layers:
            # The library would end the process.
            raise LocalspecError(f"hidden states of layer {layer} were not enabled")
        if layer < self.n_layer:
            pointer = _function("llama_get_embeddings_layer_inp")(self._handle, layer)
            return np.ctypeslib.as_array(pointer, shape=(count, self._width))
        pointer = _function("llama_get_embeddings_nextn")(self._handle)
        return np.ctypeslib.as_array(pointer, shape=(count, self._last_width))


def require_functions() -> None:
    """Raise ModelLoadError where this build of llama.cpp hands out no hidden states."""
    for name in _SIGNATURES:
        _function(name)


@cache
def _function(name: str) -> Any:
    found = library.symbol(name, *_SIGNATURES[name])
    if found is None:
        raise ModelLoadError(
            f"this build of llama.cpp ({library.version()}) hands out no hidden states: it lacks "
            f"{name}; install llama-cpp-python 0.3.36, or use --draft suffix"
        )
    return found
