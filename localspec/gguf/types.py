"""The numbers of GGUF's metadata types and of ggml's tensor types, with their sizes.

The gguf package has the same tables, but takes longer to import than `localspec ls` to run, and it
may be older than the library. Tests compare the tables with that package and with the library.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = (
    range(13)
)

# The layout of each scalar in the file. A bool is one byte, of which any but zero is true.
SCALARS: Mapping[int, struct.Struct] = MappingProxyType(
    {
        kind: struct.Struct(f"<{code}")
        for kind, code in {
            UINT8: "B",
            INT8: "b",
            UINT16: "H",
            INT16: "h",
            UINT32: "I",
            INT32: "i",
            FLOAT32: "f",
            BOOL: "?",
            UINT64: "Q",
            INT64: "q",
            FLOAT64: "d",
        }.items()
    }
)


class TensorType(NamedTuple):
    """A ggml type. elements: numbers per block. size: bytes per block."""

    name: str
    elements: int
    size: int


# The missing numbers are those of types that ggml has removed.
TENSOR_TYPES: Mapping[int, TensorType] = MappingProxyType(
    {
        0: TensorType("F32", 1, 4),
        1: TensorType("F16", 1, 2),
        2: TensorType("Q4_0", 32, 18),
        3: TensorType("Q4_1", 32, 20),
        6: TensorType("Q5_0", 32, 22),
        7: TensorType("Q5_1", 32, 24),
        8: TensorType("Q8_0", 32, 34),
        9: TensorType("Q8_1", 32, 36),
        10: TensorType("Q2_K", 256, 84),
        11: TensorType("Q3_K", 256, 110),
        12: TensorType("Q4_K", 256, 144),
        13: TensorType("Q5_K", 256, 176),
        14: TensorType("Q6_K", 256, 210),
        15: TensorType("Q8_K", 256, 292),
        16: TensorType("IQ2_XXS", 256, 66),
        17: TensorType("IQ2_XS", 256, 74),
        18: TensorType("IQ3_XXS", 256, 98),
        19: TensorType("IQ1_S", 256, 50),
        20: TensorType("IQ4_NL", 32, 18),
        21: TensorType("IQ3_S", 256, 110),
        22: TensorType("IQ2_S", 256, 82),
        23: TensorType("IQ4_XS", 256, 136),
        24: TensorType("I8", 1, 1),
        25: TensorType("I16", 1, 2),
        26: TensorType("I32", 1, 4),
        27: TensorType("I64", 1, 8),
        28: TensorType("F64", 1, 8),
        29: TensorType("IQ1_M", 256, 56),
        30: TensorType("BF16", 1, 2),
        34: TensorType("TQ1_0", 256, 54),
        35: TensorType("TQ2_0", 256, 66),
        39: TensorType("MXFP4", 32, 17),
        40: TensorType("NVFP4", 64, 36),
        41: TensorType("Q1_0", 128, 18),
        42: TensorType("Q2_0", 64, 18),
    }
)
