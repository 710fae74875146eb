"""Drafter: proposes the next few tokens. Any object with the members of `Drafter` is one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft


@dataclass(frozen=True, slots=True)
class Limit:
    """What a proposal must keep to.

    depth: at most this many tokens in a row, at least 1.
    prefix: the place in the text that the first proposed token follows.
    sampler: the target's own settings and randomness. A drafter that samples with it draws the
        target's token wherever its distribution allows; one that only guesses may ignore it.
    needs_probs: whether the rule must know the distribution each token was drawn from
        (`Draft.probs`).
    cancelled: asked now and then by a drafter whose proposal takes long.
    go_on: asked by a drafter to which each token costs time, after drawing one, with its
        confidence in it (see `confidence.margin`): whether to draw another. None is always. The
        token just drawn is proposed in any case: to look at a token and then drop it would bias
        the rejection rules.
    hurried: whether somebody waits for this step, and no drafter should read the prompt first.
    """

    depth: int
    prefix: Prefix
    sampler: Sampler
    needs_probs: bool = False
    cancelled: Callable[[], bool] = lambda: False
    go_on: Callable[[float], bool] | None = None
    hurried: bool = False

    def to(self, depth: int, go_on: Callable[[float], bool] | None = None) -> "Limit":
        """The same place, so deep and so far."""
        return replace(self, depth=depth, go_on=go_on)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step added to the text.

    tokens: the committed tokens, in order. accepted: how many of them, from the first on, this
    drafter had proposed in this step; 0 for drafters that did not draft.
    """

    tokens: Sequence[int]
    accepted: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What policies and the loader may know of a drafter.

    cheap: a proposal costs microseconds, so it may be asked at every step.
    gives_probs: its drafts carry `Draft.probs` where `Limit.needs_probs` asks for them.
    backlog: counts the tokens of the text that it has to evaluate before its next proposal; None
        for a drafter that always has the whole text.
    chances: for a depth, the chance that each token it would propose now is right, given that
        those before it are; None for a drafter that cannot tell before it proposes.
    """

    cheap: bool = False
    gives_probs: bool = False
    backlog: Callable[[], int] | None = None
    chances: Callable[[int], Sequence[float]] | None = None


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens. It can be wrong, but it cannot change the text.

    name: shown as the origin of the tokens it got right. traits: see Traits.
    """

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow the committed text `tokens`; keep what is known of the part shared with before."""
        ...

    def propose(self, limit: Limit) -> Draft:
        """Propose what follows the committed text; the draft may be empty."""
        ...

    def observe(self, outcome: Outcome) -> None:
        """Append `outcome.tokens` to the text."""
        ...


MEMBERS = ("name", "traits", "begin", "propose", "observe")


def backlog(drafter: Drafter) -> int:
    """How many tokens of the text the drafter has to evaluate before its next proposal."""
    return drafter.traits.backlog() if drafter.traits.backlog else 0
