"""The GGUF writer: numbers of every size come back as they were."""

import math
from pathlib import Path

import gguf
import pytest

from localspec.gguf.reader import read_header
from localspec.gguf.writer import write_gguf


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, "UINT32"),
        (2**32 - 1, "UINT32"),
        (8_000_000_000, "UINT64"),
        (2**64 - 1, "UINT64"),
        (-1, "INT32"),
        (-(2**31), "INT32"),
        (-(2**40), "INT64"),
        (0.5, "FLOAT32"),
        (-1e300, "FLOAT64"),
        (math.inf, "FLOAT32"),
        (True, "BOOL"),
        ("text", "STRING"),
    ],
)
def test_a_value_comes_back_in_a_type_that_holds_it(
    tmp_path: Path, value: object, kind: str
) -> None:
    path = tmp_path / "numbers.gguf"
    write_gguf(path, "llama", {"own.value": value}, [])
    assert read_header(path).metadata["own.value"] == value
    field = gguf.GGUFReader(path).fields["own.value"]
    assert field.types == [gguf.GGUFValueType[kind]]
