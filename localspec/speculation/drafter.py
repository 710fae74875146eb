"""Drafter: proposes the next few tokens.

Any object with the members of `Drafter` and a method `propose` can draft. A drafter that runs a
model yields its passes instead (`ModelDrafter`), so that several texts' drafts share a decode.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.distribution import Distribution
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.passes import Passes


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
    branches: the most branches of the draft; 1: propose a chain.
    left: the tokens that the text may still get; None: one more than `depth`.
    takes_back: of how many drafted tokens the target's cache can forget any without evaluating the
        accepted ones again; None: of all.
    from_end: whether the drafter reads only the end of a long prompt; see `Traits.end`.
    catch_up: tells the drafters of steps of which they were not told yet; a policy calls it before
        it asks them.
    """

    depth: int
    prefix: Prefix
    sampler: Sampler
    needs_probs: bool = False
    cancelled: Callable[[], bool] = lambda: False
    go_on: Callable[[float], bool] | None = None
    hurried: bool = False
    branches: int = 1
    left: int | None = None
    takes_back: int | None = None
    from_end: bool = False
    catch_up: Callable[[], None] = lambda: None

    @property
    def tokens_left(self) -> int:
        """The tokens that the text may still get."""
        return self.depth + 1 if self.left is None else self.left

    def to(
        self, depth: int, go_on: Callable[[float], bool] | None = None, *, from_end: bool = False
    ) -> "Limit":
        """This limit with another depth, another `go_on` and another `from_end`."""
        if (depth, go_on, from_end) == (self.depth, self.go_on, self.from_end):
            return self
        return replace(self, depth=depth, go_on=go_on, from_end=from_end)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one step, as each drafter observes it.

    tokens: the committed tokens, in order. accepted: how many of these tokens, counted from the
    first, this drafter proposed in this step; 0 for a drafter that did not draft.
    drawn_from: the target's distribution of each token, where the noise of the sampler drew it;
    empty where that is not known. They are valid until the next decode (`Distribution.shortlist`).
    """

    tokens: Sequence[int]
    accepted: int
    drawn_from: Sequence[Distribution] = ()


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a drafter that policies and the loader use.

    cheap: a proposal takes microseconds, so the policy may request one at every step.
    gives_probs: its drafts carry `Draft.probs` if `Limit.needs_probs` is set.
    backlog: returns the number of text tokens that the drafter must evaluate before its next
        proposal; None for a drafter that never has to.
    end: returns the same for a proposal that leaves out the middle of the text (`Limit.from_end`),
        or None where there is nothing worth leaving out; None for a drafter that never does.
    fits: returns whether the drafter has room for all of the text and a draft, without which it
        can draft from the end alone; None for a drafter that always has.
    chances: takes a limit and returns, for each token that the drafter would propose within it,
        the probability that the token is accepted, given that the tokens before it are; None for a
        drafter that cannot estimate this before it proposes.
    branches: the most branches of its drafts; 1: it proposes chains.
    reads_hidden: the layers of the target whose input rows it reads (see HiddenReader).
    deepest: the most tokens of its drafts; None: any number.
    only_last_row: of the hidden rows it needs those of the last token alone, so that it may miss
        others and draft again later.
    parallel: it draws all tokens of a draft from one pass, which has a row for each token of
        `Limit.depth`, drawn or not.
    ready: returns the number of tokens of its next proposal that it has drawn already, while the
        target verified the draft before; None for a drafter that draws no tokens ahead.
    computer: returns what computes its passes, of one row for each drafted token; drafters of
        several texts with the same object share its decodes. None: no such passes.
    reads_media: whether it is told of images and sounds, whose rows are tokens below 0 (see
        MediaToken). Other drafters are told of the words alone (see Words).
    """

    cheap: bool = False
    gives_probs: bool = False
    backlog: Callable[[], int] | None = None
    end: Callable[[], int | None] | None = None
    fits: Callable[[], bool] | None = None
    chances: Callable[["Limit"], Sequence[float]] | None = None
    branches: int = 1
    reads_hidden: tuple[int, ...] = ()
    deepest: int | None = None
    parallel: bool = False
    only_last_row: bool = False
    ready: Callable[[], int] | None = None
    computer: Callable[[], object] | None = None
    reads_media: bool = False


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Tokens of the text that the target has evaluated, with their hidden rows.

    start: the place of the first token in the text. hidden: by layer (tokens, n_embd) float32.
    marked: whether the target can come back to their end from another text: what a drafter needs
    to go on from there is worth keeping.
    """

    start: int
    tokens: Sequence[int]
    hidden: Mapping[int, NDArray[np.float32]]
    marked: bool = False


@runtime_checkable
class Drafter(Protocol):
    """What all drafters have. A wrong proposal costs time, but never changes the text.

    name: the origin of its accepted tokens. traits: see Traits.
    """

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on the text `tokens`; keep the state for the prefix shared with the old text."""
        ...

    def observe(self, outcome: Outcome) -> None:
        """Append `outcome.tokens` to the text."""
        ...


