"""The tables of types agree with the library that loads the files, and with the gguf package."""

import ctypes

import gguf
import pytest

from localspec.gguf import types
from localspec.gguf.types import SCALARS, TENSOR_TYPES
from localspec.llama.library import symbol


@pytest.mark.parametrize("number", TENSOR_TYPES)
def test_tensor_types_are_those_of_the_library(number: int) -> None:
    number_type = ctypes.c_int
    name = symbol("ggml_type_name", ctypes.c_char_p, number_type)
    elements = symbol("ggml_blck_size", ctypes.c_int64, number_type)
    size = symbol("ggml_type_size", ctypes.c_size_t, number_type)
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
