"""Tree: the branches of a draft that is a tree, as the library's sequence ids need them."""

from localspec.speculation.draft import Draft


class Tree:
    """A draft by its branches, each of which ends at a leaf; branch 0 ends at the first leaf."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.leaves = [node for node in range(len(draft)) if draft.is_leaf(node)]
        self._through: list[list[int]] = [[] for _ in range(len(draft))]
        for branch, leaf in enumerate(self.leaves):
            for node in draft.path(leaf):
                self._through[node].append(branch)

    def branches_through(self, node: int) -> list[int]:
        """The branches that `node` is part of, in order."""
        return self._through[node]

    def level(self, node: int) -> int:
        """The number of nodes above `node`."""
        return len(self._draft.path(node)) - 1
