"""A small qwen35 that has learnt something: questions about the terminal, and what answers them.

    python -m fakes.learnt_qwen35 FILE.gguf

The questions lie beside it as FILE.jsonl, for `localspec train FILE.gguf --from FILE.jsonl`.
Two of its four layers have a running state, as in Qwen 3.5 (Yang et al. 2024, Gated Delta Networks,
https://arxiv.org/abs/2412.06464). Its tokenizer is that of the bundled target, whose answers it
learns.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import localspec
from localspec.conversion.target import TargetFile
from localspec.distillation.prompt_set import terminal_prompts
from localspec.distillation.texts import tokenized
from localspec.gguf.writer import TensorData, TensorType, write_gguf
from localspec.models import registry
from localspec.training.optimizers import optimizers, set_rate

EPSILON, BASE, KERNEL = 1e-6, 10_000.0, 4
_RATE = 4e-3
_ROWS = 16


@dataclass(frozen=True)
class Shape:
    """heads, shared: of attention, of queries and of keys. states: heads with a running state."""

    width: int = 128
    layers: int = 4
    heads: int = 4
    shared: int = 2
    head: int = 32
    states: int = 4
    state: int = 16
    feed_forward: int = 256

    def is_recurrent(self, layer: int) -> bool:
        return layer % 2 == 0


class _Layer(nn.Module):
    """A layer, whose parameters have the names that its GGUF gives them."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self._shape, width = shape, shape.width
        self.attn_norm = nn.RMSNorm(width, EPSILON)
        self.post_attention_norm = nn.RMSNorm(width, EPSILON)
        self.ffn_gate = nn.Linear(width, shape.feed_forward, bias=False)
        self.ffn_up = nn.Linear(width, shape.feed_forward, bias=False)
        self.ffn_down = nn.Linear(shape.feed_forward, width, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows + self.mixed(self.attn_norm(rows))
        normed = self.post_attention_norm(rows)
        return rows + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))

    def mixed(self, rows: Tensor) -> Tensor:
        raise NotImplementedError


class _Attention(_Layer):
    """With each query comes a gate of its size."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__(shape, number)
        width, head = shape.width, shape.head
        self.attn_q = nn.Linear(width, 2 * shape.heads * head, bias=False)
        self.attn_k = nn.Linear(width, shape.shared * head, bias=False)
        self.attn_v = nn.Linear(width, shape.shared * head, bias=False)
        self.attn_output = nn.Linear(shape.heads * head, width, bias=False)
        self.attn_q_norm = nn.RMSNorm(head, EPSILON)
        self.attn_k_norm = nn.RMSNorm(head, EPSILON)

    def mixed(self, rows: Tensor) -> Tensor:
        texts, length, _ = rows.shape
        shape, group = self._shape, self._shape.heads // self._shape.shared
        both = self.attn_q(rows).view(texts, length, shape.heads, 2, shape.head)
        q = _turned(self.attn_q_norm(both[..., 0, :]))
        k = _turned(self.attn_k_norm(self.attn_k(rows).view(texts, length, -1, shape.head)))
        v = self.attn_v(rows).view(texts, length, -1, shape.head)
        k, v = (each.repeat_interleave(group, 2) for each in (k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.attn_output((found * both[..., 1, :].sigmoid()).flatten(2))


class _RunningState(_Layer):
    """A gated delta rule: the state forgets a share, and learns what a value differs by."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__(shape, number)
        width, inner = shape.width, shape.states * shape.state
        self.attn_qkv = nn.Linear(width, 3 * inner, bias=False)
        self.attn_gate = nn.Linear(width, inner, bias=False)
        self.ssm_conv1d = nn.Parameter(torch.randn(3 * inner, KERNEL) / KERNEL)
        self.ssm_dt = nn.Parameter(torch.zeros(shape.states))
        self.ssm_a = nn.Parameter(-torch.linspace(0.05, 0.5, shape.states))
        self.ssm_beta = nn.Linear(width, shape.states, bias=False)
        self.ssm_alpha = nn.Linear(width, shape.states, bias=False)
        self.ssm_norm = nn.RMSNorm(shape.state, EPSILON)
        self.ssm_out = nn.Linear(inner, width, bias=False)

    def mixed(self, rows: Tensor) -> Tensor:
        texts, length, _ = rows.shape
        states, size = self._shape.states, self._shape.state
        joined = F.pad(self.attn_qkv(rows).transpose(1, 2), (KERNEL - 1, 0))
        joined = F.silu(F.conv1d(joined, self.ssm_conv1d[:, None], groups=joined.shape[1]))
        q, k, v = joined.transpose(1, 2).reshape(texts, length, 3, states, size).unbind(2)
        q, k = (each * (each.square().sum(-1, keepdim=True) + EPSILON).rsqrt() for each in (q, k))
        learns = self.ssm_beta(rows).sigmoid()[..., None, None]
        keeps = (F.softplus(self.ssm_alpha(rows) + self.ssm_dt) * self.ssm_a).exp()
        state, found = rows.new_zeros(texts, states, size, size), []
        for place in range(length):
            key = k[:, place, :, :, None]
            state = state * keeps[:, place, :, None, None]
            differs = v[:, place, :, None] - (state * key).sum(2, keepdim=True)
            state = state + key * (differs * learns[:, place])
            found.append((state * q[:, place, :, :, None]).sum(2) * size**-0.5)
        gate = F.silu(self.attn_gate(rows)).view(texts, length, states, size)
        return self.ssm_out((self.ssm_norm(torch.stack(found, 1)) * gate).flatten(2))


