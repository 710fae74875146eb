"""Transformer: a llama-architecture language model in torch, tied output, for training on a CPU."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.bundled_pair.gguf_import import TrainedFile
from localspec.training.layers import Layer, Rotating, rotated, started
from localspec.training.sizes import EPSILON, Sizes


class Block(Layer):
    """Causal attention, then feed-forward."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.sizes = sizes.width, sizes
        self.attention_norm = nn.RMSNorm(width, EPSILON)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.add_feed_forward(sizes)

    def forward(self, rows: Tensor, cos: Tensor, sin: Tensor, visible: Tensor | None) -> Tensor:
        batch, length, width = rows.shape
        shape = (batch, length, 3, self.sizes.heads, self.sizes.head)
        q, k, v = self.qkv(self.attention_norm(rows)).view(shape).unbind(2)
        mixed = F.scaled_dot_product_attention(
            rotated(q, cos, sin).transpose(1, 2),
            rotated(k, cos, sin).transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=visible,
            is_causal=visible is None,
        )
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        return self.fed_forward(rows + self.output(mixed))


class Transformer(Rotating):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, EPSILON)
        started(self, sizes.layers)

    @classmethod
    def of(cls, file: TrainedFile) -> Self:
        """The model of a file, to train it further."""
        model = cls(file.sizes)
        weights = file.weights.items()
        model.load_state_dict({name: torch.from_numpy(weight.copy()) for name, weight in weights})
        return model

    def forward(
        self, tokens: Tensor, wanted: Tensor | None = None, visible: Tensor | None = None
    ) -> Tensor:
        """Logits of the wanted rows, (wanted, vocabulary), or of all rows.

        tokens: (texts, length). wanted: bool, (texts, length). visible: bool, (texts, 1, length,
        length), what each token attends to; None: itself and all before it.
        """
        rows = self.hidden(tokens, visible)
        rows = rows.flatten(0, 1) if wanted is None else rows[wanted]
        return F.linear(rows, self.embedding.weight)

    def hidden(self, tokens: Tensor, visible: Tensor | None) -> Tensor:
        """The rows behind the last norm, (texts, length, width)."""
        return self.norm(self.states(tokens, visible)[-1])

    def states(self, tokens: Tensor, visible: Tensor | None) -> list[Tensor]:
        """The rows that enter each block, and those that leave the last."""
        states = [self.embedding(tokens)]
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for block in self.blocks:
            states.append(block(states[-1], cos, sin, visible))
        return states


def save(model: Transformer, path: Path, **also: Any) -> None:
    temporary = path.with_suffix(".part")
    torch.save({"sizes": asdict(model.sizes), "weights": model.state_dict(), **also}, temporary)
    temporary.replace(path)


def load(path: Path) -> tuple[Transformer, dict[str, Any]]:
    """The model, and all that was saved with it."""
    saved = torch.load(path, weights_only=True)
    model = Transformer(Sizes(**saved["sizes"]))
    model.load_state_dict(saved["weights"])
    return model, saved


def without_layers(model: Transformer, kept: list[int]) -> Transformer:
    """A copy of the model with only these layers: where a draft model starts from."""
    sizes = Sizes(**{**asdict(model.sizes), "layers": len(kept)})
    smaller = Transformer(sizes)
    smaller.embedding.load_state_dict(model.embedding.state_dict())
    smaller.norm.load_state_dict(model.norm.state_dict())
    for block, layer in zip(smaller.blocks, kept, strict=True):
        block.load_state_dict(model.blocks[layer].state_dict())
    return smaller
