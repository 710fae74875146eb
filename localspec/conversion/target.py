"""TargetFile: the model that a head is converted or trimmed for, as far as its files tell."""

from functools import cached_property
from pathlib import Path

from localspec.gguf.check import check_generative
from localspec.gguf.facts import facts_of
from localspec.gguf.heads import layers_of, vocabulary_size
from localspec.gguf.reader import TensorInfo, display_name
from localspec.gguf.weights import Weights

_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"


class TargetFile:
    """A target's header and weights; nothing is loaded.

    width: of its hidden rows. layers: without heads inside. n_vocab: tokens. name: for messages.
    Raises ModelNotFoundError, or ModelLoadError for a file that is no model.
    """

    def __init__(self, path: Path) -> None:
        self.header = check_generative(path)
        self.facts = facts_of(path, self.header)
        self.path = self.facts.files[0]
        self.name = display_name(self.path.name)
        self.width = self.header.number("embedding_length") or 0
        self.layers = layers_of(self.header)
        self.n_vocab = vocabulary_size(self.header)

    @property
    def tokenizer(self) -> dict[str, object]:
        """The metadata of its tokenizer."""
        found = self.header.metadata.items()
        return {key: value for key, value in found if key.startswith("tokenizer.")}

    @property
    def model_metadata(self) -> dict[str, object]:
        """The metadata of its shape, its tokenizer, its licence and its source."""
        kept = (f"{self.header.architecture}.", "tokenizer.", "general.license", "general.source.")
        return {key: value for key, value in self.header.metadata.items() if key.startswith(kept)}

    @cached_property
    def embedding(self) -> tuple[Weights, TensorInfo] | None:
        """The embedding matrix, with the file that has it."""
        return self._matrix(_EMBEDDING)

    @cached_property
    def output(self) -> tuple[Weights, TensorInfo] | None:
        """The output matrix; the embedding, where that is the output matrix too."""
        return self._matrix(_OUTPUT, _EMBEDDING)

    def located(self, *names: str) -> tuple[Weights, TensorInfo] | None:
        """The first of these tensors that it has, with the weights of its file."""
        found = self.facts.located(*names)
        return found and (Weights(found[0]), found[1])

    def _matrix(self, *names: str) -> tuple[Weights, TensorInfo] | None:
        """The first of these tensors that it has, if that is a matrix of its rows."""
        found = self.located(*names)
        if found is None or found[1].shape != (self.width, self.n_vocab):
            return None
        return found
