"""Refuses GGUF files that are intact but cannot generate text, or that would crash llama.cpp.

Every check takes a header and returns what is wrong and what to do, or None.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.gguf import assistant, block_heads
from localspec.gguf.heads import EAGLE3, MTP, kind_of
from localspec.gguf.limits import impossible_numbers
from localspec.gguf.matrix_heads import KINDS as MATRIX_KINDS
from localspec.gguf.matrix_heads import matrix_head_of
from localspec.gguf.reader import Array, Header, TensorInfo, display_name, read_header
from localspec.gguf.types import STRING, TENSOR_TYPES
from localspec.utils.option_names import option

_TEXT_MODEL = "pass a text-generation model"
_EMBEDDING = (
    f"is an embedding model and cannot generate text; {_TEXT_MODEL}, and serve this one beside it "
    "(localspec serve --embed)"
)
_NO_POOLING = (
    "names no pooling type, as embedding models do; pass one, such as "
    "nomic-ai/nomic-embed-text-v1.5-GGUF:q8_0"
)
# llama.cpp's numbers: what becomes of the rows of a text is their mean, the first, the last, or a
# score by a head of its own.
MEAN, CLS, LAST, RANK = POOLING_TYPES = 1, 2, 3, 4
# Here each token sees the later ones too, for llama.cpp without a key that says so.
_READING_ALL = ("gemma-embedding", "dream", "llada", "llada-moe", "rnd1")
_DIFFUSION = f"is a diffusion model, which does not write token by token; {_TEXT_MODEL}"
_SPEECH = f"is a speech model; {_TEXT_MODEL}"
_HEAD = "is a draft head, not a model; pass its target, and this file as its drafter"
_FORK = (
    "is a draft head ({0}) that only a fork of llama.cpp loads; download a conversion with the "
    "architecture {1}"
)
_MMPROJ = "is an image or audio encoder (mmproj); pass the language model it belongs to"

_TYPES = {
    "adapter": "is an adapter, not a model; pass the model that it was trained on, and this file "
    "with {lora}",
    "mmproj": _MMPROJ,
    "imatrix": f"is an importance matrix, not a model; {_TEXT_MODEL}",
}

# Architectures that only forks of llama.cpp load, and what llama.cpp itself has in their place.
FORK_ARCHITECTURES = {
    **dict.fromkeys(
        ("dflash-draft", "qwen35-dflash-draft", "gemma4-dflash-draft"), block_heads.ARCHITECTURE
    ),
    "gemma4_assistant": assistant.ARCHITECTURE,
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
    "gptoss": "is in Ollama's own format (architecture gptoss), which llama.cpp does not load; "
    "localspec pull gpt-oss-20b fetches one that it loads",
    **dict.fromkeys(
        (EAGLE3, assistant.ARCHITECTURE, block_heads.ARCHITECTURE, *MATRIX_KINDS), _HEAD
    ),
    **{name: _FORK.format(name, known) for name, known in FORK_ARCHITECTURES.items()},
}

_OF_OLLAMA = (
    "is in Ollama's own format ({0}), which llama.cpp does not load; pull the model from the Hub"
)

# Tensor types that llama.cpp has no kernel for, and types that it reads only as tables of numbers.
_NEVER_COMPUTED = ("Q8_1", "Q8_K", "I8", "I16", "F64")
_TABLES = ("I32", "I64")
_ENCODER_TENSORS = ("v.blk.", "a.blk.")
_ROPE_SECTIONS = 4
_ELEMENTWISE = ("norm.weight", ".bias", "conv1d.weight", "shortconv.conv.weight")
# By architecture, a tensor of some layers, and others that those layers have. llama.cpp loads such
# a layer without the others, and then ends.
_FUSED = ".attn_qkv.weight"
_BELONG = {
    **dict.fromkeys(("qwen35", "qwen35moe"), (".ssm_conv1d.weight", (_FUSED, ".attn_gate.weight"))),
    "phi3": (".attn_output.weight", (_FUSED,)),
}


def check_generative(path: str | os.PathLike[str]) -> Header:
    """Read the header of a model, and refuse one that cannot generate text.

    path: the first file of a split model. Raises ModelNotFoundError or ModelLoadError.
    """
    header = read_header(path)
    _refuse(path, _wrong_part(header) or _wrong_kind(header))
    return _checked(path, header)


def check_drafter(path: str | os.PathLike[str]) -> Header:
    """Check as `check_generative` does; a head that can draft here passes too."""
    header = read_header(path)
    _refuse(path, _wrong_part(header))
    if header.architecture in MATRIX_KINDS:
        matrix_head_of(Path(path), header)
        return header
    if kind_of(header) is None:
        _refuse(path, _wrong_kind(header))
    return _checked(path, header)


def check_embedder(path: str | os.PathLike[str]) -> Header:
    """Check as `check_generative` does a model that makes one vector, or a score, of a text."""
    header = read_header(path)
    kind = _wrong_kind(header)
    _refuse(path, _wrong_part(header) or (kind if kind != _EMBEDDING else None))
    if header.number("pooling_type") not in POOLING_TYPES:
        _refuse(path, _NO_POOLING)
    if ranks(header) and not _has_score(header):
        _refuse(path, "ranks texts and has no tensor 'cls.output.weight'; download it again")
    return _checked(path, header)


def ranks(header: Header) -> bool:
    """Whether an embedding model gives a score of a query with a document in place of a vector."""
    return header.number("pooling_type") == RANK


def _has_score(header: Header) -> bool:
    """Whether the head ends in one number, or in one for each answer."""
    dense = header.tensor("cls.weight")
    return bool(header.tensor("cls.output.weight") or (dense and set(dense.shape[1:]) <= {1}))


def reads_in_pieces(header: Header) -> bool:
    """Whether an embedding model may read a text in several passes: its last row sees all of it."""
    is_causal = header.own("attention.causal") is not False
    is_causal &= header.architecture not in _READING_ALL
    return is_causal and header.number("pooling_type") in (LAST, RANK)


def _checked(path: str | os.PathLike[str], header: Header) -> Header:
    tensors = [*header.tensors, *_tensors_of_other_parts(Path(path), header)]
    _refuse(
        path,
        _no_weights(tensors)
        or _no_tokenizer(header)
        or impossible_numbers(header)
        or _of_ollama(header, tensors)
        or _unusable_tensor(tensors)
        or _missing_tensor(header.architecture, tensors),
    )
    return header


def _refuse(path: str | os.PathLike[str], problem: str | None) -> None:
    if problem:
        raise ModelLoadError(f"{display_name(path)} {problem}")


def _wrong_kind(header: Header) -> str | None:
    kind = header.metadata.get("general.type")
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind].format(lora=option("lora"))
    if not header.architecture:
        return "does not name its architecture; download a current conversion"
    if header.architecture in _ARCHITECTURES:
        return _ARCHITECTURES[header.architecture]
    if kind_of(header) == MTP:
        return _HEAD
    # Pooling type 0 means none; the others squeeze the whole text into one vector.
    if header.largest("pooling_type") or header.own("attention.causal") is False:
        return _EMBEDDING
    return None


def _wrong_part(header: Header) -> str | None:
    number, count = header.metadata.get("split.no", 0), header.metadata.get("split.count", 1)
    if number:
        return f"is not the first part of a split model of {count}; pass the part named -00001-of-"
    return None


def part_paths(path: Path, header: Header) -> list[Path]:
    """Return the files of a model, which may not exist. path, header: of the first or only one.

    Raises ModelLoadError for a split model whose name does not end as that of a first part.
    """
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or count < 2:
        return [path]
    ending = f"-00001-of-{count:05}.gguf"
    if not path.name.endswith(ending):
        _refuse(path, f"is the first of {count} parts, so its name must end in {ending}")
    start = path.name.removesuffix(ending)
    names = [f"{start}-{number + 1:05}-of-{count:05}.gguf" for number in range(count)]
    return [path.with_name(name) for name in names]


def _tensors_of_other_parts(path: Path, header: Header) -> Iterator[TensorInfo]:
    for number, file in enumerate(part_paths(path, header)[1:], start=1):
        try:
            part = read_header(file)
        except ModelNotFoundError as error:
            name = display_name(file.name)
            raise ModelLoadError(
                f"{display_name(path)} needs {name} beside it; download every part"
            ) from error
        if part.metadata.get("split.no") != number:
            _refuse(file.name, f"is not part {number + 1} of the model; download it again")
        yield from part.tensors


def _no_weights(tensors: list[TensorInfo]) -> str | None:
    if tensors:
        return None
    return f"holds a vocabulary only, without weights; {_TEXT_MODEL}"


def _no_tokenizer(header: Header) -> str | None:
    kind = header.metadata.get("tokenizer.ggml.model")
    if kind in (None, "none", "no_vocab"):
        return "has no tokenizer; download a conversion that includes it"
    if kind == "bert" and not header.largest("pooling_type"):
        return _EMBEDDING
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Array) or tokens.kind != STRING or not len(tokens):
        return "has a tokenizer without tokens; download it again"
    # llama.cpp ends a token at its first NUL, gives empty ones a name, and aborts on two alike.
    texts = {text.partition("\0")[0] or f"[EMPTY_{number}]" for number, text in enumerate(tokens)}
    if len(texts) < len(tokens):
        return "lists the same token twice in its vocabulary; download it again"
    if kind == "llama" and (missing := _missing_byte(texts)) is not None:
        return f"has no token for the byte {missing:#04x}; download it again"
    return None


def _missing_byte(texts: set[str]) -> int | None:
    """Return a byte without a token: SentencePiece needs all, and llama.cpp ends without one."""
    for byte in range(256):
        if f"<0x{byte:02X}>" not in texts and _as_text(byte) not in texts:
            return byte
    return None


def _as_text(byte: int) -> str:
    return bytes([byte]).decode("utf-8", "surrogateescape")


def _of_ollama(header: Header, tensors: Iterable[TensorInfo]) -> str | None:
    """Name what makes a file one for Ollama's own engine, whose library has many of them."""
    if any(tensor.name.startswith(_ENCODER_TENSORS) for tensor in tensors):
        return _OF_OLLAMA.format("an image or audio encoder inside")
    sections = header.own("rope.dimension_sections")
    if isinstance(sections, Array) and len(sections) != _ROPE_SECTIONS:
        return _OF_OLLAMA.format(f"{len(sections)} rope sections, not {_ROPE_SECTIONS}")
    return None


