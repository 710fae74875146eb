"""Cut shape: what a draft model cut out of a target has of it, and which targets can be cut.

The graph of training (`cut_model`) is that of the Llama family: norm, rotated attention, norm,
gated feed-forward. A target with anything else is refused before a weight is read.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.conversion.target import TargetFile
from localspec.errors import DrafterMismatchError
from localspec.gguf.reader import TensorInfo
from localspec.gguf.weights import Weights
from localspec.gguf.writer import TensorData

# Whether the two halves of a head turn together; else neighbours do.
TURNS_HALVES = {"llama": False, "qwen2": True, "qwen3": True}
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_LAYER = frozenset(
    [
        *(f"{name}.weight" for name in _MATRICES),
        *(f"{name}.bias" for name in _MATRICES),
        *("attn_norm.weight", "ffn_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight"),
    ]
)
_REQUIRED = frozenset(
    [*(f"{name}.weight" for name in _MATRICES), "attn_norm.weight", "ffn_norm.weight"]
)
_OUTSIDE = frozenset(
    ["token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"]
)
Floats = NDArray[np.float32]
# Makes an error that says why.
Refusal = Callable[[str], DrafterMismatchError]


@dataclass(frozen=True, slots=True)
class CutShape:
    """Sizes of each layer, and how queries and keys are turned.

    head: numbers of a head. turned: how many of them turn. halves: as in TURNS_HALVES. factor:
    what positions are divided by.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    epsilon: float
    rope_base: float
    turned: int
    halves: bool
    factor: float


class CutSource:
    """A target whose layers can be cut out: its shape and its weights. refusal: as in `shape_of`.

    Raises DrafterMismatchError for a target whose graph is another one.
    """

    def __init__(self, target: TargetFile, refusal: Refusal = DrafterMismatchError) -> None:
        self.target, architecture = target, target.header.architecture
        self._refusal = refusal
        if architecture not in TURNS_HALVES:
            known = ", ".join(TURNS_HALVES)
            raise refusal(f"its architecture is {architecture}, not {known}")
        self._tensors = {each.name: each for each in target.facts.tensors}
        self.shape = shape_of(target, refusal, halves=TURNS_HALVES[architecture])
        self._require_known()

    @property
    def is_tied(self) -> bool:
        """Whether the embedding is the output matrix too."""
        return "output.weight" not in self._tensors

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self._tensors

    def floats(self, name: str) -> Floats:
        """A tensor as floats: (rows, columns) or (columns,)."""
        weights, tensor = self._located(name)
        return weights.rows(tensor)

    def stored(self, name: str) -> TensorData:
        """A tensor as it lies in its file."""
        weights, tensor = self._located(name)
        return weights.stored(tensor)

    def layer(self, number: int) -> dict[str, Floats]:
        """The tensors of a layer, by their names behind `blk.N.`."""
        start = f"blk.{number}."
        names = [name for name in self._tensors if name.startswith(start)]
        return {name.removeprefix(start): self.floats(name) for name in names}

    def _located(self, name: str) -> tuple[Weights, TensorInfo]:
        found = self.target.located(name)
        if found is None:
            raise self._refusal(f"it has no tensor {name}")
        return found

    def _require_known(self) -> None:
        own: dict[str, set[str]] = {}
        for name in self._tensors:
            part, _, rest = name.removeprefix("blk.").partition(".")
            if name.startswith("blk."):
                own.setdefault(part, set()).add(rest)
            elif name not in _OUTSIDE:
                raise self._refusal(f"it has a tensor {name}")
        self._require_layers(own.values())

    def _require_layers(self, layers: Iterable[set[str]]) -> None:
        for names in layers:
            if unknown := names - _LAYER:
                raise self._refusal(f"its layers have a tensor {min(unknown)}")
            if missing := _REQUIRED - names:
                raise self._refusal(f"a layer lacks {min(missing)}")


def shape_of(target: TargetFile, refusal: Refusal, *, halves: bool) -> CutShape:
    """The sizes of a target's layers. refusal: an error that says why.

    Raises it where layers differ, or are no norm, attention, norm and feed-forward.
    """
    header = target.header

    def own(key: str, default: float | str) -> float | str:
        value = header.own(key)
        return value if isinstance(value, int | float | str) else default

    def number(key: str, default: int = 0) -> int:
        value = header.own(key)
        if value is None:
            return default
        if not isinstance(value, int):
            raise refusal(f"{key} differs from layer to layer")
        return value

    width, heads = number("embedding_length"), number("attention.head_count")
    head = number("attention.key_length", width // max(heads, 1))
    if number("attention.value_length", head) != head:
        raise refusal("its keys and values have different lengths")
    if header.number("expert_count"):
        raise refusal("it is a mixture of experts")
    scaling = own("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise refusal(f"its positions are scaled as {scaling}")
    return CutShape(
        vocabulary=target.n_vocab,
        width=width,
        layers=target.layers,
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head=head,
        feed_forward=number("feed_forward_length"),
        epsilon=float(own("attention.layer_norm_rms_epsilon", 1e-5)),
        rope_base=float(own("rope.freq_base", 10_000.0)),
        turned=number("rope.dimension_count", head),
        halves=halves,
        factor=float(own("rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0,
    )
