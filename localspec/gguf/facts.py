"""Facts: what a GGUF is, as far as its header tells. No weights are read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.files import bytes_of, files_of
from localspec.gguf.reader import Header, TensorInfo, display_name, read_header
from localspec.gguf.types import TENSOR_TYPES
from localspec.gguf.vocabulary import HeaderVocabulary

# What layers are called that keep a state of fixed size, and those that keep every token's keys.
_RECURRENT = (".ssm_", ".time_mix_", ".shortconv.")
_ATTENTION = (".attn_k.", ".attn_qkv.", ".attn_kv_a_mqa.", ".attn_kv_a.")

# Architectures that are no whole model but draft from their target's hidden states.
_HEADS = {
    "eagle3": "EAGLE-3 head, for its own target",
    "dflash": "DFlash head, for its own target",
    "gemma4-assistant": "Gemma 4 assistant head, for its own target",
}


@dataclass(frozen=True)
class Facts:
    """A model in files: all of them if it is split. Its header is that of the first."""

    files: tuple[Path, ...]
    header: Header
    tensors: Sequence[TensorInfo]

    @cached_property
    def size(self) -> int:
        """Bytes of its files."""
        return bytes_of(self.files)

    @cached_property
    def parameters(self) -> int:
        """How many numbers its tensors hold."""
        return sum(self.types.values())

    @cached_property
    def types(self) -> Mapping[str, int]:
        """Parameters by the type they are stored in, the most first."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            counts[TENSOR_TYPES[tensor.type].name] += prod(tensor.shape)
        return dict(counts.most_common())

    @property
    def bits_per_weight(self) -> float:
        """Of the tensors alone."""
        return 8 * sum(tensor.size for tensor in self.tensors) / max(1, self.parameters)

    @cached_property
    def vocabulary(self) -> HeaderVocabulary | None:
        """None where it has none of its own."""
        found = HeaderVocabulary(self.header)
        return found if found.n_vocab else None

    @property
    def chat_template(self) -> str | None:
        """In Jinja."""
        return self.text("tokenizer.chat_template")

    @cached_property
    def memory(self) -> str:
        """What it keeps of a text: attention, sliding window, hybrid or recurrent."""
        names = [tensor.name for tensor in self.tensors]
        recurrent = any(mark in name for name in names for mark in _RECURRENT)
        attention = any(mark in name for name in names for mark in _ATTENTION)
        if recurrent:
            return "hybrid" if attention else "recurrent"
        return "sliding window" if self.number("attention.sliding_window") else "attention"

    @property
    def hidden_state_heads(self) -> str | None:
        """What drafts from its hidden states, if anything in the file does."""
        layers = self.number("nextn_predict_layers")
        if layers:
            return f"MTP (NextN), {layers} {'layer' if layers == 1 else 'layers'}"
        return _HEADS.get(self.header.architecture)

    def number(self, key: str) -> int | None:
        """A whole number of the architecture, such as block_count."""
        return self.header.number(key)

    def text(self, key: str) -> str | None:
        """A text of the metadata, such as general.license."""
        value = self.header.metadata.get(key)
        return value if isinstance(value, str) and value else None


def facts_of(path: Path, header: Header | None = None) -> Facts:
    """Read the headers of a model, named by any of its files.

    header: of its first file, where it was read before. Raises ModelNotFoundError, or
    ModelLoadError for a file that is no GGUF, or a part without the others.
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
