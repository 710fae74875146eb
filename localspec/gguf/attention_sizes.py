"""Attention heads of a header that llama.cpp loads, and then ends on.

Every check takes a header and returns what is wrong and what to do, or None.
"""

from localspec.gguf.reader import Array, Header

# The names of architectures without attention begin so.
_WITHOUT_ATTENTION = ("mamba", "rwkv", "arwkv")
# Architectures whose graph asserts that every dimension of a head is rotated, or that makes its
# tensors as if it were so.
_ROTATED_WHOLE = (
    "apertus arcee arctic baichuan bailingmoe chameleon codeshell cogvlm cohere2moe dbrx deci "
    "deepseek dots1 ernie4_5 ernie4_5-moe exaone exaone-moe exaone4 falcon gpt-oss granite "
    "granite_swa granitemoe graniteswitch grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 "
    "internlm2 jais2 llama llama4 maincoder mellum minicpm mistral3 olmo olmo2 olmoe orion "
    "paddleocr pangu-embedded plamo qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe "
    "seed_oss smallthinker smollm3 starcoder2 talkie xverse"
)
# Others whose graph asserts that keys are as long as values.
_ALIKE = (
    "afmoe bailingmoe2 bitnet bloom chatglm cohere2 command-r glm4 glm4moe gpt2 gptneox "
    "granitehybrid jais laguna lfm2 lfm2moe minimax-01 minimax-m2 minimax-m3 mpt muse-glimmer "
    "nanbeige nemotron nemotron_h nemotron_h_moe openelm phi2 phi3 phimoe qwen qwen35 qwen35moe "
    "qwen3next qwen4exp refact spark2_5 stablelm starcoder"
)

# Those that rotate nothing: their converters write 0 dimensions, or leave the number out.
_NOT_ROTATED = (
    "arwkv7 bloom glm5-next gpt2 jais jamba kimi-k3 kimi-linear mamba mamba2 mpt nemotron_h "
    "nemotron_h_moe refact rwkv6 rwkv6qwen2 rwkv7"
)


def impossible_attention(header: Header) -> str | None:
    """Check how many heads there are, how long they are, and how much of them is rotated."""
    return _impossible_heads(header) or _impossible_rotation(header)


def _impossible_heads(header: Header) -> str | None:
    """Check that every key-value head serves the same number of query heads."""
    heads = header.largest("attention.head_count")
    shared = header.largest("attention.head_count_kv")
    if not heads and not header.architecture.startswith(_WITHOUT_ATTENTION):
        return "has no attention heads; download it again"
    per_layer = isinstance(header.own("attention.head_count_kv"), Array)
    if shared and not per_layer and heads % shared:
        return f"shares {shared} key-value heads among {heads} heads; download it again"
    whole = header.largest("embedding_length") // heads if heads else 0
    key = header.largest("attention.key_length", whole)
    value = header.largest("attention.value_length", whole)
    # Converters write both where one is unusual.
    alike = header.architecture in f"{_ALIKE} {_ROTATED_WHOLE}".split()
    if key != value and (alike or (whole in (key, value) and not _both_lengths(header))):
        return f"has heads of {key} for keys and {value} for values; download it again"
    return None


def _both_lengths(header: Header) -> bool:
    return all(header.own(f"attention.{each}_length") is not None for each in ("key", "value"))


def _impossible_rotation(header: Header) -> str | None:
    """Check that an even number of a head's dimensions is rotated, at least 2 and at most all.

    None of those may be, of an architecture that rotates nothing.
    """
    heads = header.largest("attention.head_count")
    if not heads:
        return None
    sections = header.own("rope.dimension_sections")
    if isinstance(sections, Array):
        head = header.largest("attention.key_length")
        head = head or header.largest("embedding_length") // heads
        in_sections = sum(each for each in sections if isinstance(each, int))
        if not any(sections[:3]):
            return "rotates no dimension of a head; download it again"
        if head and in_sections > head:
            return f"rotates {in_sections} of the {head} dimensions of a head; download it again"
    for window in ("", "_swa"):
        rotated = header.own(f"rope.dimension_count{window}")
        head = header.largest(f"attention.key_length{window}")
        head = head or header.largest("attention.key_length")
        head = head or header.largest("embedding_length") // heads
        if not isinstance(rotated, int) or not head:
            continue
        if not rotated and header.architecture in _NOT_ROTATED.split():
            continue
        whole = header.architecture in _ROTATED_WHOLE.split() and not window
        if rotated % 2 or not (head if whole else 1) <= rotated <= head:
            return f"rotates {rotated} of the {head} dimensions of a head; download it again"
    return None
