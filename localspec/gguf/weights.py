"""Weights: the tensors of a file on disk, mapped and decoded row by row."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.gguf.reader import TensorInfo

if TYPE_CHECKING:
    from localspec.gguf.writer import Bytes, Floats, TensorData


class Weights:
    """The mapped weights of one file, whose header was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = np.memmap(path, np.uint8, "r")

    def data(self, tensor: TensorInfo) -> "Bytes":
        """The encoded rows, (size,): a view of the file."""
        return self._bytes[tensor.offset : tensor.offset + tensor.size]

    def stored(self, tensor: TensorInfo) -> "TensorData":
        """The tensor as it is, to write it into another file."""
        # Imported only when needed, here and below: the gguf package takes long to import, and
        # loading a model does not decode weights.
        from localspec.gguf.writer import TensorData, TensorType

        data = [self.data(tensor)]
        return TensorData(tensor.name, tensor.shape[::-1], TensorType(tensor.type), data)

    def rows(
        self, tensor: TensorInfo, which: NDArray[np.intp] | slice | int = slice(None)
    ) -> "Floats":
        """The rows `which` of a matrix, (rows, columns); one row or a whole vector: (columns,).

        Raises InvalidValueError for a type that cannot be read here.
        """
        from localspec.gguf.writer import TensorType, decode

        data, type_ = self.data(tensor), TensorType(tensor.type)
        if len(tensor.shape) > 1:
            data = data.reshape(tensor.shape[1], -1)[which]
        try:
            return decode(np.asarray(data), type_)
        except NotImplementedError as error:
            raise InvalidValueError(
                f"{self.path.name} stores {tensor.name} as {type_.name}, which cannot be read "
                "here; pass an F16 or Q8_0 file of the model"
            ) from error
