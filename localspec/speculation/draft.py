"""Draft: the tokens proposed for one step, as a tree whose common case is a chain."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution

# The node before every draft: the pending token, whose row decides the first drafted position.
ROOT = -1
# The most tokens a draft may hold. A pass has a row for each and one more, and from 64 rows on
# llama.cpp's CPU flash attention computes in tiles, whose bits are not those of narrower passes.
MAX_DEPTH = 62


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposed token: its node, its id, and the distribution that it was drawn from.

    probs: None for a one-hot proposal, whose token was chosen and not drawn.
    """

    node: int
    token: int
    probs: Distribution | None

    def over(self, ids: NDArray[np.intp] | None, n: int) -> NDArray[np.float64]:
        """(n,) the probability of proposing each of these tokens (None: those below n)."""
        if self.probs is None:
            tokens = np.arange(n) if ids is None else ids
            return np.asarray(tokens == self.token, np.float64)
        return self.probs.over(ids, n)


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, in an order where parents come before their children.

    tokens: the proposed token ids; node i proposes tokens[i].
    parents: the node that each one follows (ROOT for the first position); None means a chain, where
        node i follows node i - 1.
    probs: the distribution that each token was drawn from; None means that the tokens are one-hot
        proposals (as n-gram drafters make). A drafter may stop before a draw, but a token that was
        drawn must be proposed: the rejection rules would be biased otherwise.

    A row of the target's logits belongs to each node: row 0 to ROOT, row i + 1 to node i.
    """

    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    probs: Sequence[Distribution] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def parent(self, node: int) -> int:
        """The node before `node`."""
        return node - 1 if self.parents is None else self.parents[node]

    def child(self, node: int, token: int) -> int | None:
        """The node that proposes `token` right after `node`, if there is one."""
        if self.parents is None:
            following = node + 1
            return following if following < len(self) and self.tokens[following] == token else None
        for following in range(node + 1, len(self)):
            if self.parents[following] == node and self.tokens[following] == token:
                return following
        return None

    def proposals_after(self, node: int) -> list[Proposal]:
        """The draws made right after `node`, in their order."""
        if self.parents is None:
            children = [node + 1] if node + 1 < len(self) else []
        else:
            children = [child for child, parent in enumerate(self.parents) if parent == node]
        return [
            Proposal(node, self.tokens[node], self.probs[node] if self.probs else None)
            for node in children
        ]

    def is_leaf(self, node: int) -> bool:
        """Whether nothing is proposed after `node`."""
        if self.parents is None:
            return node == len(self) - 1
        return node not in self.parents

    def path(self, node: int) -> list[int]:
        """The nodes from the first position down to `node`; none for ROOT."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parent(node)
        return nodes[::-1]

    def first(self, count: int) -> "Draft":
        """The draft cut to its first `count` nodes."""
        if len(self) <= count:
            return self
        return Draft(
            self.tokens[:count],
            self.parents and self.parents[:count],
            self.probs and self.probs[:count],
        )


NOTHING = Draft(())
