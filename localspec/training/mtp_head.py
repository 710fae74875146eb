"""MTP head in torch: the block of multi-token prediction of Qwen 3.5, with its names in a GGUF.

DeepSeek-V3 2024, https://arxiv.org/abs/2412.19437, section 2.2. The pair at position p is the token
x_p with the target's row at p - 1; it predicts x_{p+1}. In training the head goes on for a few
tokens with its own rows, as it does when it drafts.
"""

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.cut_model import RotaryEmbedding, linear, norm
from localspec.training.cut_shape import CutShape
from localspec.training.eagle3_head import STEPS, Past, later
from localspec.training.sizes import Floats

# The tensors behind `blk.N.`, without `.weight`: a layer of gated attention as in the target, and
# what makes it a head.
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm")
LAYER = (*_MATRICES, *_NORMS)
JOIN, OWN_NORM = "nextn.eh_proj", "nextn.shared_head_norm"
HEAD_NORMS = ("nextn.enorm", "nextn.hnorm", OWN_NORM)
TENSORS = tuple(f"{name}.weight" for name in (*LAYER, JOIN, *HEAD_NORMS))


class MtpHead(nn.Module):
    """A head for a target. shape: of the target's layers. weights: by the names of TENSORS."""

    def __init__(self, shape: CutShape, weights: Mapping[str, Floats]) -> None:
        super().__init__()
        self._shape, self._turns = shape, RotaryEmbedding(shape, None)
        tensors = {name: torch.from_numpy(weights[name].copy()) for name in TENSORS}
        self.nextn = nn.ModuleDict()
        for name in (*_MATRICES, JOIN):
            self._add(name, linear(tensors, name))
        for name in (*_NORMS, *HEAD_NORMS):
            self._add(name, norm(tensors[f"{name}.weight"], shape.epsilon))

    def _add(self, name: str, part: nn.Module) -> None:
        group, _, last = name.rpartition(".")
        (self.nextn if group else self).add_module(last, part)

    def drafts(self, states: Tensor, embedded: Tensor, visible: Tensor) -> Iterator[Tensor]:
        """Yield the head's own rows for each of STEPS drafted tokens, (texts, length, width).

        states: the target's rows of the tokens before. embedded: the embeddings of the tokens.
        visible: bool, (length, length), what each token attends to. The row of a place stands for
        a draft that began as many places before as tokens were drafted.
        """
        past = Past()
        for step in range(STEPS):
            states = self(embedded, states if step == 0 else later(states, 1), past, visible)
            yield states

    def forward(self, embedded: Tensor, states: Tensor, past: Past, visible: Tensor) -> Tensor:
        """The head's own rows, (texts, length, width), of a further drafted token at each place.

        past: the keys and values of the pairs before; those of these are added to it.
        """
        pairs = torch.cat([self.nextn["enorm"](embedded), self.nextn["hnorm"](states)], -1)
        rows = self.nextn["eh_proj"](pairs)
        rows = rows + self._mixed(self.attn_norm(rows), past, visible)
        normed = self.post_attention_norm(rows)
        rows = rows + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))
        return self.nextn["shared_head_norm"](rows)

    def _mixed(self, rows: Tensor, past: Past, visible: Tensor) -> Tensor:
        """What attention reads, behind its gate."""
        shape, (texts, length, _) = self._shape, rows.shape
        angles = self._turns.angles(length)
        both = self.attn_q(rows).view(texts, length, shape.heads, 2 * shape.head)
        query, gate = both.split(shape.head, -1)
        query = self._turns(self.attn_q_norm(query), angles)
        key = self.attn_k(rows).view(texts, length, shape.kv_heads, shape.head)
        key = self._turns(self.attn_k_norm(key), angles)
        value = self.attn_v(rows).view(texts, length, shape.kv_heads, shape.head)
        group = shape.heads // shape.kv_heads
        past.add(*(each.transpose(1, 2).repeat_interleave(group, 1) for each in (key, value)))
        mixed = past.attend(query.transpose(1, 2), visible).transpose(1, 2) * gate.sigmoid()
        return self.attn_output(mixed.reshape(texts, length, -1))
