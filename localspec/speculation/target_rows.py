"""Target rows: the target's distributions behind the nodes of a draft, computed as a rule reads."""

from collections.abc import Sequence
from typing import cast

from localspec.errors import LocalspecError
from localspec.sampling.distribution import Distribution
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.passes import Scores


class TargetRows:
    """The `Rows` of a rule, for one pass of the target.

    prefix: of the text before the draft. only_sampled: whether the rule does no more with a
    distribution than to draw one token from it.
    """

    def __init__(
        self, draft: Draft, scores: Scores, sampler: Sampler, prefix: Prefix, *, only_sampled: bool
    ) -> None:
        self._draft, self._scores, self._sampler = draft, scores, sampler
        self._prefixes = {ROOT: prefix}
        self._law = sampler.sampled_once if only_sampled else sampler.distribution
        self._only_sampled = only_sampled
        self._read: dict[int, Distribution] = {}

    def __call__(self, node: int) -> Distribution | None:
        """The distribution of the token after a node; None if a drafted token leaves none.

        Raises what the sampler raises where the text is already there.
        """
        try:
            found = self._law(self._scores.logits[node + 1], self._prefix_at(node))
        except LocalspecError:
            if node == ROOT:
                raise
            return None
        self._read[node] = found
        return found

    def law(self, node: int) -> Distribution:
        """The whole distribution of the token after a node that a rule has read."""
        return self._sampler.distribution(self._scores.logits[node + 1], self._prefix_at(node))

    def drawn_from(self, path: Sequence[int]) -> list[Distribution]:
        """What the tokens of an accepted path, and the one after it, were drawn from with noise.

        Empty where a rule has other randomness, or did not read all of them.
        """
        nodes = (ROOT, *path)
        is_known = self._only_sampled and self._read.keys() >= {*nodes}
        return [self._read[node] for node in nodes] if is_known else []

    def prefix_behind(self, path: Sequence[int], token: int) -> Prefix:
        """The prefix of the text after an accepted path and one more token.

        A sampler's state follows the target's distributions of the tokens that are text now; those
        of rejected branches have no part in it.
        """
        return self._then(path[-1] if path else ROOT, token)

    def state_after(self, node: int, token: int) -> float:
        """A sampler's state after a token behind a node that a rule has read."""
        before = cast("float", self._prefix_at(node).state)
        moved = self._read[node].state_after(token)
        return before if moved is None else moved

    def _prefix_at(self, node: int) -> Prefix:
        if node not in self._prefixes:
            token = self._draft.tokens[node]
            self._prefixes[node] = self._then(self._draft.parent(node), token)
        return self._prefixes[node]

    def _then(self, node: int, token: int) -> Prefix:
        """The prefix after a token behind a node, whose distribution the rule has read before."""
        before = self._prefix_at(node)
        is_moved = before.state is not None
        return before.then(token, self._read[node].state_after(token) if is_moved else None)
