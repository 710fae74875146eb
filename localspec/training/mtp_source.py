"""MTP source: what a head of multi-token prediction has of its target, and what it begins with."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

from localspec.conversion.target import TargetFile
from localspec.gguf.heads import MTP, layers_of, require_fitting
from localspec.gguf.reader import Array
from localspec.gguf.writer import TensorData
from localspec.training.cut_shape import shape_of
from localspec.training.head_import import HeadFile
from localspec.training.head_source import MTP_ARCHITECTURES, HeadSource, refusal
from localspec.training.mtp_head import HEAD_NORMS, JOIN, LAYER, OWN_NORM, TENSORS
from localspec.training.sizes import Floats

_OUTPUT_NORM = "output_norm.weight"
# What a head has in common with its target's layers.
_SAME = (
    *("embedding_length", "feed_forward_length", "attention.head_count"),
    *("attention.head_count_kv", "attention.key_length", "attention.layer_norm_rms_epsilon"),
    *("rope.freq_base", "rope.dimension_count"),
)
# The weights that join token and row begin as small random ones: heads that begin with the token or
# the row itself learn far more slowly.
_SCALE = 0.02


class MtpSource(HeadSource):
    """A target for which a head of multi-token prediction is trained. shape: of its layers.

    Raises DrafterMismatchError for a target of an architecture without such heads.
    """

    def __init__(self, target: TargetFile) -> None:
        super().__init__(target, MTP)
        self._architecture = target.header.architecture
        if self._architecture not in MTP_ARCHITECTURES:
            known = " or ".join(MTP_ARCHITECTURES)
            raise refusal(target, MTP, f"its architecture is {self._architecture}, not {known}")
        self.shape = shape_of(target, partial(refusal, target, MTP), halves=True)

    def weights(self, head: Path | None) -> tuple[Mapping[str, Floats], str]:
        """The weights that a head begins with, by the names of TENSORS, and where they are from.

        head: a file with a head; None: the one in the target's own file, or one that is untrained.
        Raises DrafterMismatchError for a head of another target.
        """
        if head:
            file = HeadFile(head, self._architecture)
            return self._weights_of(file), f"begins with the head of {file.name}"
        if self.target.facts.has_mtp:
            file = HeadFile(self.target.path, self._architecture)
            return self._weights_of(file), "begins with the head in the target's own file"
        return self._untrained()

    def file_metadata(self) -> dict[str, object]:
        """The metadata of a file with a head alone: it is the target's last layer, and one more."""
        found, start = self.target.model_metadata, f"{self._architecture}."
        recurrent = f"{start}attention.recurrent_layers"
        trunk = found.get(recurrent)
        if isinstance(trunk, Array):
            found[recurrent] = [*map(bool, trunk[: self.target.layers]), False]
        found[f"{start}block_count"] = self.target.layers + 1
        found[f"{start}nextn_predict_layers"] = 1
        return found

    def target_tensors(self) -> Iterator[TensorData]:
        """The tensors of the target without which llama.cpp loads no head, as they are there."""
        for name in ("token_embd.weight", "output.weight", _OUTPUT_NORM):
            if found := self.target.located(name):
                yield found[0].stored(found[1])

    def _weights_of(self, file: HeadFile) -> Mapping[str, Floats]:
        require_fitting(file.path, file.header, self.target.path, self.target.header)
        file.require_same(self.target.header, _SAME)
        block = f"blk.{layers_of(file.header)}."
        file.require_only(block, TENSORS)
        own_norm = file.has(f"{block}{OWN_NORM}.weight")
        return {
            name: file.tensor(
                f"{block}{name}" if own_norm or not name.startswith(OWN_NORM) else _OUTPUT_NORM
            )
            for name in TENSORS
        }

    def _untrained(self) -> tuple[Mapping[str, Floats], str]:
        """The target's last layer of attention, which sees its rows as they enter that layer."""
        layers = reversed(range(self.target.layers))
        last = next((each for each in layers if self._has(each)), None)
        if last is None:
            raise refusal(self.target, MTP, "it has no layer of attention to begin with")
        found = {f"{name}.weight": self._floats(f"blk.{last}.{name}.weight") for name in LAYER}
        width = self.sizes.width
        for name in HEAD_NORMS:
            found[f"{name}.weight"] = np.ones(width, np.float32)
        found[f"{OWN_NORM}.weight"] = self.output_norm().weight.detach().numpy()
        found[f"{JOIN}.weight"] = _SCALE * torch.randn(width, 2 * width).numpy()
        return found, f"begins with layer {last} of the target"

    def _has(self, layer: int) -> bool:
        return self.target.located(f"blk.{layer}.attn_q.weight") is not None

    def _floats(self, name: str) -> Floats:
        found = self.target.located(name)
        if found is None:
            raise refusal(self.target, MTP, f"it has no tensor {name}")
        return found[0].rows(found[1])
