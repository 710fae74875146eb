"""Drafter: whatever guesses the next few tokens. Any object with these members will do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

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
    needs_laws: whether the rule must know what each token was drawn from (`Draft.proposals`).
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
    needs_laws: bool = False
    cancelled: Callable[[], bool] = lambda: False
    go_on: Callable[[float], bool] | None = None
    hurried: bool = False

    def to(self, depth: int, go_on: Callable[[float], bool] | None = None) -> "Limit":
        """The same place, so deep and so far."""
        return replace(self, depth=depth, go_on=go_on)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step added to the text.

    tokens: the committed tokens, in order. accepted: how many of them, from the first on, were
    this drafter's. features: the target's hidden rows for drafters that asked, else None.
    """

    tokens: Sequence[int]
    accepted: int
    features: NDArray[np.float32] | None = None


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens; it can be wrong, never harmful.

    name: shown as the origin of the tokens it got right.

    A policy that weighs costs (`speculation.controller`) also looks for these, if there are any:
    free: True if a proposal costs microseconds, so that it may be asked at every step.
    backlog: how many tokens of the text it has to take in before its next proposal.
    confidences(depth): the chance that each token it would propose now is right, given that those
        before it are.
    """

    @property
    def name(self) -> str: ...

    def begin(self, tokens: Sequence[int]) -> None:
        """The committed text is now exactly `tokens`; keep what of the old one it shares."""
        ...

    def propose(self, limit: Limit) -> Draft:
        """Guess what follows the committed text; an empty draft is a fine answer."""
        ...

    def observe(self, outcome: Outcome) -> None:
        """The text grew by `outcome.tokens`."""
        ...
