"""The tables of types agree with the library that loads the files, and with the gguf package."""

import ctypes

import gguf
import pytest
from llama_cpp import _ggml

from localspec.gguf import types
from localspec.gguf.types import SCALARS, TENSOR_TYPES


@pytest.mark.parametrize("number", TENSOR_TYPES)
def test_tensor_types_are_those_of_the_library(number: int) -> None:
    library = _ggml.libggml
    name, elements, size = library.ggml_type_name, library.ggml_blck_size, library.ggml_type_size
    name.restype, elements.restype, size.restype = ctypes.c_char_p, ctypes.c_int64, ctypes.c_size_t
    expected = TENSOR_TYPES[number]
    assert name(number).decode().upper() == expected.name.upper()
    assert (elements(number), size(number)) == (expected.elements, expected.size)


def test_tensor_types_are_those_of_the_gguf_package() -> None:
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    # The package counts 40 bytes, as in an old version of ggml.
    theirs.pop(gguf.GGMLQuantizationType.Q8_1)
    assert {number: tuple(TENSOR_TYPES[number]) for number in theirs} == theirs


def test_metadata_types_are_those_of_the_gguf_package() -> None:
    numbers = {kind.name: int(kind) for kind in gguf.GGUFValueType}
    assert {name: getattr(types, name) for name in numbers} == numbers
    assert {*SCALARS} == {*numbers.values()} - {types.STRING, types.ARRAY}
