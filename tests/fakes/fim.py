"""Tiny models that were taught to fill in the middle, and what their prompts must be."""

from pathlib import Path
from typing import Any

import gguf
from fakes import tiny

NAMES = {
    "pre": "<|fim_prefix|>",
    "suf": "<|fim_suffix|>",
    "mid": "<|fim_middle|>",
    "rep": "<|repo_name|>",
    "sep": "<|file_sep|>",
}
ALL, GAP = tuple(NAMES), ("pre", "suf", "mid")


def write_fim_model(
    path: Path,
    kinds: tuple[str, ...] = ALL,
    *,
    family: str = "qwen3",
    by_id: bool = False,
    adds_bos: bool = True,
    context: int = 512,
) -> Path:
    """A tiny model with the tokens of these kinds, the last ones of its vocabulary.

    by_id: whether the header names them; else llama.cpp finds them by their texts.
    """

    def with_tokens(writer: Any) -> None:
        tiny.FAMILIES[family](writer)
        header = writer.gguf.kv_data[0]
        first = tiny.N_VOCAB - len(kinds)
        for token, kind in enumerate(kinds, first):
            name = f"<{kind}>" if by_id else NAMES[kind]
            header["tokenizer.ggml.tokens"].value[token] = name
            header["tokenizer.ggml.token_type"].value[token] = 3
            if by_id:
                writer.gguf.add_uint32(f"tokenizer.ggml.fim_{kind}_token_id", token)
        if "tokenizer.ggml.merges" in header:
            header["tokenizer.ggml.merges"].value[:] = ["a n"]
        header["tokenizer.ggml.add_bos_token"].value = adds_bos

    return tiny.write_tiny(path, family, quantised=False, context=context, layers=with_tokens)


class Expected:
    """The prompts of a model whose vocabulary is one of bytes, read from its file by another tool.

    Texts must have no letters that make a longer token together.
    """

    def __init__(self, path: Path) -> None:
        self._fields = gguf.GGUFReader(path).fields
        tokens = self._fields["tokenizer.ggml.tokens"]
        texts = [bytes(tokens.parts[part]).decode() for part in tokens.data]
        self.ids = {text: number for number, text in enumerate(texts)}
        self.bos = [1] if self._value("tokenizer.ggml.add_bos_token") else []

    def __getitem__(self, kind: str) -> int:
        """The token of a kind."""
        return self.ids[self.name(kind)]

    def name(self, kind: str) -> str:
        """How the token of a kind is written."""
        by_id = f"tokenizer.ggml.fim_{kind}_token_id"
        if by_id not in self._fields:
            return NAMES[kind]
        return next(text for text, number in self.ids.items() if number == self._value(by_id))

    def __contains__(self, kind: str) -> bool:
        return NAMES[kind] in self.ids or f"tokenizer.ggml.fim_{kind}_token_id" in self._fields

    def text(self, text: str) -> list[int]:
        """A text, a token per byte, as byte-level BPE writes bytes."""
        return [self.ids[{"\n": "Ċ", " ": "Ġ"}.get(each, each)] for each in text]

    def gap(self, ahead: str, behind: str) -> list[int]:
        """The prompt for a gap: prefix, suffix, middle."""
        parts = [self["pre"], *self.text(ahead), self["suf"], *self.text(behind), self["mid"]]
        return [*self.bos, *parts]

    def _value(self, name: str) -> Any:
        field = self._fields[name]
        return field.parts[field.data[0]][0]
