"""Cut model in torch: some layers of a target, with the names that its GGUF gives their weights."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.cut_shape import CutShape, CutSource


class RotaryEmbedding(nn.Module):
    """Turns queries and keys by their position (Su et al. 2021, RoPE)."""

    def __init__(self, shape: CutShape, factors: Tensor | None) -> None:
        super().__init__()
        self._turned, self._halves = shape.turned, shape.halves
        speeds = shape.rope_base ** -(torch.arange(0, shape.turned, 2).double() / shape.turned)
        speeds = speeds / shape.factor / (1.0 if factors is None else factors.double())
        self.register_buffer("speeds", speeds.float(), persistent=False)

    def angles(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (length, 1, turned / 2)."""
        angles = torch.outer(torch.arange(length, device=self.speeds.device).float(), self.speeds)
        return angles.cos()[:, None], angles.sin()[:, None]

    def forward(self, heads: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """heads: (texts, length, heads, size)."""
        turning, rest = heads.split([self._turned, heads.shape[-1] - self._turned], -1)
        cos, sin = angles
        if self._halves:
            first, second = turning.chunk(2, -1)
        else:
            first, second = turning[..., ::2], turning[..., 1::2]
        turned = first * cos - second * sin, first * sin + second * cos
        if self._halves:
            return torch.cat([*turned, rest], -1)
        return torch.cat([torch.stack(turned, -1).flatten(-2), rest], -1)


class CutLayer(nn.Module):
    """One layer, (texts, length, width) to the same."""

    def __init__(self, shape: CutShape, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self._shape = shape
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            self.add_module(name, linear(weights, name))
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            self.add_module(name, linear(weights, name))
        for name in ("attn_norm", "ffn_norm"):
            self.add_module(name, norm(weights[f"{name}.weight"], shape.epsilon))
        for name in ("attn_q_norm", "attn_k_norm"):
            weight = weights.get(f"{name}.weight")
            self.add_module(name, nn.Identity() if weight is None else norm(weight, shape.epsilon))

    def forward(
        self, rows: Tensor, turns: RotaryEmbedding, angles: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The rows that leave the layer."""
        texts, length, _ = rows.shape
        normed = self.attn_norm(rows)
        size = self._shape.head
        q = turns(self.attn_q_norm(self.attn_q(normed).view(texts, length, -1, size)), angles)
        k = turns(self.attn_k_norm(self.attn_k(normed).view(texts, length, -1, size)), angles)
        v = self.attn_v(normed).view(texts, length, -1, size)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        group = self._shape.heads // self._shape.kv_heads
        if group > 1:
            k, v = (each.repeat_interleave(group, 1) for each in (k, v))
        mixed = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        rows = rows + self.attn_output(mixed.transpose(1, 2).reshape(texts, length, -1))
        normed = self.ffn_norm(rows)
        return rows + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class CutModel(nn.Module):
    """Some layers of a target, between its embedding and its output matrix.

    kept: the numbers of the layers. trains_tables: whether the embedding and the output matrix are
    trained too; else they stay as they are in the target.
    """

    def __init__(self, source: CutSource, kept: list[int], *, trains_tables: bool) -> None:
        super().__init__()
        shape, self.kept = source.shape, kept
        self.token_embd = _table(source, "token_embd.weight", trained=trains_tables)
        self.output = (
            None if source.is_tied else _table(source, "output.weight", trained=trains_tables)
        )
        self.blk = nn.ModuleList(read_layer(source, number) for number in kept)
        self.output_norm = norm(_tensor(source, "output_norm.weight"), shape.epsilon)
        self.turns = turns_of(source)

    @property
    def table(self) -> Tensor:
        """The output matrix, (vocabulary, width)."""
        return (self.output or self.token_embd).weight

    def forward(self, tokens: Tensor) -> Tensor:
        """The rows behind the output norm, (texts, length, width). tokens: (texts, length)."""
        rows = self.token_embd(tokens)
        angles = self.turns.angles(tokens.shape[1])
        for layer in self.blk:
            rows = layer(rows, self.turns, angles)
        return self.output_norm(rows)


def read_layer(source: CutSource, number: int) -> CutLayer:
    """A layer of the target."""
    weights = source.layer(number).items()
    tensors = {name: torch.from_numpy(weight.copy()) for name, weight in weights}
    return CutLayer(source.shape, tensors)


def turns_of(source: CutSource) -> RotaryEmbedding:
    """How the target turns queries and keys."""
    name = "rope_freqs.weight"
    factors = _tensor(source, name) if source.has(name) else None
    return RotaryEmbedding(source.shape, factors)


class Norm(nn.RMSNorm):
    """The norm of rows (Zhang and Sennrich 2019), in 32-bit floats, whatever the rows are."""

    def forward(self, rows: Tensor) -> Tensor:
        """rows: (..., width)."""
        return super().forward(rows.float())


def norm(weight: Tensor, epsilon: float) -> Norm:
    """A norm of these weights."""
    made = Norm(weight.shape[0], epsilon)
    made.weight = nn.Parameter(weight.clone())
    return made


def linear(weights: Mapping[str, Tensor], name: str) -> nn.Linear:
    """A layer with the weight and the bias of this name."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    # The weights that it is made with are replaced: they need no time and no random numbers.
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = nn.Parameter(weight)
    if bias is not None:
        made.bias = nn.Parameter(bias)
    return made


def _table(source: CutSource, name: str, *, trained: bool) -> nn.Embedding:
    return nn.Embedding.from_pretrained(_tensor(source, name), freeze=not trained)


def _tensor(source: CutSource, name: str) -> Tensor:
    return torch.from_numpy(source.floats(name).copy())
