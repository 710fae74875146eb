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
    """One draw of a drafter: the node it became, and the law it was drawn from.

    node: None for a draw that was looked at and thrown away. token: what was drawn (-1 if thrown
    away). law: None for a one-hot proposal. kept: of the law's tokens, those that would not have
    been thrown away; None means all.
    """

    node: int | None
    token: int
    law: Distribution | None
    kept: NDArray[np.intp] | None = None

    def over(self, ids: NDArray[np.intp] | None, n: int) -> NDArray[np.float64]:
        """(n,) the chance that each of these tokens (None: those below n) came out as a node."""
        if self.law is None:
            tokens = np.arange(n) if ids is None else ids
            return np.asarray(tokens == self.token, np.float64)
        chances = self.law.over(ids, n)
        if self.kept is not None:
            chances[~np.isin(np.arange(n) if ids is None else ids, self.kept)] = 0
        return chances


@dataclass(frozen=True, slots=True)
class Dropped:
    """A draw that a drafter looked at and threw away.

    after: the node it would have followed. law: what it was drawn from. kept: the token ids that
    would not have been thrown away.
    """

    after: int
    law: Distribution
    kept: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, in an order where parents come before their children.

    tokens: the proposed token ids; node i proposes tokens[i].
    parents: the node each one follows (ROOT for the first position); None means a chain, where
        node i follows node i - 1.
    proposals: the distribution each token was really drawn from; None means the tokens are one-hot
        proposals (as n-gram drafters make).
    kept: for a drafter that throws draws away for what they are, the token ids each draw could
        have become a node with; the rejection rules must know. (Stopping before a draw needs no
        mention.)
    dropped: the draw that was thrown away, if there was one.

    A row of the target's logits belongs to each node: row 0 to ROOT, row i + 1 to node i.
    """

    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    proposals: Sequence[Distribution] | None = None
    kept: Sequence[NDArray[np.intp]] | None = None
    dropped: Dropped | None = None

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
        laws, kept = self.proposals, self.kept
        draws = [
            Proposal(i, self.tokens[i], laws[i] if laws else None, kept[i] if kept else None)
            for i in children
        ]
        if self.dropped and self.dropped.after == node:
            draws.append(Proposal(None, -1, self.dropped.law, self.dropped.kept))
        return draws

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
            self.proposals and self.proposals[:count],
            self.kept and self.kept[:count],
            self.dropped if self.dropped and self.dropped.after < count else None,
        )


NOTHING = Draft(())
