"""Published heads: a checkpoint's tensors in safetensors, and its config.json."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, LlamaFileType
from numpy.typing import NDArray

from localspec.errors import InvalidValueError, ModelLoadError, ModelNotFoundError
from localspec.gguf.reader import display_name
from localspec.gguf.safetensors import Safetensors
from localspec.gguf.writer import Bytes, Floats, TensorData, TensorType, encode
from localspec.utils.bounded_file import read_regular

_CHUNK = 4096
# Far above every weight, and below what 16-bit floats hold.
_MOST_WEIGHT = 6e4
_MOST_JSON_BYTES = 16 << 20
# Types that rows of floats are written in, without llama.cpp's quantiser.
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0")


def require_type(type_name: str, types: tuple[str, ...] = TYPES) -> TensorType:
    """Return the type of this name. Raises InvalidValueError for one that is not written here."""
    if type_name not in types:
        raise InvalidValueError(f"type is {type_name!r}; choose one of {', '.join(types)}")
    return TensorType[type_name]


def file_type(type_: TensorType) -> int:
    """llama.cpp's number for a file with matrices of a type."""
    name = "ALL_F32" if type_ == TensorType.F32 else f"MOSTLY_{type_.name}"
    return int(LlamaFileType[name])


def tensor_of(name: str, values: Floats, type_: TensorType) -> TensorData:
    """A tensor of values that are in memory; otherwise as `tensor_of_rows`."""
    return tensor_of_rows(name, values.shape, type_, values.__getitem__)


def tensor_of_rows(
    name: str, shape: tuple[int, ...], type_: TensorType, rows: Callable[[slice], Floats]
) -> TensorData:
    """A tensor whose rows are read while it is written; then ModelLoadError is raised for NaN.

    Vectors are F32; a matrix whose rows are no whole blocks of the type is F16, as in llama.cpp.
    """
    if len(shape) == 1:
        type_ = TensorType.F32
    elif shape[-1] % GGML_QUANT_SIZES[type_][0]:
        type_ = TensorType.F16
    return TensorData(name, shape, type_, _encoded(name, shape[0], type_, rows))


def _encoded(
    name: str, count: int, type_: TensorType, rows: Callable[[slice], Floats]
) -> Iterator[Bytes]:
    for start in range(0, count, _CHUNK):
        yield encode(_checked(name, rows(slice(start, start + _CHUNK))), type_)


def _checked(name: str, values: Floats) -> Floats:
    """The values of a tensor. Raises ModelLoadError unless they are numbers that can be written."""
    if not np.abs(values).max(initial=0) < _MOST_WEIGHT:  # nor is NaN
        raise ModelLoadError(
            f"the values of tensor {name!r} are no numbers, or beyond {_MOST_WEIGHT:g}; download "
            "it again"
        )
    return values


@dataclass(frozen=True, slots=True)
class PublishedTensor:
    """A tensor as it was published."""

    file: Safetensors
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns), or (size,)."""
        return self.file.shapes[self.name]

    def rows(self, which: slice = slice(None)) -> Floats:
        """Rows of a matrix, or a part of a vector.

        Raises ModelLoadError where they cannot be written, by the name that was published.
        """
        return _checked(self.name, self.file.rows(self.name, which))

    def whole_numbers(self) -> NDArray[np.int64] | None:
        """All numbers of a tensor of whole numbers; None for one of floats."""
        return self.file.whole_numbers(self.name)

    def written(self, name: str, type_: TensorType) -> TensorData:
        """The tensor of the GGUF."""
        return tensor_of_rows(name, self.shape, type_, self.rows)


class Checkpoint:
    """A folder with config.json and *.safetensors, or one such file with config.json beside it.

    tensors: by their names. types: of all tensors, those included that cannot be read here. config:
    empty where there is none. Raises ModelNotFoundError, or ModelLoadError for a checkpoint that is
    not whole, or was pickled: that is never opened.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.name = display_name(source)
        self.files = self._files()
        self.tensors: dict[str, PublishedTensor] = {}
        self.types: dict[str, str] = {}
        for file in map(Safetensors, self.files):
            self.tensors |= {name: PublishedTensor(file, name) for name in file.shapes}
            self.types |= file.types
        self._require_named_tensors()
        self.config = _json(self._folder / "config.json")

    @property
    def _folder(self) -> Path:
        return self.source if self.source.is_dir() else self.source.parent

    def sha256(self) -> list[str]:
        """The hash of each file, in the order of their names."""
        found = []
        for path in self.files:
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
        return found

    def _files(self) -> list[Path]:
        if not self.source.is_dir():
            return [self.source]
        files = sorted(self.source.glob("*.safetensors"))
        if not files:
            raise self._without_safetensors()
        named = set(self._index().values())
        if missing := sorted(named - {file.name for file in files}):
            raise ModelLoadError(f"{self.name} lacks {missing[0]}; download every part of it")
        return files

    def _index(self) -> dict[str, str]:
        """The files of all tensors, by the indices in the folder."""
        found = dict[str, str]()
        for index in sorted(self.source.glob("*.safetensors.index.json")):
            named = _json(index).get("weight_map")
            if isinstance(named, dict):
                found |= {str(name): str(file) for name, file in named.items()}
        return found

    def _require_named_tensors(self) -> None:
        """Raise ModelLoadError where a file lacks a tensor that the index names."""
        index = self._index() if self.source.is_dir() else {}
        for name, file in index.items():
            if name not in self.types:
                raise ModelLoadError(
                    f"{self.name} has no tensor {name} in {file}, where its index names it; "
                    "download every part of it"
                )

    def _without_safetensors(self) -> Exception:
        pickled = sorted(
            path.name for ending in ("bin", "pt", "pth") for path in self.source.glob(f"*.{ending}")
        )
        if pickled:
            return ModelLoadError(
                f"{self.name} has no *.safetensors, and {display_name(pickled[0])} is pickled, "
                "which is never opened here, because unpickling can run any code; save a .pt or "
                ".bin file as such first"
            )
        return ModelNotFoundError(
            f"{self.name} has no *.safetensors; pass the folder of a published head"
        )


def _json(path: Path) -> Mapping[str, object]:
    """The object in a JSON file; empty without one.

    Raises ModelLoadError for a file that is no JSON.
    """
    try:
        found = json.loads(read_regular(path, _MOST_JSON_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelLoadError(
            f"{display_name(path)} cannot be read ({reason}); download it again"
        ) from error
    return found if isinstance(found, dict) else {}
