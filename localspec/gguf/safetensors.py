"""Safetensors: the tensors of a .safetensors file, read some rows at a time.

The format: eight bytes with the length of a JSON header, the header with type, shape and place of
each tensor, then the numbers. https://github.com/huggingface/safetensors
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.gguf.reader import LOOKALIKES, display_name
from localspec.utils.bounded_file import open_regular

_LENGTH = struct.Struct("<Q")
_MOST_HEADER_BYTES = 100_000_000
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_WHOLE = {"I64": "<i8", "I32": "<i4", "BOOL": "|b1"}
_TYPES = _FLOATS | _WHOLE
# The first bytes of what torch.save writes: an archive of pickles, or a bare pickle.
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04")


class Safetensors:
    """One file. shapes: of the tensors that can be read, by name: (rows, columns), or (size,).

    types: of all its tensors, as the format calls them. Raises ModelNotFoundError, or
    ModelLoadError for everything that is not a sound file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = display_name(path)
        try:
            with open_regular(path) as opened:
                self._bytes: NDArray[np.uint8] = np.memmap(opened, np.uint8, "r")
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"there is no file {self._name}; check the path") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ModelLoadError(f"{self._name} cannot be read: {reason}") from error
        entries = self._entries()
        self.types = {name: str(entry.get("dtype")) for name, entry in entries.items()}
        known = {name for name, type_ in self.types.items() if type_ in _TYPES}
        self._views = {name: self._view(name, entries[name]) for name in entries if name in known}
        self.shapes = {name: view.shape for name, view in self._views.items()}

    def rows(self, name: str, which: slice = slice(None)) -> NDArray[np.float32]:
        """Some rows of a matrix, or a part of a vector, as 32-bit floats."""
        values = self._views[name][which]
        if values.dtype == np.uint16:
            # BF16 is the upper half of a 32-bit float.
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def whole_numbers(self, name: str) -> NDArray[np.int64] | None:
        """All numbers of a tensor of whole numbers, (size,); None for a tensor of others."""
        if self.types[name] not in _WHOLE:
            return None
        return self._views[name].reshape(-1).astype(np.int64)

    def _entries(self) -> dict[str, dict[str, Any]]:
        """The header's entries, by the names of tensors."""
        if len(self._bytes) < _LENGTH.size:
            raise self._broken("it is too short")
        (length,) = _LENGTH.unpack(self._bytes[: _LENGTH.size].tobytes())
        self._start = _LENGTH.size + length
        if length > _MOST_HEADER_BYTES or self._start > len(self._bytes):
            first = self._bytes[:4].tobytes()
            if hint := LOOKALIKES.get(first):
                raise ModelLoadError(
                    f"{self._name} is no safetensors file, it begins with {first!r}; {hint}"
                )
            if first.startswith(_PICKLED):
                raise ModelLoadError(
                    f"{self._name} was pickled by PyTorch and is never opened here, because "
                    "unpickling can run any code; save its tensors as safetensors first"
                )
            raise self._broken(f"its header would have {length} bytes")
        try:
            entries = json.loads(self._bytes[_LENGTH.size : self._start].tobytes())
            entries.pop("__metadata__", None)
            return {name: each for name, each in entries.items() if each.get("dtype")}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise self._broken("its header is no list of tensors") from error

    def _view(self, name: str, entry: dict[str, Any]) -> NDArray[Any]:
        try:
            start, end = entry["data_offsets"]
            if not 0 <= start <= end <= len(self._bytes) - self._start:
                raise ValueError(f"bytes {start} to {end}")
            data = self._bytes[self._start + start : self._start + end]
            return data.view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._broken(f"tensor {name!r} cannot be read ({error})") from error

    def _broken(self, what: str) -> ModelLoadError:
        return ModelLoadError(
            f"{self._name} is no sound safetensors file: {what}; download it again"
        )
