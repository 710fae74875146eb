"""EAGLE-3 heads, as SpecForge, SGLang, vLLM and Red Hat publish them, for a GGUF.

docs/heads.md says which layouts are known. The tokenizer is the target's; so are the embedding and
the output matrix where the checkpoint has none.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from localspec.conversion.draft_vocabulary import (
    Ids,
    d2t_tensor,
    draft_ids,
    require_same_vocabulary,
)
from localspec.conversion.eagle3_layout import HeadSizes, require_shapes, tensors_of
from localspec.conversion.head import ConvertedHead
from localspec.conversion.published import Checkpoint, PublishedTensor, tensor_of_rows
from localspec.conversion.rope import Rope
from localspec.conversion.target import TargetFile
from localspec.errors import DrafterMismatchError, InvalidValueError, ModelLoadError
from localspec.gguf.heads import EAGLE3
from localspec.gguf.reader import TensorInfo
from localspec.gguf.rope_rows import interleaved
from localspec.gguf.weights import Weights
from localspec.gguf.writer import Floats, TensorData, TensorType

# The layers that llama.cpp's graph reads.
_READS = 3
# Far above every size that a config.json says.
_MOST = 1 << 31
# Rows of the embedding that are compared with the target's, and how far they may lie apart: much
# more than quantisation does, and much less than other rows do.
_COMPARED, _APART = 64, 0.3


def eagle3_head(
    checkpoint: Checkpoint,
    target: TargetFile,
    type_: TensorType,
    layers: Sequence[int] | None = None,
) -> ConvertedHead:
    """Return the head of a checkpoint.

    type_: of the matrices. layers: of the target, whose input rows the head reads; None: those that
    config.json names, else the usual ones. Raises ModelLoadError for a checkpoint that is broken or
    has what llama.cpp's EAGLE-3 does not, DrafterMismatchError for one that was made for another
    target, InvalidValueError for layers that the target does not have.
    """
    return _Eagle3(checkpoint, target, type_, layers).head()


class _Eagle3:
    """One conversion."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        target: TargetFile,
        type_: TensorType,
        layers: Sequence[int] | None,
    ) -> None:
        self._checkpoint, self._target, self._type = checkpoint, target, type_
        # Speculators keep the sizes of the layer in an object of their own.
        nested = checkpoint.config.get("transformer_layer_config")
        self._config = {**checkpoint.config, **(nested if isinstance(nested, dict) else {})}
        self._notes: list[str] = []
        self._tensors = tensors_of(checkpoint)
        self._sizes = self._read_sizes()
        self._require_plain_layer()
        self._require_target()
        require_shapes(checkpoint, self._tensors, self._sizes, _READS * target.width)
        output = self._tensors.get("output.weight")
        self._ids = draft_ids(checkpoint, target, output.shape[0] if output else None)
        self._layers = self._named_layers() if layers is None else self._checked(layers)
        self._rope = Rope(checkpoint.name, self._config, self._sizes.head)
        self._notes += self._rope.notes
        self._say_if_windowed()

    def head(self) -> ConvertedHead:
        return ConvertedHead(EAGLE3, self._metadata(), [*self._written()], self._notes)

    def _metadata(self) -> dict[str, object]:
        sizes = self._sizes
        found: dict[str, object] = {
            "block_count": 1,
            "context_length": self._number(
                "max_position_embeddings", self._target.header.context_length
            ),
            "embedding_length": sizes.width,
            "feed_forward_length": sizes.narrow,
            "attention.head_count": sizes.heads,
            "attention.head_count_kv": sizes.shared,
            "attention.key_length": sizes.head,
            "attention.value_length": sizes.head,
            "attention.layer_norm_rms_epsilon": self._epsilon(),
            "vocab_size": self._target.n_vocab,
            "target_layers": list(self._layers),
            "target_hidden_size": self._target.width,
            "norm_before_residual": self._norms_before_residual,
            "norm_before_fc": "enc.output_norm.weight" in self._tensors,
            **self._rope.metadata,
        }
        return {f"{EAGLE3}.{key}": value for key, value in found.items()} | self._target.tokenizer

    @property
    def _norms_before_residual(self) -> bool:
        # vLLM's default for speculators, which name it; others do not have the key.
        return bool(self._config.get("norm_before_residual", "speculators_version" in self._config))

    def _written(self) -> Iterator[TensorData]:
        for name, each in self._tensors.items():
            if name == "blk.0.attn_q.weight":
                yield self._turned(name, each, self._sizes.heads)
            elif name == "blk.0.attn_k.weight":
                yield self._turned(name, each, self._sizes.shared)
            elif name not in ("token_embd.weight", "output.weight"):
                yield each.written(name, self._type)
        yield from self._embedding()
        yield from self._output()
        if self._ids is not None:
            yield d2t_tensor(self._ids)
        if self._rope.factors is not None:
            yield TensorData.of("rope_freqs.weight", self._rope.factors, TensorType.F32)

    def _turned(self, name: str, tensor: PublishedTensor, heads: int) -> TensorData:
        """A query or key matrix, its rows in llama.cpp's order."""
        return tensor_of_rows(
            name, tensor.shape, self._type, lambda which: interleaved(tensor.rows(), heads)[which]
        )

    def _embedding(self) -> Iterator[TensorData]:
        """The head's own embedding, unless it is the target's or there is none."""
        own, targets = self._tensors.get("token_embd.weight"), self._target.embedding
        if self._sizes.width != self._target.width:
            targets = None
        if targets and (own is None or _alike(own, *targets)):
            self._notes.append("the embedding is the target's, which the head shares")
            return
        count = self._target.n_vocab
        if own is None or own.shape[0] < count:
            had = "no embedding" if own is None else f"embeddings of {own.shape[0]} tokens"
            raise DrafterMismatchError(
                f"{self._checkpoint.name} has {had}, and cannot use those of {self._target.name}, "
                f"which has {count} tokens; convert it with the target that it was made for"
            )
        yield tensor_of_rows(
            "token_embd.weight",
            (count, self._sizes.width),
            self._type,
            lambda which: own.rows(slice(which.start, min(which.stop, count))),
        )

    def _output(self) -> Iterator[TensorData]:
        """The output matrix; without one, the rows of the target's for the tokens of the head."""
        own, ids = self._tensors.get("output.weight"), self._ids
        if own is not None:
            count = self._target.n_vocab if ids is None else len(ids)
            yield tensor_of_rows(
                "output.weight",
                (count, self._sizes.width),
                self._type,
                lambda which: own.rows(slice(which.start, min(which.stop, count))),
            )
            return
        targets = self._target.output
        if targets is None or self._sizes.width != self._target.width:
            raise DrafterMismatchError(
                f"{self._checkpoint.name} has no lm_head, and cannot use the output matrix of "
                f"{self._target.name}; convert it with the target that it was made for"
            )
        if ids is not None:
            yield _rows_of(targets, ids, self._type)
        self._notes.append("the output matrix is the target's")

    def _read_sizes(self) -> HeadSizes:
        heads = self._number("num_attention_heads")
        width = self._number("hidden_size")
        head, shared = (
            self._number("head_dim", width // heads),
            self._number("num_key_value_heads", heads),
        )
        if head % 2 or heads % shared:
            raise ModelLoadError(
                f"config.json of {self._checkpoint.name} says heads of {head} numbers, {heads} of "
                f"them for {shared} of keys, which makes no sense; download it again"
            )
        return HeadSizes(
            width=width,
            heads=heads,
            shared=shared,
            head=head,
            narrow=self._number("intermediate_size"),
        )

    def _number(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key)
        value = default if value is None else value
        if type(value) is not int or not 1 <= value < _MOST:
            raise self._odd(key, value)
        return value

    def _epsilon(self) -> float:
        value = self._config.get("rms_norm_eps", 1e-6)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise self._odd("rms_norm_eps", value)
        return float(value)

    def _odd(self, key: str, value: object) -> ModelLoadError:
        name = self._checkpoint.name
        what = f"config.json of {name} says {key} = {value!r:.60}"
        if not self._checkpoint.config:
            what = f"{name} has no config.json, which says {key}"
        return ModelLoadError(f"{what}; put the config.json of the head beside its tensors")

    def _require_plain_layer(self) -> None:
        act = self._config.get("hidden_act", "silu")
        if act != "silu":
            raise ModelLoadError(
                f"{self._checkpoint.name} computes with {act!r}, and llama.cpp's EAGLE-3 with "
                "'silu' only"
            )
        needs_norm = bool(self._config.get("norm_before_fc"))
        if needs_norm and "enc.output_norm.weight" not in self._tensors:
            raise ModelLoadError(
                f"{self._checkpoint.name} has no tensor input_norm.weight, and its config.json "
                "says norm_before_fc; download every part of it"
            )

    def _say_if_windowed(self) -> None:
        window, types = self._config.get("sliding_window"), self._config.get("layer_types")
        used = self._config.get("use_sliding_window") is not False and window is not None
        if used and (not isinstance(types, list) or "sliding_attention" in types):
            self._notes.append(
                f"its config.json says sliding_window = {window!r:.60}, and llama.cpp's EAGLE-3 "
                "reads the whole text: fewer drafts may be accepted in longer ones"
            )

    def _require_target(self) -> None:
        """Raise DrafterMismatchError for a head of another target."""
        require_same_vocabulary(self._checkpoint, self._target)
        said, columns = self._config.get("target_hidden_size"), self._tensors["fc.weight"].shape[-1]
        width = said if isinstance(said, int) else columns // _READS
        if width != self._target.width:
            raise DrafterMismatchError(
                f"{self._checkpoint.name} reads hidden rows of {width} numbers, and those of "
                f"{self._target.name} have {self._target.width}; convert it with the target that "
                "it was made for"
            )
        if columns != _READS * width:
            raise ModelLoadError(
                f"{self._checkpoint.name} reads {columns} numbers, which are not {_READS} rows of "
                f"{width}; llama.cpp's EAGLE-3 reads {_READS} layers"
            )

    def _named_layers(self) -> Sequence[int]:
        """The layers of config.json, as the inputs of layers, which llama.cpp counts."""
        key, eagle = "eagle_aux_hidden_state_layer_ids", self._config.get("eagle_config")
        named = self._config.get(key) or (eagle.get(key) if isinstance(eagle, dict) else None)
        if not named:
            count = self._target.layers
            return self._checked((2, count // 2, count - 3))
        if not (isinstance(named, list) and all(type(each) is int for each in named)):
            raise ModelLoadError(
                f"config.json of {self._checkpoint.name} says {key} = {named!r:.60}; name the "
                "layers with --layers"
            )
        if named[0] != 1:
            return self._checked(named)
        # Some name the layer whose output is read. SGLang tells them by the first number, too: the
        # input of layer 1 is in no use.
        layers = self._checked([each + 1 for each in named])
        self._notes.append(
            f"its config.json names the outputs of layers {_listed(named)}, which are the inputs "
            f"of {_listed(layers)}; --layers {_listed(named)} reads their inputs instead"
        )
        return layers

    def _checked(self, layers: Sequence[int]) -> Sequence[int]:
        count = self._target.layers
        if len(layers) == _READS and all(0 <= each <= count for each in layers):
            return layers
        raise InvalidValueError(
            f"layers is {_listed(layers)}; name {_READS} of the {count} layers of "
            f"{self._target.name}, from 0 to {count}, where {count} is the output of the last"
        )


def _listed(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))


def _alike(own: PublishedTensor, targets: Weights, tensor: TensorInfo) -> bool:
    """Whether an embedding is the target's, apart from quantisation, by some of its rows.

    One whose type cannot be read here is taken for another.
    """
    count = min(own.shape[0], tensor.shape[1])
    which = np.unique(np.linspace(0, count - 1, _COMPARED).astype(np.intp))
    try:
        theirs = targets.rows(tensor, which)
    except InvalidValueError:
        return False
    mine = np.concatenate([own.rows(slice(row, row + 1)) for row in which])
    return float(np.linalg.norm(mine - theirs)) < _APART * float(np.linalg.norm(theirs))


def _rows_of(matrix: tuple[Weights, TensorInfo], ids: Ids, type_: TensorType) -> TensorData:
    """The output matrix of some tokens of the target."""
    weights, tensor = matrix

    def rows(which: slice) -> Floats:
        return weights.rows(tensor, ids[which].astype(np.intp))

    return tensor_of_rows("output.weight", (len(ids), tensor.shape[0]), type_, rows)
