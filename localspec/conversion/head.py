"""A head as it will be written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localspec.gguf.writer import TensorData


@dataclass(frozen=True, slots=True)
class ConvertedHead:
    """The architecture, metadata and tensors of a GGUF.

    notes: what was decided on the way, one line each.
    """

    architecture: str
    metadata: Mapping[str, object]
    tensors: Sequence[TensorData]
    notes: Sequence[str] = ()

    @property
    def size(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)
