"""Drafter: proposes the next few tokens. Any object with the members of `Drafter` can draft."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of one proposal, and the sampler to draw it with.

    depth: the most tokens of the draft, 1 or more.
    prefix: the committed text, as the sampler knows it; the first proposed token follows it.
    sampler: the target's sampling settings and randomness. A drafter that draws with this sampler
        often draws the same token as the target; a model-free drafter may ignore the sampler.
    needs_probs: whether the rule needs the distribution that each token was drawn from
        (`Draft.probs`).
    cancelled: a drafter whose proposal takes long calls this now and then, and stops when it
        returns True.
    go_on: whether to draw another token. A drafter whose tokens each cost time calls this after
        each draw, with its confidence in the token (see `confidence.margin`). None means yes. The
        token just drawn is proposed in any case: dropping a token that was drawn would bias the
        rejection rules.
    hurried: whether the user waits for this step, so that no drafter should read the prompt first.
    """

    depth: int
    prefix: Prefix
    sampler: Sampler
    needs_probs: bool = False
    cancelled: Callable[[], bool] = lambda: False
    go_on: Callable[[float], bool] | None = None
    hurried: bool = False

    def to(self, depth: int, go_on: Callable[[float], bool] | None = None) -> "Limit":
        """Copy this limit with another depth and another `go_on`."""
        return replace(self, depth=depth, go_on=go_on)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one step, as each drafter observes it.

    tokens: the committed tokens, in order. accepted: how many of these tokens, counted from the
    first, this drafter proposed in this step; 0 for a drafter that did not draft.
    """

    tokens: Sequence[int]
    accepted: int


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a drafter that policies and the loader use.

    cheap: a proposal takes microseconds, so the policy may request one at every step.
    gives_probs: its drafts carry `Draft.probs` if `Limit.needs_probs` is set.
    backlog: returns the number of text tokens that the drafter must evaluate before its next
        proposal; None for a drafter that never has to.
    chances: takes a depth and returns, for each token that the drafter would propose now, the
        probability that the token is accepted, given that the tokens before it are; None for a
        drafter that cannot estimate this before it proposes.
    """

    cheap: bool = False
    gives_probs: bool = False
    backlog: Callable[[], int] | None = None
    chances: Callable[[int], Sequence[float]] | None = None


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens. A wrong proposal costs time, but never changes the text.

    name: the origin of its accepted tokens. traits: see Traits.
    """

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on the text `tokens`; keep the state for the prefix shared with the old text."""
        ...

    def propose(self, limit: Limit) -> Draft:
        """Propose tokens that may follow the text; the draft may be empty."""
        ...

    def observe(self, outcome: Outcome) -> None:
        """Append `outcome.tokens` to the text."""
        ...


MEMBERS = ("name", "traits", "begin", "propose", "observe")


def backlog(drafter: Drafter) -> int:
    """The number of text tokens that the drafter must evaluate before its next proposal."""
    return drafter.traits.backlog() if drafter.traits.backlog else 0
