"""Model memory: what one model with a cache needs of each device, without loading it."""

import re
from collections import Counter
from collections.abc import Mapping

from localspec.gguf.facts import Facts
from localspec.llama.dry_run import DryModel
from localspec.memory import estimate
from localspec.memory.available import HOST

_OF_LAYER = re.compile(r"blk\.(\d+)\.")


class ModelMemory:
    """A model in files, to ask what it needs. Close it.

    gpu_layers, flash_attention: as in RuntimeConfig. snapshots: as in Context.
    """

    def __init__(
        self,
        facts: Facts,
        *,
        gpu_layers: int | None,
        flash_attention: bool | None,
        snapshots: int = 0,
    ) -> None:
        self.name = facts.files[0].name
        self._facts = facts
        self._gpu_layers = gpu_layers
        self._flash_attention = flash_attention
        self._snapshots = snapshots
        self._dry: DryModel | None = None

    def roughly(self, n_ctx: int, kv_type: str) -> int | None:
        """Bytes in all, from the header; None where that does not tell the cache's size."""
        header = self._facts.header
        cache = estimate.cache_bytes(header, n_ctx, kv_type)
        if cache is None:
            return None
        flash_attention = self._flash_attention is not False
        passes = estimate.pass_bytes(header, n_ctx, flash_attention=flash_attention)
        return self._facts.size + cache + estimate.notes_bytes(n_ctx) + passes

    def at_least(self, n_ctx: int, kv_type: str) -> int:
        """Bytes in all that it takes in any case."""
        return self._facts.size + estimate.least_bytes(self._facts.header, n_ctx, kv_type)

    def needed(self, n_ctx: int, kv_type: str) -> Counter[str]:
        """Bytes by device: what the library says, else what the header does."""
        use = self._dry_model().use(
            n_ctx,
            kv_type=estimate.KV_TYPES[kv_type],
            flash_attention=self._flash_attention,
            snapshots=self._snapshots,
        )
        if use is None:
            least = self.at_least(n_ctx, kv_type)
            return Counter({HOST: self.roughly(n_ctx, kv_type) or least})
        needed = Counter(
            {HOST: estimate.notes_bytes(n_ctx) + estimate.vocabulary_bytes(self._facts.header)}
        )
        for part in (self._weights(), use.cache, use.passes):
            needed.update(part)
        return needed

    def close(self) -> None:
        """Forget it."""
        if self._dry:
            self._dry.close()

    def _dry_model(self) -> DryModel:
        self._dry = self._dry or DryModel(self._facts.files[0], gpu_layers=self._gpu_layers)
        return self._dry

    def _weights(self) -> Counter[str]:
        layers = self._dry_model().layers
        output = layers[max(layers)] if layers else HOST
        weights = Counter[str]()
        for tensor in self._facts.tensors:
            weights[self._device_of(tensor.name, layers, output)] += tensor.size
        if output != HOST:
            weights[output] += self._shared_table()
        return weights

    @staticmethod
    def _device_of(tensor: str, layers: Mapping[int, str], output: str) -> str:
        if found := _OF_LAYER.match(tensor):
            return layers.get(int(found[1]), HOST)
        # The table of what goes in stays in main memory, wherever the layers are.
        return output if tensor.startswith("output") else HOST

    def _shared_table(self) -> int:
        """Bytes of the table of tokens, if it is that of the output too: then that is a copy."""
        sizes = {tensor.name: tensor.size for tensor in self._facts.tensors}
        return 0 if "output.weight" in sizes else sizes.get("token_embd.weight", 0)
