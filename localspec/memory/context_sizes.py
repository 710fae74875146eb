"""Context sizes: the bytes that contexts of one model take on each device, without making them.

`bytes_by_device` asks the library; `estimated_bytes` and `least_bytes` read the header alone.
"""

from collections import Counter
from pathlib import Path

from localspec.gguf.reader import Header
from localspec.llama.context_params import CHUNK, ContextParams
from localspec.llama.dry_run import DryModel
from localspec.llama.placement import Placement
from localspec.memory import estimate
from localspec.memory.available import HOST


class ContextSizes:
    """The sizes of contexts of the model at `path`. Call `close` at the end.

    placement: of the model. mtp: whether they are contexts of the model's heads of multi-token
    prediction.
    """

    def __init__(
        self, path: Path, header: Header, placement: Placement, *, mtp: bool = False
    ) -> None:
        self._path = path
        self._mtp = mtp
        self._header = header
        self._placement = placement
        self._opened: DryModel | None = None

    def estimated_bytes(self, params: ContextParams) -> int | None:
        """Estimate the bytes in all; None where the header does not tell the size of the cache."""
        cells = params.n_ctx * params.texts
        cache = estimate.cache_bytes(self._header, cells, params.kv_type, mtp=self._mtp)
        if cache is None:
            return None
        buffers = estimate.compute_buffer_bytes(
            self._header,
            cells,
            flash_attention=params.flash_attention is not False,
            ubatch=params.ubatch or CHUNK,
        )
        return cache + estimate.cell_bytes(cells) + buffers + self._work_bytes(params)

    def least_bytes(self, params: ContextParams) -> int:
        """Return the bytes that a context takes in any case."""
        cells = params.n_ctx * params.texts
        return estimate.least_cache_bytes(self._header, cells, params.kv_type, mtp=self._mtp)

    def bytes_by_device(self, params: ContextParams) -> Counter[str] | None:
        """Ask the library for the bytes by device; None where it cannot say."""
        use = self.dry_model.context_memory(params)
        if use is None:
            return None
        needed = Counter({HOST: estimate.cell_bytes(params.n_ctx * params.texts)})
        for part in (use.cache, use.compute_buffers):
            needed.update(part)
        if HOST in self.dry_model.layers.values():
            needed[HOST] += self._work_bytes(params)
        return needed

    def _work_bytes(self, params: ContextParams) -> int:
        if params.flash_attention is not False:
            return 0
        cells = params.n_ctx * params.texts
        return estimate.work_buffer_bytes(self._header, cells, ubatch=params.ubatch or CHUNK)

    @property
    def last_device(self) -> str:
        """The device of the model's output, which is that of its last layers."""
        layers = self.dry_model.layers
        return layers[max(layers)] if layers else HOST

    @property
    def dry_model(self) -> DryModel:
        """The model without weights that the library is asked with."""
        self._opened = self._opened or DryModel(self._path, self._placement, mtp=self._mtp)
        return self._opened

    def close(self) -> None:
        """Free what the library holds for its answers."""
        opened, self._opened = self._opened, None
        if opened:
            opened.close()
