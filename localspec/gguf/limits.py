"""Limits of the numbers in a header, beyond which llama.cpp aborts, hangs or overflows.

Every check takes a header and returns what is wrong and what to do, or None.
"""

from itertools import islice

from localspec.gguf.attention_sizes import impossible_attention
from localspec.gguf.reader import Array, Header
from localspec.gguf.state_sizes import impossible_states

_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")

_MAX_EXPERTS = 1024
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
    # What it divides by.
    "full_attention_interval": (1, 1 << 16),
    "experts_per_group": (1, _MAX_EXPERTS),
}

# For these architectures llama.cpp asserts that some layer has the sliding window.
_WINDOWED = ("gemma3", "gemma4", "gpt-oss")
# For these architectures llama.cpp takes one expert, or none, as a dense model.
_OPTIONAL_EXPERTS = ("hunyuan-dense", "hunyuan_vl")


def impossible_numbers(header: Header) -> str | None:
    """Check sizes, attention, running states, the sliding window and experts."""
    return (
        _impossible_sizes(header)
        or impossible_attention(header)
        or impossible_states(header)
        or _impossible_window(header)
        or _impossible_experts(header)
    )


def _impossible_sizes(header: Header) -> str | None:
    """Check what llama.cpp asserts about sizes, or multiplies in 32 bits without a check."""
    layers = header.largest("block_count", 1)
    limits = {**_SIZES, "nextn_predict_layers": (0, layers)}
    for key, (least, most) in limits.items():
        value = header.own(key)
        for size in value if isinstance(value, Array) else (value,):
            if isinstance(size, int) and not least <= size <= most:
                return f"says {key} = {size}, which is not {least} to {most}; download it again"
    if header.architecture == "ernie4_5-moe" and header.number("interleave_moe_layer_step") == 0:
        return "says interleave_moe_layer_step = 0, which is not 1 or more; download it again"
    if header.largest("context_length") == 1:
        return "says context_length = 1, which holds no text; download it again"
    scaling = header.own("rope.scaling.type")
    if scaling is not None and scaling not in _ROPE_SCALINGS:
        return f"uses the unknown rope scaling {scaling!r:.32}; download a current conversion"
    for key in ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"):
        epsilon = header.own(key)
        if isinstance(epsilon, float) and not 0 <= epsilon < 1:
            return f"says {key} = {epsilon}, which is not 0 to 1; download it again"
    return None


def _impossible_window(header: Header) -> str | None:
    """Check that some layer has the sliding window, if there is one."""
    window = header.largest("attention.sliding_window")
    pattern = header.own("attention.sliding_window_pattern")
    if header.architecture not in _WINDOWED or not window:
        return None
    layers = header.largest("block_count")
    # A number says that every so many layers one is without it.
    unused = not any(islice(pattern, layers)) if isinstance(pattern, Array) else pattern == 1
    if unused:
        return f"has a sliding window of {window} tokens in none of its layers; download it again"
    return None


def _impossible_experts(header: Header) -> str | None:
    """Check what llama.cpp asserts about a mixture of experts."""
    experts = header.largest("expert_count")
    groups = header.largest("expert_group_count")
    groups_used = header.largest("expert_group_used_count")
    most_used = header.largest("expert_used_count")
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