class Qwen35(nn.Module):
    """The model; its embedding is its output matrix too."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(vocabulary, shape.width)
        kinds = [
            _RunningState if shape.is_recurrent(number) else _Attention
            for number in range(shape.layers)
        ]
        self.blk = nn.ModuleList(kind(shape, number) for number, kind in enumerate(kinds))
        self.output_norm = nn.RMSNorm(shape.width, EPSILON)
        for name, weight in self.named_parameters():
            if weight.dim() > 1 and not name.endswith("ssm_conv1d"):
                nn.init.normal_(weight, 0, 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits, (texts, length, vocabulary)."""
        rows = self.token_embd(tokens)
        for layer in self.blk:
            rows = layer(rows)
        return self.output_norm(rows) @ self.token_embd.weight.T


def _turned(heads: Tensor) -> Tensor:
    """(texts, length, heads, size) with the halves of each head turned by their position."""
    size = heads.shape[-1]
    angles = torch.outer(
        torch.arange(heads.shape[1]).float(), BASE ** -(torch.arange(0, size, 2) / size)
    )
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


def learn(model: Qwen35, texts: Sequence[tuple[list[int], int]], rounds: int) -> float:
    """Train on texts, each with the length of its prompt; return the last loss."""
    made, rng = optimizers(model, _RATE), np.random.default_rng(1)
    by_length = sorted(texts, key=lambda each: len(each[0]))
    groups = [by_length[start : start + _ROWS] for start in range(0, len(texts), _ROWS)]
    steps, step, loss = rounds * len(groups), 0, torch.zeros(())
    for _ in range(rounds):
        for number in rng.permutation(len(groups)):
            tokens, wanted = _batch(groups[number])
            logits = model(tokens[:, :-1])[wanted[:, 1:]]
            loss = F.cross_entropy(logits, tokens[:, 1:][wanted[:, 1:]])
            loss.backward()
            set_rate(made, _RATE * min(1.0, (step + 1) / 20) * (1 - step / steps))
            for optimizer in made:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step += 1
    return loss.item()


def _batch(texts: Sequence[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    """Tokens, and where they are of an answer."""
    length = max(len(tokens) for tokens, _ in texts)
    tokens, wanted = torch.zeros(len(texts), length, dtype=torch.long), []
    for number, (own, prompt) in enumerate(texts):
        tokens[number, : len(own)] = torch.tensor(own)
        wanted.append([prompt <= place < len(own) for place in range(length)])
    return tokens, torch.tensor(wanted)


def write(model: Qwen35, tokenizer: TargetFile, path: Path) -> Path:
    """Write the model as F32. tokenizer: the model whose tokenizer it has."""
    shape = model.shape
    own = {
        "block_count": shape.layers,
        "context_length": 512,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.shared,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "attention.layer_norm_rms_epsilon": EPSILON,
        "attention.recurrent_layers": [shape.is_recurrent(each) for each in range(shape.layers)],
        "rope.dimension_count": shape.head,
        "rope.dimension_sections": [shape.head // 4, shape.head // 8, shape.head // 8, 0],
        "rope.freq_base": BASE,
        "ssm.conv_kernel": KERNEL,
        "ssm.inner_size": shape.states * shape.state,
        "ssm.state_size": shape.state,
        "ssm.time_step_rank": shape.states,
        "ssm.group_count": shape.states,
    }
    metadata = {f"qwen35.{key}": value for key, value in own.items()} | tokenizer.tokenizer
    write_gguf(path, "qwen35", {**metadata, "general.name": path.stem}, list(_tensors(model)))
    return path


def _tensors(model: Qwen35) -> Iterator[TensorData]:
    ends = {"ssm_conv1d": ".weight", "ssm_dt": ".bias"}
    for name, weight in model.state_dict().items():
        values = weight.numpy()
        yield TensorData.of(name + ends.get(name.rpartition(".")[2], ""), values, TensorType.F32)


def answered(prompts: Sequence[str], most: int) -> list[tuple[list[int], int]]:
    """What the bundled target says, at most so many tokens: each text, and its prompt's length."""
    with localspec.load(registry.bundled().target, threads=1, context=512) as engine:
        asked = tokenized(engine, [[{"role": "user", "content": each}] for each in prompts])
        options: dict[str, Any] = {"max_tokens": most, "temperature": 0}
        said = [engine.generate(tokens, **options).token_ids for tokens in asked]
    return [([*ask, *say], len(ask)) for ask, say in zip(asked, said, strict=True)]


def write_learnt(path: Path, prompts: Sequence[str], rounds: int, most: int, shape: Shape) -> float:
    """Write a model that has learnt what the bundled target says to prompts; return its loss."""
    tokenizer = TargetFile(registry.bundled().target)
    torch.manual_seed(1)
    model = Qwen35(shape, tokenizer.n_vocab)
    loss = learn(model, answered(prompts, most), rounds)
    write(model, tokenizer, path)
    return loss


def main(path: str) -> None:
    torch.set_num_threads(1)
    prompts = terminal_prompts()[:320]
    loss = write_learnt(Path(path), prompts, rounds=12, most=64, shape=Shape())
    chats = [{"messages": [{"role": "user", "content": each}]} for each in prompts]
    lines = "".join(f"{json.dumps(each)}\n" for each in chats)
    Path(path).with_suffix(".jsonl").write_text(lines, encoding="utf-8")
    sys.stdout.write(f"{path}: loss {loss:.2f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
