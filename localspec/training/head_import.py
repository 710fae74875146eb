"""Head import: the weights of a head that `localspec train` wrote, to train it further."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from localspec.errors import DrafterMismatchError
from localspec.gguf.check import check_drafter
from localspec.gguf.facts import facts_of
from localspec.gguf.reader import Array, Header, display_name
from localspec.gguf.weights import Weights as FileWeights
from localspec.models.trained_drafters import TARGET
from localspec.training.sizes import Floats, Sizes, Weights
from localspec.training.tensor_layouts import (
    DFLASH_LAYOUT,
    EAGLE3_LAYOUT,
    MEDUSA_HEADS,
    MEDUSA_NAMES,
    module_weights,
)


class HeadFile:
    """The file of a head. architecture: that it must have.

    Raises ModelNotFoundError or ModelLoadError for a file that is no head, DrafterMismatchError for
    one of another kind.
    """

    def __init__(self, path: Path, architecture: str) -> None:
        self.path, self.name = path, display_name(path)
        self.header: Header = check_drafter(path)
        self._facts = facts_of(path, self.header)
        if self.header.architecture != architecture:
            raise DrafterMismatchError(
                f"{self.name} is {self.header.architecture}, not {architecture}; name a head of "
                "the kind that is trained"
            )

    @property
    def reads(self) -> tuple[int, ...]:
        """The layers of the target whose rows it reads."""
        layers = self.header.own("target_layers")
        return tuple(map(int, layers)) if isinstance(layers, Array) else ()

    def load_into(self, head: nn.Module, weights: Weights) -> None:
        """Set all weights of a head. weights: by their names in it.

        Raises DrafterMismatchError where their shapes are others.
        """
        for name, weight in head.state_dict().items():
            if weights[name].shape != tuple(weight.shape):
                raise self._refusal(f"its {name} is {weights[name].shape}, not {(*weight.shape,)}")
        head.load_state_dict(
            {name: torch.from_numpy(np.array(values)) for name, values in weights.items()}
        )

    def require_sizes(self, sizes: Sizes) -> None:
        """Raise DrafterMismatchError for a head of other sizes."""
        wanted = {
            "embedding_length": sizes.width,
            "feed_forward_length": sizes.feed_forward,
            "attention.head_count": sizes.heads,
            "attention.head_count_kv": sizes.heads,
        }
        self._require(wanted)

    def require_same(self, target: Header, keys: Sequence[str]) -> None:
        """Raise DrafterMismatchError where these numbers are not those of a target."""
        self._require({key: target.own(key) for key in keys})

    def require_only(self, block: str, names: Collection[str]) -> None:
        """Raise DrafterMismatchError where a layer has other tensors. block: what it begins with.

        names: the tensors, behind that.
        """
        own = (each.name for each in self._facts.tensors if each.name.startswith(block))
        for name in own:
            if name.removeprefix(block) not in names:
                raise self._refusal(f"it has a tensor {name}")

    def has(self, name: str) -> bool:
        """Whether it has a tensor of this name."""
        return any(each.name == name for each in self._facts.tensors)

    def _require(self, wanted: Mapping[str, object]) -> None:
        for key, value in wanted.items():
            if self.header.own(key) != value:
                raise self._refusal(f"its {key} is {self.header.own(key)}, not {value}")

    def _refusal(self, why: str) -> DrafterMismatchError:
        return DrafterMismatchError(
            f"{self.name} cannot be trained further: {why}; name a head that localspec trained for "
            "a model like this one"
        )

    def tensor(self, name: str) -> Floats:
        """A tensor by its name in the file. Raises DrafterMismatchError for a head without it."""
        found = self._facts.located(name)
        if found is None:
            raise self._refusal(f"it has no tensor {name}")
        file, info = found
        return FileWeights(file).rows(info)

    def without_own(self, *names: str) -> None:
        """Raise DrafterMismatchError for a head with matrices that are the target's here.

        Those of a head that `localspec train` wrote are its target's, trimmed.
        """
        if TARGET in self.header.metadata:
            return
        for name in names:
            if self.header.tensor(name) is not None:
                raise self._refusal(f"it has a tensor {name}")


def eagle3_weights(file: HeadFile, sizes: Sizes) -> Weights:
    """The weights of an `Eagle3Head` by their names there."""
    file.require_sizes(sizes)
    file.without_own("d2t", "output.weight", "token_embd.weight", "enc.output_norm.weight")
    return module_weights(EAGLE3_LAYOUT, file.tensor, sizes.heads)


def dflash_weights(file: HeadFile, sizes: Sizes) -> Weights:
    """The weights of a `DFlashBlock` by their names there."""
    file.require_sizes(sizes)
    file.without_own("d2t", "output.weight", "token_embd.weight")
    return module_weights(DFLASH_LAYOUT, file.tensor)


def medusa_weights(file: HeadFile) -> Weights:
    """The weights of `MedusaHeads` by their names there."""
    file.without_own("head.0.output.weight", f"head.{MEDUSA_HEADS}.block.0.weight")
    return {own: file.tensor(name) for own, name in MEDUSA_NAMES.items()}
