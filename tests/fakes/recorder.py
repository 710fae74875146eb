"""What drafters propose in an engine: recorded, compared with an independent forward, replaced."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest

from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Passes

# By how much logits may differ from the oracle's, where two tokens are nearly tied. With flash
# attention rows differ by 0.02.
TIE, TIE_OF_FLASH_ATTENTION = 1e-3, 0.05


class Oracle(Protocol):
    """The logits that drafted tokens are drawn from, from a forward of the whole text."""

    def draft_logits(self, text: list[int], drafted: list[int]) -> Any: ...


@dataclass(frozen=True)
class Recorded:
    """A draft: the text before it, its tokens and their distributions. limit: it was drawn with."""

    text: list[int]
    tokens: list[int]
    probs: Sequence[Any] | None
    limit: Limit


class Recorder:
    """The drafts that drafters of a class make from now on; those of a check at load are there too.

    oracle: None where nothing is compared. checked: how many drafted tokens were.
    """

    def __init__(
        self, drafter: type[Any], oracle: Oracle | None, patch: pytest.MonkeyPatch
    ) -> None:
        self.drafts: list[Recorded] = []
        self.checked = 0
        self._oracle = oracle
        usual: Callable[[Any, Limit], Passes[Draft]] = drafter.passes

        def passes(self_: Any, limit: Limit) -> Passes[Draft]:
            draft = yield from usual(self_, limit)
            tokens = [int(token) for token in draft.tokens]
            if tokens:
                self.drafts.append(Recorded(list(self_._text), tokens, draft.probs, limit))
            return draft

        patch.setattr(drafter, "passes", passes)

    def check(self, *, tie: float = TIE, every: int = 1) -> None:
        """Raise AssertionError for a draft that a forward of the whole text does not lead to.

        The drafts are forgotten. every: only one of so many is compared.
        """
        assert self._oracle is not None
        drafts, self.drafts = self.drafts[::every], []
        for each in drafts:
            sampler, prefix = each.limit.sampler, each.limit.prefix
            rows = self._oracle.draft_logits(each.text, each.tokens)
            for place, (row, token) in enumerate(zip(rows, each.tokens, strict=True)):
                if each.probs is None:
                    row[token] += tie
                law = sampler.distribution(row.astype(np.float32), prefix)
                if each.probs is None:
                    assert sampler.sample(law, prefix) == token
                else:
                    # Rules that need the distribution draw with randomness of their own.
                    found = each.probs[place].dense(len(row)) - law.dense(len(row))
                    assert np.abs(found).max() < TIE
                prefix = prefix.then(token)
                self.checked += 1


@contextmanager
def partly_right(drafter: type[Any], expected: Sequence[int]) -> Any:
    """Replace drafts meanwhile: the first tokens of each are the expected text's, one is wrong.

    expected: the text with its prompt. Yields how often each (length of a draft, right tokens) was
    proposed; all are proposed equally often.
    """
    proposed: Counter[tuple[int, int]] = Counter()
    usual: Callable[[Any, Limit], Passes[Draft]] = drafter.passes

    def passes(self: Any, limit: Limit) -> Passes[Draft]:
        draft = yield from usual(self, limit)
        length, place = len(draft), limit.prefix.position
        if not length or place + length >= len(expected):
            return draft
        right = min(range(length + 1), key=lambda count: proposed[length, count])
        proposed[length, right] += 1
        known = list(expected[place : place + length])
        wrong = [(token + 1) % 256 for token in known[right : right + 1]]
        return Draft([*known[:right], *wrong, *draft.tokens][:length])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter, "passes", passes)
        yield proposed
