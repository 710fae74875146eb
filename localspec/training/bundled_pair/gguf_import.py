"""GGUF import: weights and tokenizer of a file that gguf_export wrote, to train it further."""

from pathlib import Path

from localspec.gguf.reader import Array
from localspec.scaling.source_model import SourceModel
from localspec.training.sizes import Floats, Sizes
from localspec.training.tensor_layouts import llama_layout, module_weights


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

    @property
    def weights(self) -> dict[str, Floats]:
        layout = llama_layout(self.sizes.layers)
        return module_weights(layout, self._source.rows, self.sizes.heads)
