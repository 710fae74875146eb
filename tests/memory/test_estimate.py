"""What a context needs, worked out from headers of several kinds."""

import tracemalloc
from collections.abc import Callable

import pytest

from localspec.errors import ModelLoadError
from localspec.gguf.reader import Header
from localspec.memory.estimate import cache_bytes, require_room

DENSE = {
    "block_count": 32,
    "embedding_length": 4096,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
}


def header(**more: object) -> Header:
    own = {f"llama.{key}": value for key, value in {**DENSE, **more}.items()}
    return Header(3, {"general.architecture": "llama", **own}, ())


def test_grouped_heads() -> None:
    # Llama 3 8B: 128 KiB per token.
    assert cache_bytes(header(), 8192) == 8192 * 128 * 1024


def test_heads_of_their_own_width() -> None:
    wide = header(**{"attention.key_length": 256, "attention.value_length": 64})
    assert cache_bytes(wide, 1) == 32 * 8 * (256 + 64) * 2


@pytest.mark.parametrize(
    ("kv_type", "bytes_of_32"), [("f32", 128), ("bf16", 64), ("q8_0", 34), ("q4_0", 18)]
)
def test_types_of_cache(kv_type: str, bytes_of_32: int) -> None:
    assert cache_bytes(header(), 1, kv_type) == 32 * 8 * (128 + 128) // 32 * bytes_of_32


def test_layers_without_attention_cost_nothing() -> None:
    per_layer = [0] * 28 + [8] * 4
    assert cache_bytes(header(**{"attention.head_count_kv": per_layer}), 1) == 4 * 8 * 256 * 2


def test_layers_without_end_take_no_memory_to_count() -> None:
    tracemalloc.start()
    assert cache_bytes(header(block_count=300_000_000), 1) == 300_000_000 * 8 * 256 * 2
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


@pytest.mark.parametrize("key", ["attention.kv_lora_rank", "full_attention_interval"])
def test_no_figure_where_it_would_be_wrong(key: str) -> None:
    assert cache_bytes(header(**{key: 4}), 8192) is None
    require_room(header(**{key: 4}), "model.gguf", 2**31 - 1)


def test_where_a_window_forgets_the_library_is_asked() -> None:
    windowed = header(**{"attention.sliding_window": 1024})
    asked = []

    def measured(needed: int | None) -> Callable[[], int | None]:
        return lambda: asked.append(needed) or needed

    require_room(windowed, "model.gguf", 8192, measured=measured(2**45))  # there is room for all
    require_room(header(), "model.gguf", 8192, measured=measured(2**45))
    assert not asked
    require_room(windowed, "model.gguf", 2**24, measured=measured(2**20))
    assert asked == [2**20]
    with pytest.raises(ModelLoadError, match=r"needs 35\.18 TB .* try context=\d+$"):
        require_room(windowed, "model.gguf", 2**24, measured=measured(2**45))
    for unknown in (windowed, header()):  # without a window nothing is asked
        with pytest.raises(ModelLoadError, match=r"needs 2\.20 TB"):
            require_room(unknown, "model.gguf", 2**24, measured=measured(None))
    assert asked == [2**20, 2**45, None]


def test_a_file_that_does_not_tell() -> None:
    assert cache_bytes(Header(3, {"general.architecture": "llama"}, ()), 8192) is None


def test_a_context_beyond_memory_is_refused_with_one_that_fits() -> None:
    with pytest.raises(ModelLoadError, match=r"needs 281\.47 TB .* try context=\d+$"):
        require_room(header(), "model.gguf", 2**31 - 1)
