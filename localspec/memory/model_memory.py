"""Model memory: the bytes that one model and its cache take on each device, without loading them.

`bytes_by_device` asks the library, which loads the model without its weights for that;
`estimated_bytes` and `least_bytes` read the header alone.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from localspec.gguf.facts import Facts
from localspec.gguf.heads import layers_of
from localspec.gguf.reader import TensorInfo
from localspec.llama.context_params import ContextParams
from localspec.llama.placement import Placement
from localspec.memory import estimate
from localspec.memory.available import HOST
from localspec.memory.context_sizes import ContextSizes

_LAYER = re.compile(r"blk\.(\d+)\.")


class ModelMemory:
    """The memory of one model for several contexts. Call `close` at the end.

    placement: of the model; split rows are counted by layers. mtp: whether the model are heads of
    multi-token prediction in this file. inside: whether this file is their target's: then their
    weights are in it, and are not counted as the target's. loaded: whether the weights are in
    memory already: then only the cache is counted. adapters: the tensors of LoRA adapters, which
    are where the weights are that they change.
    """

    def __init__(
        self,
        facts: Facts,
        placement: Placement,
        *,
        mtp: bool = False,
        inside: bool = False,
        loaded: bool = False,
        adapters: Sequence[TensorInfo] = (),
    ) -> None:
        self.name = facts.files[0].name
        self._facts = facts
        self._tensors = facts.tensors if mtp and not inside else _part(facts, mtp=mtp)
        self._sizes = {tensor.name: tensor.size for tensor in self._tensors}
        left_out = {each.name for each in facts.tensors} - self._sizes.keys()
        self._size = facts.size - sum(each.size for each in facts.tensors if each.name in left_out)
        self._tensors = [*self._tensors, *adapters]
        self._size += sum(each.size for each in adapters)
        self._vocabulary = 0 if inside else estimate.vocabulary_bytes(facts.header)
        self._loaded = loaded
        if loaded:
            self._size = self._vocabulary = 0
        self._contexts = ContextSizes(facts.files[0], facts.header, placement, mtp=mtp)
        self._experts = re.compile(placement.experts_pattern or "$^")
        self._by_device: dict[ContextParams, Counter[str]] = {}

    def estimated_bytes(self, params: ContextParams) -> int | None:
        """Estimate the bytes in all; None where the header does not tell the size of the cache."""
        context = self._contexts.estimated_bytes(params)
        return None if context is None else self._size + context

    def least_bytes(self, params: ContextParams) -> int:
        """Return bytes in all that the model and its cache take in any case."""
        return self._size + self._contexts.least_bytes(params)

    def bytes_by_device(self, params: ContextParams) -> Counter[str]:
        """Return bytes by device: from the library, or the estimate where it cannot say."""
        if params not in self._by_device:
            self._by_device[params] = self._ask_library(params)
        return self._by_device[params]

    @property
    def output_bytes(self) -> int:
        """Return the bytes of the output matrix, which may be the embedding."""
        return self._sizes.get("output.weight") or self._sizes.get("token_embd.weight", 0)

    def close(self) -> None:
        """Free what the library holds for its answers."""
        self._contexts.close()

    def _ask_library(self, params: ContextParams) -> Counter[str]:
        needed = self._contexts.bytes_by_device(params)
        if needed is None:
            # Of most heads, whose contexts need that of their target.
            size = self.estimated_bytes(params)
            size = size or self.least_bytes(params)
            return Counter({self._contexts.last_device: size})
        needed.update(self._weights())
        needed[HOST] += self._vocabulary
        return needed

    def _weights(self) -> Counter[str]:
        """Return the bytes of the weights by device."""
        if self._loaded:
            return Counter()
        layers, output = self._contexts.dry_model.layers, self._contexts.last_device
        weights = Counter[str]()
        for tensor in self._tensors:
            weights[self._device_of(tensor.name, layers, output)] += tensor.size
        if output != HOST:
            weights[output] += self._shared_embedding()
        return weights

    def _device_of(self, tensor: str, layers: Mapping[int, str], output: str) -> str:
        if self._experts.match(tensor):
            return HOST
        if (layer := _layer_of(tensor)) is not None:
            return layers.get(layer, HOST)
        # The input embedding stays in main memory, wherever the layers are.
        return output if tensor.startswith("output") else HOST

    def _shared_embedding(self) -> int:
        """Return the bytes of the embedding where it is the output matrix too, which is a copy."""
        return 0 if "output.weight" in self._sizes else self.output_bytes


def _part(facts: Facts, *, mtp: bool) -> list[TensorInfo]:
    """The tensors of a model's heads of multi-token prediction, or all others."""
    trunk = layers_of(facts.header)
    return [each for each in facts.tensors if ((_layer_of(each.name) or 0) >= trunk) == mtp]


def _layer_of(tensor: str) -> int | None:
    found = _LAYER.match(tensor)
    return int(found[1]) if found else None