@runtime_checkable
class ComputedDrafter(Drafter, Protocol):
    """A drafter that needs no model, or that runs one by itself."""

    def propose(self, limit: Limit) -> Draft:
        """Propose tokens that may follow the text; the draft may be empty."""
        ...


@runtime_checkable
class ModelDrafter(Drafter, Protocol):
    """A drafter that runs a model."""

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Yield the passes of a proposal, and return the proposal, which may be empty."""
        ...


class AheadDrafter(ModelDrafter, Protocol):
    """A drafter that draws tokens ahead (`Traits.ready`), where its model has its own device."""

    def passes_ahead(self, tokens: int) -> Passes[None]:
        """Yield the passes that draw up to so many tokens behind those of the last proposal.

        They may be closed at any pass. The tokens are the beginning of the next proposal if the
        target commits all tokens before them; as the noise of a position is known, they are those
        that would be drawn then.
        """
        ...


@runtime_checkable
class HiddenReader(ModelDrafter, Protocol):
    """A drafter that reads hidden rows of its target, of the layers of `Traits.reads_hidden`."""

    def held(self, tokens: Sequence[int]) -> int:
        """Start on a text: keep what it shares with the one before.

        tokens: the text without its pending token. Returns how many of their hidden rows need not
        be read again; the target evaluates the other tokens.
        """
        ...

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Yield the passes that read the rows, after each part of the prompt and each step.

        Tokens that it has read before may come again.
        """
        ...


MEMBERS = ("name", "traits", "begin", "propose", "observe")


def runs_model(drafter: Drafter) -> TypeGuard[ModelDrafter]:
    """Whether the drafter yields passes. `isinstance` with a protocol would take microseconds."""
    return hasattr(drafter, "passes")


def proposal(drafter: Drafter, limit: Limit) -> Passes[Draft]:
    """Yield the passes of a drafter's proposal, if it needs any, and return the proposal."""
    if runs_model(drafter):
        return (yield from drafter.passes(limit))
    return cast(ComputedDrafter, drafter).propose(limit)


def ready(drafter: Drafter) -> int:
    """The number of tokens of its next proposal that the drafter has drawn already."""
    return drafter.traits.ready() if drafter.traits.ready else 0


def ready_for(drafter: Drafter, *, from_end: bool) -> int:
    """The number of tokens that it has drawn of its next proposal, if that is made this way.

    from_end: as in Limit. Behind the end of a prompt, none is ready of one that has to read all.
    """
    drawn = ready(drafter)
    is_other_way = drawn and drafter.traits.end and backlog(drafter, from_end=from_end) > 1
    return 0 if is_other_way else drawn


def backlog(drafter: Drafter, *, from_end: bool = False) -> int:
    """The number of text tokens that the drafter must evaluate before its next proposal.

    from_end: as in Limit.
    """
    if from_end and drafter.traits.end and (lacking := drafter.traits.end()) is not None:
        return lacking
    return drafter.traits.backlog() if drafter.traits.backlog else 0


def can_leave_out(drafter: Drafter) -> bool:
    """Whether there is a part of the text that the drafter may leave out now (`Traits.end`)."""
    return drafter.traits.end is not None and drafter.traits.end() is not None


def has_room(drafter: Drafter) -> bool:
    """Whether the drafter has room for all of the text, and a draft (`Traits.fits`)."""
    return drafter.traits.fits is None or drafter.traits.fits()
