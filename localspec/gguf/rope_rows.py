"""The order of rows in query and key matrices, which llama.cpp's RoPE needs."""

from localspec.gguf.writer import Floats


def interleaved(weight: Floats, heads: int) -> Floats:
    """Rows in the order of llama.cpp's RoPE, which turns neighbours and not halves of a head."""
    rows, width = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, width)
    return halves.swapaxes(1, 2).reshape(rows, width)


def in_halves(weight: Floats, heads: int) -> Floats:
    """Rows of each head as two halves, which undoes `interleaved`."""
    rows, width = weight.shape
    neighbours = weight.reshape(heads, rows // heads // 2, 2, width)
    return neighbours.swapaxes(1, 2).reshape(rows, width)