def _unusable_tensor(tensors: Iterable[TensorInfo]) -> str | None:
    for tensor in tensors:
        problem = _unusable_type(tensor)
        if problem:
            return f"stores tensor {tensor.name!r} as {problem}; pass another quantization"
    return None


def _missing_tensor(architecture: str, tensors: Iterable[TensorInfo]) -> str | None:
    """Return what a layer lacks that llama.cpp loads without, and then ends on."""
    if architecture not in _BELONG:
        return None
    of_layers, needed = _BELONG[architecture]
    names = {tensor.name for tensor in tensors}
    for layer in (name.removesuffix(of_layers) for name in names if name.endswith(of_layers)):
        apart = names.issuperset(f"{layer}.attn_{part}.weight" for part in "qkv")
        for part in needed:
            if layer + part not in names and not (apart and part == _FUSED):
                return f"has no tensor {layer + part!r}; download it again"
    return None


def _unusable_type(tensor: TensorInfo) -> str | None:
    """Return the type of a tensor that llama.cpp loads, and then aborts on at the first token."""
    kind = TENSOR_TYPES[tensor.type].name
    table = "tid2eid" in tensor.name or not tensor.name.endswith((".weight", ".bias"))
    if kind in _NEVER_COMPUTED or (kind in _TABLES and not table):
        return f"{kind}, which llama.cpp cannot compute with"
    # Norms, biases, short convolutions and rope factors meet F32 activations element by element,
    # for which the CPU has no mixed kernel. Every converter writes them as F32.
    elementwise = len(tensor.shape) == 1 or tensor.name.endswith(_ELEMENTWISE)
    if elementwise and kind not in ("F32", *_TABLES):
        return f"{kind}, where llama.cpp needs F32"
    return None
