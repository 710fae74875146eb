"""Draft: the tokens proposed for one step, as a tree; most drafts are chains."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import DrafterMismatchError
from localspec.sampling.distribution import Distribution

# The root of every draft: the pending token. Its row of logits decides the first drafted position.
ROOT = -1
# The most tokens of a draft. A pass has one row more than its draft. From 64 rows on, llama.cpp's
# CPU flash attention computes in tiles, and the logits differ in their last bits.
MAX_DEPTH = 62


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposed token: its node, its id, and the distribution it was drawn from.

    probs: None for a one-hot proposal: the token was chosen without a draw.
    """

    node: int
    token: int
    probs: Distribution | None

    def over(self, ids: NDArray[np.intp] | None, n: int) -> NDArray[np.float64]:
        """Return (n,) the probability of proposing each token of `ids`; None: tokens 0 to n - 1."""
        if self.probs is None:
            tokens = np.arange(n) if ids is None else ids
            return np.asarray(tokens == self.token, np.float64)
        return self.probs.over(ids, n)


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens; parents come before their children.

    tokens: the proposed token ids; node i proposes tokens[i].
    parents: the parent node of each node (ROOT for the first position); None means a chain: the
        parent of node i is node i - 1.
    probs: the distribution that each token was drawn from; None means one-hot proposals, as n-gram
        drafters make them. A drafter may stop before a draw, but must propose every token that it
        has drawn: the rejection rules would be biased otherwise.
    predicted: whether the tokens are of a prediction that came with the text.

    The target computes one row of logits per node: row 0 for ROOT, row i + 1 for node i.
    """

    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    probs: Sequence[Distribution] | None = None
    predicted: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def parent(self, node: int) -> int:
        """The parent of `node`."""
        return node - 1 if self.parents is None else self.parents[node]

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` that proposes `token`, or None."""
        if self.parents is None:
            following = node + 1
            return following if following < len(self) and self.tokens[following] == token else None
        for following in range(node + 1, len(self)):
            if self.parents[following] == node and self.tokens[following] == token:
                return following
        return None

    def proposals_after(self, node: int) -> list[Proposal]:
        """The proposals of the children of `node`, in the order of their draws."""
        if self.parents is None:
            children = [node + 1] if node + 1 < len(self) else []
        else:
            children = [child for child, parent in enumerate(self.parents) if parent == node]
        return [
            Proposal(node, self.tokens[node], self.probs[node] if self.probs else None)
            for node in children
        ]

    def is_leaf(self, node: int) -> bool:
        """Whether `node` has no children."""
        if self.parents is None:
            return node == len(self) - 1
        return node not in self.parents

    def path(self, node: int) -> list[int]:
        """The nodes from the first position to `node`, both included; empty for ROOT."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parent(node)
        return nodes[::-1]

    @property
    def branches(self) -> int:
        """The number of leaves; 0 for an empty draft."""
        if self.parents is None:
            return min(1, len(self))
        return len(self) - len(set(self.parents) - {ROOT})

    def first_branch(self) -> "Draft":
        """The chain of first children: it does not depend on what was drawn at other nodes."""
        if self.parents is None:
            return self
        nodes, node = list[int](), ROOT
        while node in self.parents:
            node = self.parents.index(node)
            nodes.append(node)
        tokens = [self.tokens[each] for each in nodes]
        return Draft(tokens, probs=self.probs and [self.probs[each] for each in nodes])

    def first(self, count: int) -> "Draft":
        """Cut the draft to its first `count` nodes."""
        if len(self) <= count:
            return self
        return Draft(
            self.tokens[:count],
            self.parents and self.parents[:count],
            self.probs and self.probs[:count],
            self.predicted,
        )


NOTHING = Draft(())


def require_tree(draft: Draft, name: str) -> None:
    """Raise DrafterMismatchError for parents that do not come before their children."""
    if draft.parents is None:
        return
    in_order = all(ROOT <= parent < node for node, parent in enumerate(draft.parents))
    if not in_order or len(draft.parents) != len(draft):
        raise DrafterMismatchError(
            f"drafter {name!r} proposed {len(draft)} tokens with the parents "
            f"{list(draft.parents)}; each token has one parent, which comes before it"
        )


def require_known(draft: Draft, name: str, n_vocab: int) -> None:
    """Raise DrafterMismatchError for a token that the target does not know."""
    for token in draft.tokens:
        if not 0 <= token < n_vocab:
            raise DrafterMismatchError(
                f"drafter {name!r} proposed token {token}; the target knows 0 to {n_vocab - 1}"
            )
