"""Refuses the GGUF files that are sound but cannot generate text, or would crash llama.cpp.

Every check takes a header and returns what is wrong with it and the way out, or None.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.models.gguf import Array, Header, TensorInfo, display_name, read_header
from localspec.models.gguf_types import STRING, TENSOR_TYPES

_TEXT_MODEL = "pass a text-generation model"
_EMBEDDING = f"is an embedding model and cannot generate text; {_TEXT_MODEL}"
_DIFFUSION = f"is a diffusion model, which does not write token by token; {_TEXT_MODEL}"
_SPEECH = f"is a speech model; {_TEXT_MODEL}"
_DRAFT_HEAD = "is a draft head that runs only inside its own target; pass a complete model"
_MMPROJ = "is an image or audio encoder (mmproj); pass the language model it belongs to"

_TYPES = {
    "adapter": "is an adapter, not a model; merge it into its base model and pass that",
    "mmproj": _MMPROJ,
    "imatrix": f"is an importance matrix, not a model; {_TEXT_MODEL}",
}

_ARCHITECTURES = {
    "clip": _MMPROJ,
    "t5": "is an encoder-decoder model, and encoder-decoder models are not supported; "
    "pass a decoder-only model",
    **dict.fromkeys(("bert", "modern-bert", "neo-bert", "eurobert", "t5encoder"), _EMBEDDING),
    **dict.fromkeys(("nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3"), _EMBEDDING),
    **dict.fromkeys(("gemma-embedding", "llama-embed"), _EMBEDDING),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    **dict.fromkeys(("wavtokenizer-dec", "qwen3tts", "pockettts"), _SPEECH),
    **dict.fromkeys(("eagle3", "dflash", "gemma4-assistant"), _DRAFT_HEAD),
}

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

# Tensor types llama.cpp has no kernel for, or only as tables of numbers.
_NEVER_COMPUTED = ("Q8_1", "Q8_K", "I8", "I16", "F64")
_TABLES = ("I32", "I64")


def check_generative(path: str | os.PathLike[str]) -> Header:
    """Read the header at `path` and refuse a file that cannot generate text.

    Raises ModelNotFoundError or ModelLoadError. A split model is named by its first part.
    """
    header = read_header(path)
    _refuse(path, _wrong_kind(header) or _wrong_part(header))
    tensors = [*header.tensors, *_tensors_of_other_parts(Path(path), header)]
    _refuse(
        path,
        _no_weights(tensors)
        or _no_tokenizer(header)
        or _impossible_sizes(header)
        or _impossible_heads(header)
        or _impossible_experts(header)
        or _unusable_tensor(tensors),
    )
    return header


def _refuse(path: str | os.PathLike[str], problem: str | None) -> None:
    if problem:
        raise ModelLoadError(f"{display_name(path)} {problem}")


def _wrong_kind(header: Header) -> str | None:
    kind = header.metadata.get("general.type")
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind]
    if not header.architecture:
        return "does not name its architecture; download a current conversion"
    if header.architecture in _ARCHITECTURES:
        return _ARCHITECTURES[header.architecture]
    # Pooling type 0 means none; the others squeeze the whole text into one vector.
    if _number(header, "pooling_type") or _own(header, "attention.causal") is False:
        return _EMBEDDING
    return None


def _wrong_part(header: Header) -> str | None:
    number, count = header.metadata.get("split.no", 0), header.metadata.get("split.count", 1)
    if number:
        return f"is not the first part of a split model of {count}; pass the part named -00001-of-"
    return None


def _tensors_of_other_parts(path: Path, header: Header) -> Iterator[TensorInfo]:
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or count < 2:
        return
    ending = f"-00001-of-{count:05}.gguf"
    if not path.name.endswith(ending):
        _refuse(path, f"is the first of {count} parts, so its name must end in {ending}")
    for number in range(1, count):
        name = f"{path.name.removesuffix(ending)}-{number + 1:05}-of-{count:05}.gguf"
        try:
            part = read_header(path.with_name(name))
        except ModelNotFoundError as error:
            raise ModelLoadError(
                f"{display_name(path)} needs {display_name(name)} beside it; download every part"
            ) from error
        if part.metadata.get("split.no") != number:
            _refuse(name, f"is not part {number + 1} of the model; download it again")
        yield from part.tensors


def _no_weights(tensors: list[TensorInfo]) -> str | None:
    if tensors:
        return None
    return f"holds a vocabulary only, without weights; {_TEXT_MODEL}"


def _no_tokenizer(header: Header) -> str | None:
    if header.metadata.get("tokenizer.ggml.model") in (None, "none", "no_vocab"):
        return "has no tokenizer; download a conversion that includes it"
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Array) or tokens.kind != STRING or not len(tokens):
        return "has a tokenizer without tokens; download it again"
    # llama.cpp ends a token at its first NUL, gives empty ones a name, and aborts on two alike.
    texts = {text.partition("\0")[0] or f"[EMPTY_{number}]" for number, text in enumerate(tokens)}
    if len(texts) < len(tokens):
        return "lists the same token twice in its vocabulary; download it again"
    return None


def _impossible_sizes(header: Header) -> str | None:
    """What llama.cpp asserts about sizes, or multiplies in 32 bits without looking."""
    layers = _number(header, "block_count", 1)
    limits = {**_SIZES, "nextn_predict_layers": (0, layers)}
    for key, (least, most) in limits.items():
        value = _own(header, key)
        for size in value if isinstance(value, Array) else (value,):
            if isinstance(size, int) and not least <= size <= most:
                return f"says {key} = {size}, which is not {least} to {most}; download it again"
    scaling = _own(header, "rope.scaling.type")
    if scaling is not None and scaling not in _ROPE_SCALINGS:
        return f"uses the unknown rope scaling {scaling!r:.32}; download a current conversion"
    for key in ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"):
        epsilon = _own(header, key)
        if isinstance(epsilon, float) and not 0 <= epsilon < 1:
            return f"says {key} = {epsilon}, which is not 0 to 1; download it again"
    return None


def _impossible_heads(header: Header) -> str | None:
    """Every key-value head must serve the same number of query heads, or llama.cpp aborts."""
    heads = _number(header, "attention.head_count")
    shared = _number(header, "attention.head_count_kv")
    if shared and heads % shared:
        return f"shares {shared} key-value heads among {heads} heads; download it again"
    return None


# llama.cpp takes one expert, or none, for a dense model of these architectures.
_OPTIONAL_EXPERTS = ("hunyuan-dense", "hunyuan_vl")


def _impossible_experts(header: Header) -> str | None:
    """What llama.cpp asserts about a mixture of experts."""
    experts = _number(header, "expert_count")
    groups = _number(header, "expert_group_count")
    groups_used = _number(header, "expert_group_used_count")
    used = _own(header, "expert_used_count")
    per_layer = used if isinstance(used, Array) else (used,)
    most_used = max((count for count in per_layer if isinstance(count, int)), default=0)
    if header.architecture in _OPTIONAL_EXPERTS and experts <= 1:
        experts = most_used = 0
    if experts:
        sound = 0 < most_used <= experts <= _MAX_EXPERTS and groups < experts
    else:
        sound = most_used == groups == 0
    if groups > 1:
        sound = sound and experts % groups == 0 and 0 < groups_used < groups
    if sound:
        return None
    routing = f"{most_used} of {experts} experts and {groups_used} of {groups} expert groups"
    return f"claims to use {routing}, which cannot be; download it again"


def _unusable_tensor(tensors: Iterable[TensorInfo]) -> str | None:
    for tensor in tensors:
        problem = _unusable_type(tensor)
        if problem:
            return f"stores tensor {tensor.name!r} as {problem}; pass another quantization"
    return None


def _unusable_type(tensor: TensorInfo) -> str | None:
    """llama.cpp loads these and then aborts at the first token."""
    kind = TENSOR_TYPES[tensor.type].name
    table = "tid2eid" in tensor.name or not tensor.name.endswith(".weight")
    if kind in _NEVER_COMPUTED or (kind in _TABLES and not table):
        return f"{kind}, which llama.cpp cannot compute with"
    # Norms, biases and rope factors meet F32 activations element by element, for which the CPU
    # has no mixed kernel. Every converter writes them as F32.
    elementwise = len(tensor.shape) == 1 or tensor.name.endswith(("norm.weight", ".bias"))
    if elementwise and kind not in ("F32", *_TABLES):
        return f"{kind}, where llama.cpp needs F32"
    return None


def _own(header: Header, key: str) -> object:
    """The value of a key the architecture prefixes, such as llama.block_count."""
    return header.metadata.get(f"{header.architecture}.{key}")


def _number(header: Header, key: str, default: int = 0) -> int:
    value = _own(header, key)
    return value if isinstance(value, int) else default
