"""Hidden states: the rows between the layers of a model, which some drafters read.

Layer i of a model with n layers means the rows that enter it: for 0 the token embeddings, for n the
rows that leave the last layer, which the library calls next-token rows. A row is handed out for
each token of a decode, in the order of the batch, whether its logits were asked for or not.

OUTPUT means the rows behind the output norm, which the library calls embeddings. As long as it
hands them out, it computes the logits of every token too. So they are switched on and off.

The functions for the rows between layers are not part of the library's public interface, so they
are looked up when they are first needed. On an architecture without them, the library ends the
process at the first decode: `hidden_states_probe` finds that out in a child process.
"""

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.llama import library
from localspec.llama.batch import split_rows
from localspec.speculation.passes import OUTPUT, Pass

_FLOATS = ctypes.POINTER(ctypes.c_float)
_CONTEXT, _LAYER, _FLAG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "llama_set_embeddings_layer_inp": (None, _CONTEXT, _LAYER, _FLAG),
    "llama_get_embeddings_layer_inp": (_FLOATS, _CONTEXT, _LAYER),
    "llama_set_embeddings_nextn": (None, _CONTEXT, _FLAG, _FLAG),
    "llama_get_embeddings_nextn": (_FLOATS, _CONTEXT),
    "llama_set_nextn_layer_offset": (None, _CONTEXT, ctypes.c_int32),
}


# Rows that no pass of so many decodes has asked for are switched off.
_UNUSED = 256


class HiddenStates:
    """The hidden rows of one context.

    handle: the library's context. n_layer: the layers of its model, without heads inside. layers:
    those whose rows are handed out. masked: whether the rows that leave the last layer are handed
    out only where logits were asked for: of all tokens of a decode, or of none. gives_output:
    whether the next decode hands out the rows behind the output norm.
    """

    def __init__(self, handle: Any, *, masked: bool = False) -> None:
        model = llama_cpp.llama_get_model(handle)
        self.n_layer = int(llama_cpp.llama_model_n_layer(model))
        self.layers: set[int] = set()
        self.gives_output = False
        self._handle = handle
        self._masked = masked
        # By layer: the decodes since its rows were last asked for.
        self._unused: dict[int, int] = {}
        self._width = int(llama_cpp.llama_model_n_embd(model))
        self._last_width = int(llama_cpp.llama_model_n_embd_out(model))

    def give_output(self, *, on: bool) -> None:
        """Hand out the rows behind the output norm from the next decode on, or not."""
        if on != self.gives_output:
            llama_cpp.llama_set_embeddings(self._handle, on)
            self.gives_output = on

    def enable(self, layers: Iterable[int]) -> None:
        """Hand out the rows of these layers from the next decode on; OUTPUT is left out.

        Raises LocalspecError for a layer that the model does not have, and ModelLoadError where
        this build of llama.cpp hands out no rows.
        """
        for layer in sorted(set(layers) - self.layers - {OUTPUT}):
            if not 0 <= layer <= self.n_layer:
                raise LocalspecError(
                    f"there is no layer {layer} to read hidden states of: the model has "
                    f"{self.n_layer} layers"
                )
            self._switch(layer, on=True)
            self.layers.add(layer)

    def follow(self, asked: Iterable[int]) -> None:
        """Hand out the rows of these layers, and none that were not asked for in a long time."""
        asked = set(asked) - {OUTPUT}
        if asked - self.layers:
            self.enable(asked)
        self._unused = {
            layer: 0 if layer in asked else self._unused.get(layer, 0) + 1 for layer in self.layers
        }
        if self._unused and max(self._unused.values()) > _UNUSED:
            self.disable_all_but(layer for layer in self.layers if self._unused[layer] <= _UNUSED)

    def disable_all_but(self, layers: Iterable[int]) -> None:
        """Hand out no rows of other layers from the next decode on."""
        for layer in sorted(self.layers - set(layers)):
            self._switch(layer, on=False)
            self.layers.remove(layer)

    def forget(self) -> None:
        """The library's context is freed: nothing is handed out any more."""
        self.layers.clear()
        self.gives_output = False

    def _switch(self, layer: int, *, on: bool) -> None:
        if layer < self.n_layer:
            _function("llama_set_embeddings_layer_inp")(self._handle, layer, on)
        else:
            _function("llama_set_embeddings_nextn")(self._handle, on, self._masked)

    def rows(self, layer: int, count: int) -> NDArray[np.float32]:
        """Return the (count, width) rows of an enabled layer: a view, valid until the next decode.

        count: the tokens of the last decode, padding included.
        """
        if layer == OUTPUT and self.gives_output:
            pointer = llama_cpp.llama_get_embeddings(self._handle)
            return np.ctypeslib.as_array(pointer, shape=(count, self._last_width))
        if layer not in self.layers:
            # The library would end the process.
            raise LocalspecError(f"hidden states of layer {layer} were not enabled")
        if layer < self.n_layer:
            pointer = _function("llama_get_embeddings_layer_inp")(self._handle, layer)
            return np.ctypeslib.as_array(pointer, shape=(count, self._width))
        pointer = _function("llama_get_embeddings_nextn")(self._handle)
        return np.ctypeslib.as_array(pointer, shape=(count, self._last_width))

    def choose_head(self, number: int) -> None:
        """Compute this head of several in one model from the next decode on; 0 is the first."""
        _function("llama_set_nextn_layer_offset")(self._handle, number)

    def of_passes(
        self, passes: Sequence[Pass], lengths: Sequence[int], padding: int = 0
    ) -> list[dict[int, NDArray[np.float32]]]:
        """The rows that each pass of the last decode asked for, by layer.

        lengths: the rows of each pass. padding: the rows after them.
        """
        found: list[dict[int, NDArray[np.float32]]] = [{} for _ in passes]
        for layer in {layer for each in passes for layer in each.hidden}:
            if layer == OUTPUT and not self.gives_output:
                continue
            rows = self.rows(layer, sum(lengths) + padding)
            for i, own in enumerate(split_rows(rows, lengths)):
                if layer in passes[i].hidden:
                    found[i][layer] = own
        return found


def output_wanted(passes: Sequence[Pass]) -> bool:
    """Whether rows behind the output norm are asked for where all logits are computed anyway."""
    return any(OUTPUT in each.hidden and each.wanted == len(each) for each in passes)


def require_functions() -> None:
    """Raise ModelLoadError where this build of llama.cpp hands out no hidden states."""
    for name in _SIGNATURES:
        _function(name)


@cache
def _function(name: str) -> Any:
    return library.required_symbol(name, "hands out no hidden states", *_SIGNATURES[name])
