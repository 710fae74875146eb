"""Verification rules: which drafted tokens stand, and which token follows them.

A rule is a pure function of a draft, the target's distributions and a source of randomness. It
knows no model: `target(node)` is the target's distribution right after that node, worked out only
when it is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from localspec.errors import InvalidValueError
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Choice
from localspec.speculation.draft import ROOT, Draft

CORRECTED = "corrected"
BONUS = "bonus"
PLAIN = "plain"

Rows = Callable[[int], Distribution]


@dataclass(frozen=True, slots=True)
class Verdict:
    """path: the accepted nodes, first position first. token: what follows. origin: of `token`."""

    path: list[int]
    token: int
    origin: str


class Rule(Protocol):
    """Decides a draft. `position` is that of the first drafted token in the text."""

    def __call__(self, draft: Draft, target: Rows, position: int, choice: Choice) -> Verdict: ...


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


def _origin(draft: Draft, last: int) -> str:
    if not len(draft):
        return PLAIN
    return BONUS if draft.is_leaf(last) else CORRECTED


RULES: dict[str, Rule] = {"coupled": coupled}


def rule_named(name: str) -> Rule:
    """The rule of this name. Raises InvalidValueError."""
    if name not in RULES:
        raise InvalidValueError(f"rule is {name!r}; choose from: {', '.join(RULES)}")
    return RULES[name]
