"""Verification rules: which drafted tokens stand, and which token follows them.

A rule is a pure function of a draft, the target's distributions and a source of randomness. It
knows no model: `target(node)` is the target's distribution right after that node, computed only
when the rule reads it. It is None where a drafted token leaves none, as a grammar allows no token
behind it: plain decoding would have that token first, and fail one step later, so the step ends
with it. All three rules are exact on chains, and on trees whose children were drawn one after the
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
from localspec.sampling.noise import Noise, RandomSource
from localspec.speculation.draft import ROOT, Draft, Proposal

CORRECTED = "corrected"
BONUS = "bonus"
PLAIN = "plain"

Rows = Callable[[int], Distribution | None]
Weights = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification.

    path: the accepted nodes, first position first. token: the token after them; None where there is
    no distribution to draw it from. origin: of `token`.
    """

    path: list[int]
    token: int | None
    origin: str


def coupled(draft: Draft, target: Rows, position: int, source: RandomSource) -> Verdict:
    """Draw the target's own token at each position; a drafted token stands iff it is that token.

    Drafter-invariant verification (Daliri, Musco, Suresh 2024). The text is a function of target,
    prompt, sampler and seed alone; drafts cannot change it. At temperature 0 this is greedy
    decoding. For one-hot drafts no rule accepts more tokens.
    """
    path: list[int] = []
    node = ROOT
    while True:
        if (law := target(node)) is None:
            return Verdict(path, None, _origin(draft, node))
        token = source.sample(law, position + len(path))
        child = draft.child(node, token)
        if child is None:
            return Verdict(path, token, _origin(draft, node))
        path.append(child)
        node = child


def token(draft: Draft, target: Rows, position: int, random: Randomness) -> Verdict:
    """Accept x with probability min(1, p(x) / q(x)); after a rejection, p = norm(max(p - q, 0)).

    Leviathan et al. 2023, algorithm 1; Chen et al. 2023. On a tree: recursive rejection over the
    children of each node (SpecInfer; Sequoia).
    """
    path: list[int] = []
    node = ROOT
    while True:
        if (law := target(node)) is None:
            return Verdict(path, None, _origin(draft, node))
        residual = _Residual(law)
        for proposal in draft.proposals_after(node):
            q = residual.aligned(proposal)
            if random.bern(residual.ratio(proposal.token, q)):
                node = proposal.node
                path.append(node)
                break
            residual.subtract(q)
        else:
            return Verdict(path, residual.draw(random), _origin(draft, node))


def block(draft: Draft, target: Rows, position: int, random: Randomness) -> Verdict:
    """Test each path by the product of its ratios, from its end; accept the longest that passes.

    Block verification (Sun et al. 2025, algorithm 2) on a chain, traversal verification (Weng et
    al. 2025) on a tree. `visit(node, mass)` succeeds with probability exactly `mass`; the tokens
    that it then gives after `node` follow the target's distribution.
    """

    def visit(node: int, mass: float) -> Verdict | None:
        proposals = draft.proposals_after(node)
        law = target(node) if proposals else None
        if law is None and not random.bern(mass):
            return None  # without reading the row of a leaf
        if law is None and not proposals:
            law = target(node)
        if law is None:
            return Verdict(draft.path(node), None, _origin(draft, node))
        residual = _Residual(law, mass)
        for proposal in proposals:
            q = residual.aligned(proposal)
            ratio = residual.ratio(proposal.token, q)
            if ratio > 0:
                found = visit(proposal.node, ratio)
                if found:
                    return found
            residual.subtract(q)
        if proposals and node != ROOT and not random.bern(residual.mass):
            return None
        return Verdict(draft.path(node), residual.draw(random), _origin(draft, node))

    verdict = visit(ROOT, 1.0)
    assert verdict is not None, "the root's mass is 1"
    return verdict


class _Residual:
    """The residual distribution at a node: the target's, minus that of rejected proposals.

    mass: the probability of reaching this residual. It starts as p with mass 1; after a rejected
    proposal from q it is max(p - q, 0), normalised, with mass 1 again.
    """

    def __init__(self, distribution: Distribution, mass: float = 1.0) -> None:
        self.mass = mass
        self._distribution = distribution
        self._p = distribution.probabilities()

    def aligned(self, proposal: Proposal) -> Weights:
        """Return (n,) the proposal's probability of each token of this distribution."""
        return proposal.over(self._distribution.ids, len(self._distribution))

    def ratio(self, token: int, q: Weights) -> float:
        """Return min(1, mass * p(token) / q(token)); 0 for a token the target cannot choose."""
        index = self._distribution.index(token)
        if index is None:
            return 0.0
        weight = self.mass * self._p[index]
        return 1.0 if weight >= q[index] else float(weight / q[index])

    def subtract(self, q: Weights) -> None:
        """Reject a proposal from q: the residual becomes max(mass * p - q, 0), normalised."""
        weights = np.maximum(self.mass * self._p - q, 0)
        total = float(weights.sum())
        if total == 0:
            # No residual is left. At the root only rounding can cause this: the root keeps its p.
            self.mass = 0.0
            return
        # With mass 1 this order of operations gives exactly 1.
        self.mass = total / (total + (1 - self.mass))
        self._p = weights / total

    def draw(self, random: Randomness) -> int:
        """Draw a token from the residual."""
        return self._distribution.token(random.cat(self._p))


def _origin(draft: Draft, last: int) -> str:
    if not len(draft):
        return PLAIN
    return BONUS if draft.is_leaf(last) else CORRECTED


Verify = Callable[[Draft, Rows, int, Any], Verdict]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by name, with the randomness that the rule and its drafters draw from.

    same_text: whether a seed gives the same text as plain decoding, whatever is drafted. The other
    rules keep only the distribution of texts.
    """

    name: str
    verify: Verify
    randomness: Callable[[int], RandomSource]
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
    """Return the rule of this name. Raises InvalidValueError for an unknown name."""
    if name not in RULES:
        raise InvalidValueError(f"rule is {name!r}; choose from: {', '.join(RULES)}")
    return RULES[name]
