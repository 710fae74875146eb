"""Models with one set of rotations for short texts, and another for long ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.tiny import write_tiny

from localspec.gguf.check import check_generative
from localspec.gguf.long_rope import most_texts, rotated_alike, short_limit
from localspec.gguf.reader import Header


@pytest.fixture
def header(tmp_path: Path) -> Header:
    plain = check_generative(write_tiny(tmp_path / "llama.gguf", "llama"))
    assert (short_limit(plain), most_texts(plain, 4096)) == (None, None)
    factors = replace(plain.tensors[0], name="rope_factors_short.weight")
    limit = {"llama.rope.scaling.original_context_length": 4096}
    return replace(plain, metadata={**plain.metadata, **limit}, tensors=(*plain.tensors, factors))


@pytest.mark.parametrize(
    ("n_ctx", "texts"), [(1024, 4), (1025, 3), (2049, 1), (4096, 1), (4097, None)]
)
def test_a_cache_keeps_the_rotations_of_one_text(
    header: Header, n_ctx: int, texts: int | None
) -> None:
    assert most_texts(header, n_ctx) == texts


@pytest.mark.parametrize(
    ("n_ctx", "cached", "expected"),
    [(200, 4096, 200), (5000, 4096, 4096), (200, 4097, 4097), (5000, 8192, 5000)],
)
def test_a_cache_of_another_size_rotates_alike(
    header: Header, n_ctx: int, cached: int, expected: int
) -> None:
    assert rotated_alike(header, n_ctx, cached) == expected
    assert rotated_alike(replace(header, tensors=header.tensors[:-1]), n_ctx, cached) == n_ctx
