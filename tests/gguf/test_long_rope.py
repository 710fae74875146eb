"""Models with one set of rotations for short texts, and another for long ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.tiny import write_tiny

from localspec.gguf.check import check_generative
from localspec.gguf.long_rope import most_texts, short_limit
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
