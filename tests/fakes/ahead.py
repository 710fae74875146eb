"""Passes computed meanwhile, in an order that a test chooses, without any thread."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from localspec.drafters.draft_model import DraftModel
from localspec.loading import drawing_ahead
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, Passes, Scores, direct


def give_each_model_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model counts as having a device of its own."""
    monkeypatch.setattr(drawing_ahead, "devices_of", lambda model: {str(id(model))})


class Proposed(NamedTuple):
    """A draft that was proposed behind a text.

    began: the length of the text behind which its first ready token was drawn, and all since; that
    of the text, where none was ready. state: the target's state there.
    """

    text: list[int]
    draft: list[int]
    began: int
    state: float | None


class Recorded(DraftModel):
    """A draft model that keeps what it proposed."""

    def begin(self, tokens) -> None:  # type: ignore[no-untyped-def]
        self.proposed: list[Proposed] = []
        super().begin(tokens)

    def passes(self, limit: Limit) -> Passes[Draft]:
        text = list(self._text)
        if not self._drawn:
            self._began = len(text), limit.prefix.state
        draft = yield from super().passes(limit)
        self.proposed.append(Proposed(text, list(draft.tokens), *self._began))
        return draft


@dataclass
class Interleaved:
    """Computes a pass, and so many of its `meanwhile` before or after it.

    counts: of each pass that has some. lost: in these, counted from 0, one pass more is computed
    whose scores nobody takes, as after an interrupt.
    """

    counts: Iterator[int]
    lost: frozenset[int] = frozenset()
    offered: int = field(default=0, init=False)

    def __call__(self, requested: Pass) -> Scores:
        passes = requested.meanwhile
        if passes is None:
            return direct(requested)
        number, self.offered = self.offered, self.offered + 1
        count, early = divmod(next(self.counts, 0), 2)
        scores = direct(requested) if early else None
        following = next(passes, None)
        while following and count:
            count -= 1
            try:
                following = passes.send(direct(following))
            except StopIteration:
                following = None
        if following and number in self.lost:
            direct(following)
        return scores or direct(requested)
