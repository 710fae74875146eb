"""Draft: the tokens proposed for one step, as a tree whose common case is a chain."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.sampling.distribution import Distribution

# The node before every draft: the pending token, whose row decides the first drafted position.
ROOT = -1
# The most tokens a draft may hold: one pass has a row for each, and one more.
MAX_DEPTH = 63


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, in an order where parents come before their children.

    tokens: the proposed token ids; node i proposes tokens[i].
    parents: the node each one follows (ROOT for the first position); None means a chain, where
        node i follows node i - 1.
    proposals: the distribution each token was really drawn from; None means the tokens are one-hot
        proposals (as n-gram drafters make).

    A row of the target's logits belongs to each node: row 0 to ROOT, row i + 1 to node i.
    """

    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    proposals: Sequence[Distribution] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def child(self, node: int, token: int) -> int | None:
        """The node that proposes `token` right after `node`, if there is one."""
        if self.parents is None:
            following = node + 1
            return following if following < len(self) and self.tokens[following] == token else None
        for following in range(node + 1, len(self)):
            if self.parents[following] == node and self.tokens[following] == token:
                return following
        return None

    def is_leaf(self, node: int) -> bool:
        """Whether nothing is proposed after `node`."""
        if self.parents is None:
            return node == len(self) - 1
        return node not in self.parents

    def path(self, node: int) -> list[int]:
        """The nodes from the first position down to `node`; none for ROOT."""
        if self.parents is None:
            return list(range(node + 1))
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def first(self, count: int) -> "Draft":
        """The draft cut to its first `count` nodes."""
        if len(self) <= count:
            return self
        return Draft(
            self.tokens[:count],
            None if self.parents is None else self.parents[:count],
            None if self.proposals is None else self.proposals[:count],
        )


NOTHING = Draft(())
