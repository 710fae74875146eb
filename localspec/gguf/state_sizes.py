"""Running states of a header that llama.cpp loads, and then ends on.

Every check takes a header and returns what is wrong and what to do, or None.
"""

from localspec.gguf.reader import Header

# Architectures by how their states are cut into heads: Mamba 2, and the gated delta rule.
_MAMBA_2 = ("mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe", "plamo2")
_DELTA = ("qwen35", "qwen35moe", "qwen3next")
_SHIFTING = ("rwkv6", "rwkv7")
_CONVOLVING = ("lfm2", "lfm2moe")


def impossible_states(header: Header) -> str | None:
    """Check that states consist of whole heads, and heads of whole groups."""
    return _impossible_heads(header) or _impossible_shift(header)


def _impossible_heads(header: Header) -> str | None:
    keys = ("inner_size", "time_step_rank", "group_count", "state_size")
    inner, heads, groups, head = (header.number(f"ssm.{key}") for key in keys)
    if inner is None or heads is None or groups is None or head is None:
        return None  # llama.cpp itself says which is missing
    if header.architecture in _MAMBA_2:
        whole = heads > 0 and inner % heads == 0 and (groups == 0 or inner % groups == 0)
    elif header.architecture in _DELTA:
        whole = groups > 0 and heads % groups == 0 and inner == heads * head
    else:
        whole = True
    if whole:
        return None
    return (
        f"has states of {inner} in {heads} heads and {groups} groups, which cannot be; "
        "download it again"
    )


def _impossible_shift(header: Header) -> str | None:
    """Check the tokens that RWKV and short convolutions look back at, and the heads of RWKV."""
    name, width = header.architecture, header.largest("embedding_length")
    shifted, kernel = header.number("token_shift_count"), header.number("shortconv.l_cache")
    if name in _SHIFTING and shifted not in (None, 2):
        return f"shifts {shifted} tokens, not 2; download it again"
    if name in _CONVOLVING and kernel is not None and kernel < 2:
        return f"convolves {kernel} tokens; download it again"
    head = header.number("wkv.head_size")
    if head is not None and (head < 1 or width % head):
        return f"has states of {width} in heads of {head}; download it again"
    return None
