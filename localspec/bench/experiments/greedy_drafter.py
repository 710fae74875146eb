"""Greedy drafter: a drafter's most probable tokens, as llama.cpp's speculative decoding drafts.

With the rule `coupled`, this is sample-and-match: the target's token is drawn with noise that the
draft does not depend on, so the two are equal as often as with an independent draw.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import (
    Drafter,
    Evaluated,
    HiddenReader,
    Limit,
    Outcome,
    Traits,
    proposal,
)
from localspec.speculation.passes import Passes


def greedy(drafter: Drafter, name: str) -> Drafter:
    """The same drafter, with its most probable tokens. They share one cache: use one at a time."""
    if isinstance(drafter, HiddenReader):
        return _GreedyReader(drafter, name)
    return _GreedyDrafter(drafter, name)


def greedy_sampler(sampler: Sampler) -> Sampler:
    """The same filters, and the most probable token."""
    return replace(sampler, params=replace(sampler.params, temperature=0.0))


class _GreedyDrafter:
    def __init__(self, drafter: Drafter, name: str) -> None:
        self.name = name
        self.traits = Traits(reads_hidden=drafter.traits.reads_hidden)
        self._drafter = drafter

    def begin(self, tokens: Sequence[int]) -> None:
        """Set the text."""
        self._drafter.begin(tokens)

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draft the greedy continuation, through the same filters."""
        sampler = greedy_sampler(limit.sampler)
        return (yield from proposal(self._drafter, replace(limit, sampler=sampler)))

    def observe(self, outcome: Outcome) -> None:
        """Append what was committed."""
        self._drafter.observe(outcome)


class _GreedyReader(_GreedyDrafter):
    def held(self, tokens: Sequence[int]) -> int:
        """Start on a text."""
        return cast(HiddenReader, self._drafter).held(tokens)

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Read hidden rows."""
        yield from cast(HiddenReader, self._drafter).read(evaluated)
