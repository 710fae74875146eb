"""GGUF import: weights and tokenizer of a file that gguf_export wrote, to train it further."""

from pathlib import Path

import numpy as np

from localspec.gguf.reader import Array
from localspec.gguf.rope_rows import in_halves
from localspec.scaling.source_model import SourceModel
from localspec.training.sizes import Floats, Sizes


class TrainedFile:
    """sizes; weights: named as in `Transformer`; vocabulary, merges: of the tokenizer."""

    def __init__(self, path: Path) -> None:
        self._source = SourceModel(path)
        shape = self._source.shape
        self.sizes = Sizes(shape.vocabulary, shape.width, shape.layers, shape.heads, shape.ffn)
        self.vocabulary = {word: number for number, word in enumerate(self._strings("tokens"))}
        pairs = (merge.split(" ") for merge in self._strings("merges"))
        self.merges = [(first, second) for first, second in pairs]

    def _strings(self, name: str) -> list[str]:
        entries = self._source.metadata[f"tokenizer.ggml.{name}"]
        assert isinstance(entries, Array)
        return [str(entry) for entry in entries]

    def _tensor(self, name: str) -> Floats:
        return self._source.rows(f"{name}.weight")

    @property
    def weights(self) -> dict[str, Floats]:
        made = {
            "embedding.weight": self._tensor("token_embd"),
            "norm.weight": self._tensor("output_norm"),
        }
        for number in range(self.sizes.layers):
            made |= {
                f"blocks.{number}.{name}.weight": weight
                for name, weight in self._block(f"blk.{number}").items()
            }
        return made

    def _block(self, block: str) -> dict[str, Floats]:
        heads = self.sizes.heads
        q, k = (in_halves(self._tensor(f"{block}.attn_{name}"), heads) for name in "qk")
        gate, up = (self._tensor(f"{block}.ffn_{name}") for name in ("gate", "up"))
        return {
            "attention_norm": self._tensor(f"{block}.attn_norm"),
            "qkv": np.concatenate([q, k, self._tensor(f"{block}.attn_v")]),
            "output": self._tensor(f"{block}.attn_output"),
            "feed_norm": self._tensor(f"{block}.ffn_norm"),
            "gate_up": np.concatenate([gate, up]),
            "down": self._tensor(f"{block}.ffn_down"),
        }
