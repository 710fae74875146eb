"""Facts about a model from the headers of its files; no weights are read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.assistant import ASSISTANT
from localspec.gguf.block_heads import DFLASH, DFLASH2, DSPARK
from localspec.gguf.files import bytes_of, files_of
from localspec.gguf.heads import EAGLE3, has_mtp, kind_of
from localspec.gguf.matrix_heads import MEDUSA, MLP
from localspec.gguf.reader import Header, TensorInfo, display_name, read_header
from localspec.gguf.types import TENSOR_TYPES
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.utils.format import counted

# Parts of the names of tensors, in layers with a state of fixed size and in attention layers.
_RECURRENT = (".ssm_", ".time_mix_", ".shortconv.")
_ATTENTION = (".attn_k.", ".attn_qkv.", ".attn_kv_a_mqa.", ".attn_kv_a.")
# Part of the names of tensors of experts.
_EXPERTS = "exps."

# Kinds of heads, which draft from the hidden states of their target.
_HEADS = {
    EAGLE3: "EAGLE-3",
    DFLASH: "DFlash",
    DFLASH2: "DFlash 2",
    DSPARK: "DSpark",
    ASSISTANT: "Gemma 4 assistant",
    MEDUSA: "Medusa",
    MLP: "MLP speculator",
}


@dataclass(frozen=True)
class Facts:
    """A model in one file or several. header: of the first file. tensors: of all files."""

    files: tuple[Path, ...]
    header: Header
    tensors: Sequence[TensorInfo]

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return bytes_of(self.files)

    @cached_property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(self.weights_by_type.values())

    @cached_property
    def weights_by_type(self) -> Mapping[str, int]:
        """The number of weights by the name of their ggml type, the most common type first."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            counts[TENSOR_TYPES[tensor.type].name] += prod(tensor.shape)
        return dict(counts.most_common())

    @property
    def bits_per_weight(self) -> float:
        """Bits of the tensors, without the header, per weight."""
        return 8 * sum(tensor.size for tensor in self.tensors) / max(1, self.parameters)

    @cached_property
    def vocabulary(self) -> HeaderVocabulary | None:
        """The vocabulary; None for a file without one."""
        found = HeaderVocabulary(self.header)
        return found if found.n_vocab else None

    @property
    def name(self) -> str | None:
        """What the model is called in its header; None where it has no name there."""
        return self.text("general.name")

    @property
    def chat_template(self) -> str | None:
        """The chat template, in Jinja; None for a model without one."""
        return self.text("tokenizer.chat_template")

    @cached_property
    def memory_kind(self) -> str:
        """The kind of memory of a text: attention, sliding window, hybrid or recurrent."""
        names = [tensor.name for tensor in self.tensors]
        recurrent = any(mark in name for name in names for mark in _RECURRENT)
        attention = any(mark in name for name in names for mark in _ATTENTION)
        if recurrent:
            return "hybrid" if attention else "recurrent"
        return "sliding window" if self.number("attention.sliding_window") else "attention"

    @cached_property
    def has_mtp(self) -> bool:
        """Whether there are heads of multi-token prediction in it."""
        return has_mtp(self.header, self.tensors)

    @cached_property
    def has_experts(self) -> bool:
        """Whether layers are mixtures of experts."""
        return any(_EXPERTS in tensor.name for tensor in self.tensors)

    @property
    def hidden_state_heads(self) -> str | None:
        """The head in this file that drafts from hidden states, in words; None without one."""
        if self.has_mtp:
            return f"MTP (NextN), {counted(self.number('nextn_predict_layers') or 0, 'layer')}"
        kind = _HEADS.get(kind_of(self.header) or self.header.architecture)
        return f"{kind} head, for its own target" if kind else None

    def located(self, *names: str) -> tuple[Path, TensorInfo] | None:
        """Return the first of these tensors that the model has, with its file."""
        headers = [(self.files[0], self.header)]
        headers += [(file, read_header(file)) for file in self.files[1:]]
        for name in names:
            for file, header in headers:
                if tensor := header.tensor(name):
                    return file, tensor
        return None

    def number(self, key: str) -> int | None:
        """Return a whole number of the architecture, such as block_count."""
        return self.header.number(key)

    def text(self, key: str) -> str | None:
        """Return a text of the metadata, such as general.license; None where it is empty."""
        value = self.header.metadata.get(key)
        return value if isinstance(value, str) and value else None


def facts_of(path: Path, header: Header | None = None) -> Facts:
    """Read the headers of a model. path: any of its files.

    header: of its first file, where it was read before. Raises ModelNotFoundError, or
    ModelLoadError for a file that is no GGUF, or where a part of a split model is missing.
    """
    files = files_of(path)
    first = read_header(files[0]) if header is None else header
    headers = [first, *(read_header(file) for file in files[1:])]
    needed = headers[0].metadata.get("split.count")
    if isinstance(needed, int) and needed > len(files):
        raise ModelLoadError(
            f"{display_name(path)} is one of {needed} parts that are not all beside it; "
            "download every part"
        )
    return Facts(files, headers[0], [tensor for header in headers for tensor in header.tensors])
