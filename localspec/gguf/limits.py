"""Limits of the numbers in a header, beyond which llama.cpp aborts, hangs or overflows.

Every check takes a header and returns what is wrong and what to do, or None.
"""

from itertools import islice

from localspec.gguf.reader import Array, Header

_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")

# Least and most, by key. llama.cpp is compiled for so many layers and experts; the other limits
# are far above any model and keep its 32-bit products from wrapping around.
_SIZES = {
    "block_count": (1, 512),
    "embedding_length": (1, 1 << 20),
    "feed_forward_length": (0, 1 << 20),
    "attention.head_count": (0, 1 << 14),
    "attention.head_count_kv": (0, 1 << 14),
    "attention.key_length": (0, 1 << 16),
    "attention.value_length": (0, 1 << 16),
    "rope.dimension_count": (0, 1 << 16),
}
_MAX_EXPERTS = 1024

# The names of architectures without attention begin so.
_WITHOUT_ATTENTION = ("mamba", "rwkv", "arwkv")
# The most common architectures that need every dimension of a head to be rotated.
_ROTATED_WHOLE = ("qwen2", "qwen2moe", "qwen3", "qwen3moe")
# For these architectures llama.cpp asserts that some layer has the sliding window.
_WINDOWED = ("gemma3", "gemma4", "gpt-oss")
# For these architectures llama.cpp takes one expert, or none, as a dense model.
_OPTIONAL_EXPERTS = ("hunyuan-dense", "hunyuan_vl")


def impossible_numbers(header: Header) -> str | None:
    """Check sizes, attention heads, rotation, the sliding window and experts."""
    return (
        _impossible_sizes(header)
        or _impossible_heads(header)
        or _impossible_rotation(header)
        or _impossible_window(header)
        or _impossible_experts(header)
    )


def largest(header: Header, key: str, default: int = 0) -> int:
    """Return a number of the architecture; where there is one per layer, the largest."""
    value = header.own(key)
    numbers = value if isinstance(value, Array) else (value,)
    return max((each for each in numbers if isinstance(each, int)), default=default)


def _impossible_sizes(header: Header) -> str | None:
    """Check what llama.cpp asserts about sizes, or multiplies in 32 bits without a check."""
    layers = largest(header, "block_count", 1)
    limits = {**_SIZES, "nextn_predict_layers": (0, layers)}
    for key, (least, most) in limits.items():
        value = header.own(key)
        for size in value if isinstance(value, Array) else (value,):
            if isinstance(size, int) and not least <= size <= most:
                return f"says {key} = {size}, which is not {least} to {most}; download it again"
    if largest(header, "context_length") == 1:
        return "says context_length = 1, which holds no text; download it again"
    scaling = header.own("rope.scaling.type")
    if scaling is not None and scaling not in _ROPE_SCALINGS:
        return f"uses the unknown rope scaling {scaling!r:.32}; download a current conversion"
    for key in ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"):
        epsilon = header.own(key)
        if isinstance(epsilon, float) and not 0 <= epsilon < 1:
            return f"says {key} = {epsilon}, which is not 0 to 1; download it again"
    return None


def _impossible_heads(header: Header) -> str | None:
    """Check that every key-value head serves the same number of query heads."""
    heads = largest(header, "attention.head_count")
    shared = largest(header, "attention.head_count_kv")
    if not heads and not header.architecture.startswith(_WITHOUT_ATTENTION):
        return "has no attention heads; download it again"
    per_layer = isinstance(header.own("attention.head_count_kv"), Array)
    if shared and not per_layer and heads % shared:
        return f"shares {shared} key-value heads among {heads} heads; download it again"
    whole = largest(header, "embedding_length") // heads if heads else 0
    key = largest(header, "attention.key_length", whole)
    value = largest(header, "attention.value_length", whole)
    # Converters write both where one is unusual.
    if key != value and whole in (key, value) and not _both_lengths(header):
        return f"has heads of {key} for keys and {value} for values; download it again"
    return None


def _both_lengths(header: Header) -> bool:
    return all(header.own(f"attention.{each}_length") is not None for each in ("key", "value"))


def _impossible_rotation(header: Header) -> str | None:
    """Check that an even number of a head's dimensions is rotated, at least 2 and at most all."""
    heads = largest(header, "attention.head_count")
    if not heads:
        return None
    sections = header.own("rope.dimension_sections")
    if isinstance(sections, Array):
        head = largest(header, "attention.key_length")
        head = head or largest(header, "embedding_length") // heads
        in_sections = sum(each for each in sections if isinstance(each, int))
        if head and in_sections > head:
            return f"rotates {in_sections} of the {head} dimensions of a head; download it again"
    for window in ("", "_swa"):
        rotated = header.own(f"rope.dimension_count{window}")
        head = largest(header, f"attention.key_length{window}")
        head = head or largest(header, "attention.key_length")
        head = head or largest(header, "embedding_length") // heads
        if not isinstance(rotated, int) or not head:
            continue
        whole = header.architecture in _ROTATED_WHOLE
        if rotated % 2 or not (head if whole else 1) <= rotated <= head:
            return f"rotates {rotated} of the {head} dimensions of a head; download it again"
    return None


def _impossible_window(header: Header) -> str | None:
    """Check that some layer has the sliding window, if there is one."""
    window = largest(header, "attention.sliding_window")
    pattern = header.own("attention.sliding_window_pattern")
    if header.architecture not in _WINDOWED or not window:
        return None
    layers = largest(header, "block_count")
    # A number says that every so many layers one is without it.
    unused = not any(islice(pattern, layers)) if isinstance(pattern, Array) else pattern == 1
    if unused:
        return f"has a sliding window of {window} tokens in none of its layers; download it again"
    return None


def _impossible_experts(header: Header) -> str | None:
    """Check what llama.cpp asserts about a mixture of experts."""
    experts = largest(header, "expert_count")
    groups = largest(header, "expert_group_count")
    groups_used = largest(header, "expert_group_used_count")
    most_used = largest(header, "expert_used_count")
    if header.architecture in _OPTIONAL_EXPERTS and experts <= 1:
        experts = most_used = 0
    if experts:
        valid = 0 < most_used <= experts <= _MAX_EXPERTS and groups < experts
    else:
        valid = most_used == groups == 0
    if groups > 1:
        valid = valid and experts % groups == 0 and 0 < groups_used < groups
    if valid:
        return None
    routing = f"{most_used} of {experts} experts and {groups_used} of {groups} expert groups"
    return f"claims to use {routing}, which cannot be; download it again"
