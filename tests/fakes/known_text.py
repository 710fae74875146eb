"""A drafter that knows the text, and is wrong at known places of it."""

from collections.abc import Sequence

from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits


class Knows:
    """Drafts the known text, with a wrong token at another place of each draft.

    trees: with wrong tokens before the right ones, so that what is accepted is no first branch.
    """

    name = "knows"

    def __init__(self, known: Sequence[int], *, trees: bool = False) -> None:
        self.traits = Traits(cheap=True, branches=3 if trees else 1)
        self._known = known
        self._trees = trees
        self._text: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        self._text = list(tokens)

    def observe(self, outcome: Outcome) -> None:
        self._text += outcome.tokens

    def propose(self, limit: Limit) -> Draft:
        place = len(self._text)
        right = list(self._known[place : place + limit.depth])
        if not self._trees:
            wrong = place * 7 % 11
            return Draft([abs(token - (i == wrong)) for i, token in enumerate(right)])
        if len(right) < 4:
            return Draft(right)
        first, second, third, fourth = right[:4]
        tokens = [first + 1, first, second + 1, second, third, fourth]
        return Draft(tokens, [ROOT, ROOT, 1, 1, 3, 4])
