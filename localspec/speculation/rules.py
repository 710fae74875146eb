"""Verification rules: which drafted tokens stand, and which token follows them.

A rule is a pure function of a draft, the target's distributions and a source of randomness. It
knows no model: `target(node)` is the target's distribution right after that node, worked out only
when it is read. All three are exact on chains and on trees whose children were drawn one after the
other, with or without replacement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.sampling.distribution import Distribution
from localspec.sampling.draws import Draws, Randomness
from localspec.sampling.noise import Choice, Noise
from localspec.speculation.draft import ROOT, Draft, Proposal

CORRECTED = "corrected"
BONUS = "bonus"
PLAIN = "plain"

Rows = Callable[[int], Distribution]
Weights = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """path: the accepted nodes, first position first. token: what follows. origin: of `token`."""

    path: list[int]
    token: int
    origin: str


def coupled(draft: Draft, target: Rows, position: int, choice: Choice) -> Verdict:
    """Draw the target's own token at each position; a drafted token stands iff it is that token.

    Drafter-invariant verification (Daliri, Musco, Suresh 2024). The text is a function of target,
    prompt, sampler and seed alone, whatever was drafted. At temperature 0 this is greedy decoding;
    for one-hot drafts no rule accepts more.
    """
    path: list[int] = []
    node = ROOT
    while True:
        token = choice.choose(target(node), position + len(path))
        child = draft.child(node, token)
        if child is None:
            return Verdict(path, token, _origin(draft, node))
        path.append(child)
        node = child


def token(draft: Draft, target: Rows, position: int, random: Randomness) -> Verdict:
    """Accept x with probability min(1, p(x) / q(x)); after a rejection, p is norm(max(p - q, 0)).

    Leviathan et al. 2023, algorithm 1; Chen et al. 2023. On a tree: recursive rejection over the
    children of each node (SpecInfer; Sequoia).
    """
    path: list[int] = []
    node = ROOT
    while True:
        owed = _Owed(target(node))
        for proposal in draft.proposals_after(node):
            q = owed.aligned(proposal)
            if random.bern(owed.ratio(proposal.token, q)):
                node = proposal.node
                path.append(node)
                break
            owed.subtract(q)
        else:
            return Verdict(path, owed.draw(random), _origin(draft, node))


def block(draft: Draft, target: Rows, position: int, random: Randomness) -> Verdict:
    """Judge a path by the product of its ratios, from its end; accept the longest that stands.

    Block verification (Sun et al. 2025, algorithm 2) on a chain, traversal verification (Weng et
    al. 2025) on a tree. `visit(node, mass)` succeeds with probability exactly `mass`, and what it
    then emits after `node` follows the target's distribution there.
    """

    def visit(node: int, mass: float) -> Verdict | None:
        proposals = draft.proposals_after(node)
        if not proposals and not random.bern(mass):
            return None  # its row was not even read
        owed = _Owed(target(node), mass)
        for proposal in proposals:
            q = owed.aligned(proposal)
            ratio = owed.ratio(proposal.token, q)
            if ratio > 0:
                found = visit(proposal.node, ratio)
                if found:
                    return found
            owed.subtract(q)
        if proposals and node != ROOT and not random.bern(owed.mass):
            return None
        return Verdict(draft.path(node), owed.draw(random), _origin(draft, node))

    verdict = visit(ROOT, 1.0)
    assert verdict is not None, "the root's mass is 1"
    return verdict


class _Owed:
    """What the target still owes at a node: its distribution, less what proposals gave.

    mass: the probability with which it is owed. Starting from p and mass 1, a proposal from q
    leaves max(p - q, 0), normalised, and mass 1 again.
    """

    def __init__(self, distribution: Distribution, mass: float = 1.0) -> None:
        self.mass = mass
        self._distribution = distribution
        self._p = distribution.probabilities()

    def aligned(self, proposal: Proposal) -> Weights:
        """(n,) the proposal's probabilities of this distribution's tokens."""
        return proposal.over(self._distribution.ids, len(self._distribution))

    def ratio(self, token: int, q: Weights) -> float:
        """min(1, mass * p(token) / q(token)); 0 for a token the target cannot choose."""
        index = self._distribution.index(token)
        if index is None:
            return 0.0
        owed = self.mass * self._p[index]
        return 1.0 if owed >= q[index] else float(owed / q[index])

    def subtract(self, q: Weights) -> None:
        """The proposal failed: what is left is max(mass * p - q, 0)."""
        left = np.maximum(self.mass * self._p - q, 0)
        total = float(left.sum())
        if total == 0:
            # Nothing is owed any more. Only rounding can bring the root here: it keeps its p.
            self.mass = 0.0
            return
        # In this order: with mass 1 the result is exactly 1.
        self.mass = total / (total + (1 - self.mass))
        self._p = left / total

    def draw(self, random: Randomness) -> int:
        """A token of what is owed."""
        return self._distribution.token(random.cat(self._p))


def _origin(draft: Draft, last: int) -> str:
    if not len(draft):
        return PLAIN
    return BONUS if draft.is_leaf(last) else CORRECTED


Verify = Callable[[Draft, Rows, int, Any], Verdict]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by name, with the randomness it and its drafters draw from.

    same_text: whether a seed gives the text of plain decoding, whatever is drafted; otherwise it
    is the distribution of texts that stays the same.
    """

    name: str
    verify: Verify
    randomness: Callable[[int], Choice]
    same_text: bool


RULES = {
    rule.name: rule
    for rule in (
        Rule("coupled", coupled, Noise, same_text=True),
        Rule("token", token, Draws, same_text=False),
        Rule("block", block, Draws, same_text=False),
    )
}


def rule_named(name: str) -> Rule:
    """The rule of this name. Raises InvalidValueError."""
    if name not in RULES:
        raise InvalidValueError(f"rule is {name!r}; choose from: {', '.join(RULES)}")
    return RULES[name]
