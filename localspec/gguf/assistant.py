"""Assistant: a head of Gemma 4 that reads the keys and values in its target's own KV cache.

Each layer of an assistant is of one kind, with a sliding window or without, and reads the cache of
the target's last layer of this kind: the last but one has a window, the last has none.
"""

from pathlib import Path

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.reader import Array, Header, display_name
from localspec.utils.option_names import options

# The kind of head, and its architecture and that of its target in llama.cpp's words.
ASSISTANT, ARCHITECTURE, TARGET = "assistant", "gemma4-assistant", "gemma4"
_WINDOWS, _HEADS = "attention.sliding_window_pattern", "attention.head_count_kv"
_WIDTH = "embedding_length_out"


def width_of(path: Path, header: Header) -> int:
    """The numbers in a row of an assistant's target. Raises ModelLoadError for a broken file."""
    layers, count = header.number("block_count"), header.number("nextn_predict_layers")
    width = header.number(_WIDTH)
    if not width:
        raise ModelLoadError(
            f"{display_name(path)} does not say how wide the rows of its target are "
            f"({ARCHITECTURE}.{_WIDTH}); download a current conversion"
        )
    if layers != count:
        raise ModelLoadError(
            f"{display_name(path)} has {layers} layers, of which {count or 0} draft "
            f"({ARCHITECTURE}.nextn_predict_layers); download a current conversion"
        )
    return width


def require_shared_layers(path: Path, header: Header, target_path: Path, target: Header) -> None:
    """Raise DrafterMismatchError where the target's cache is not what the assistant's layers read.

    llama.cpp would read beyond the keys of another shape.
    """
    name, target_name = display_name(path.name), display_name(target_path.name)
    if target.architecture != TARGET:
        raise DrafterMismatchError(
            f"{name} is an assistant of {TARGET} models, and {target_name} is "
            f"{target.architecture}; use {options(draft='suffix')}"
        )
    for layer in range(header.number("block_count") or 0):
        window = _has_window(header, layer)
        read = (target.number("block_count") or 0) - (2 if window else 1)
        if _has_window(target, read) != window:
            kinds = "with a sliding window" if window else "without a sliding window"
            raise DrafterMismatchError(
                f"{name} reads layer {read} of its target as one {kinds}, which that of "
                f"{target_name} is not; {_remedy()}"
            )
        wanted, found = _keys(header, layer, window=window), _keys(target, read, window=window)
        if wanted != found:
            raise DrafterMismatchError(
                f"{name} reads {_shape(wanted)} in layer {read} of its target, and {target_name} "
                f"has {_shape(found)}; {_remedy()}"
            )


def _has_window(header: Header, layer: int) -> bool:
    pattern = header.own(_WINDOWS)
    known = isinstance(pattern, Array) and 0 <= layer < len(pattern)
    return bool(known and pattern[layer])  # type: ignore[index]


def _keys(header: Header, layer: int, *, window: bool) -> tuple[int, ...]:
    """The key-value heads of a layer, and the numbers in a key and in a value."""
    count = header.own(_HEADS) or header.own("attention.head_count")
    if isinstance(count, Array):
        count = count[layer] if layer < len(count) else 0
    ending = "_swa" if window else ""
    lengths = [header.number(f"attention.{each}_length{ending}") for each in ("key", "value")]
    return (count if isinstance(count, int) else 0, *(each or 0 for each in lengths))


def _shape(keys: tuple[int, ...]) -> str:
    heads, key, value = keys
    return f"{heads} key-value heads of {key} and {value} numbers"


def _remedy() -> str:
    return f"use the assistant that was made for this model, or {options(draft='suffix')}"
