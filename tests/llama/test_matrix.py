"""Matrices that ggml multiplies are those that the file says."""

import gc
import threading

import gguf
import numpy as np
import pytest

from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama import compute_thread, library, matrix
from localspec.llama.matrix import ALIGNMENT, Matrix

Type = gguf.GGMLQuantizationType
# The error of the product, whose vector the quantised kernels round to 8 bits.
TYPES = {"F32": 1e-5, "F16": 2e-3, "BF16": 2e-2, "Q8_0": 2e-2, "Q4_0": 3e-2, "Q6_K": 3e-2}


def encoded(values: np.ndarray, kind: str) -> np.ndarray:
    """The rows in a file's encoding, at a place that suits the library."""
    if kind == "Q6_K":  # the package only decodes it: any bytes are weights, but for the scales
        size = 210
        blocks = np.random.default_rng(1).integers(0, 256, (values.size // 256, size), np.uint8)
        blocks[:, -2:] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        rows = blocks.reshape(len(values), -1)
    else:
        rows = np.ascontiguousarray(gguf.quants.quantize(values, Type[kind])).view(np.uint8)
    memory = np.zeros(rows.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    memory[start : start + rows.nbytes] = rows.reshape(-1)
    return memory[start : start + rows.nbytes]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_products(kind: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((283, 256)).astype(np.float32)
    data = encoded(values, kind)
    decoded = gguf.quants.dequantize(data.reshape(283, -1), Type[kind])
    if kind in ("F32", "F16"):
        decoded = data.view(kind.lower().replace("f", "float")).reshape(283, -1)
    product = Matrix(data, Type[kind], rows=283, columns=256, threads=threads)
    for _ in range(3):
        vector = rng.standard_normal(256).astype(np.float32)
        expected = decoded.astype(np.float64) @ vector
        found = product.times(vector)
        assert found.shape == (283,)
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() < TYPES[kind] * np.abs(expected).max()


def test_products_of_several_threads() -> None:
    compute_thread.start()
    rng = np.random.default_rng(0)
    values = rng.standard_normal((64, 32)).astype(np.float32)
    product = Matrix(encoded(values, "F32"), 0, rows=64, columns=32, threads=2)
    wrong: list[int] = []

    def multiply(number: int) -> None:
        vector = np.random.default_rng(number).standard_normal(32).astype(np.float32)
        expected = values @ vector
        for _ in range(50):
            if np.abs(product.times(vector) - expected).max() > 1e-4:
                wrong.append(number)

    threads = [threading.Thread(target=multiply, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_matrices_are_freed() -> None:
    data = encoded(np.ones((4, 32), np.float32), "F32")
    for _ in range(300):
        Matrix(data, 0, rows=4, columns=32, threads=1)
    gc.collect()
    assert Matrix(data, 0, rows=4, columns=32, threads=1).times(np.ones(32, np.float32))[3] == 32


def test_a_place_that_does_not_suit_is_refused() -> None:
    data = encoded(np.ones((4, 32), np.float32), "F32")
    with pytest.raises(LocalspecError, match="between 32s"):
        Matrix(data[4:], 0, rows=3, columns=32, threads=1)


def test_data_of_another_size_is_refused() -> None:
    with pytest.raises(LocalspecError, match="has 128 bytes, and 16384 are needed"):
        Matrix(encoded(np.ones((1, 32), np.float32), "F32"), 0, rows=64, columns=64, threads=1)


def test_a_build_without_the_functions_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "symbol", lambda *_: None)
    matrix._function.cache_clear()
    try:
        with pytest.raises(ModelLoadError, match="lacks ggml_init"):
            matrix.require_functions()
    finally:
        matrix._function.cache_clear()
