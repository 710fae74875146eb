"""N-gram drafter: n-gram counts of the text, with back-off, as in llama.cpp's `lookup`."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.drafters.history import History
from localspec.errors import InvalidValueError
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

Gram = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The least evidence for proposing the most frequent successor of an n-gram.

    count: how often the successor was seen. share: its share of all successors seen.
    """

    count: int
    share: float


# By n-gram length: a longer n-gram needs less evidence.
DEFAULT_EVIDENCE = {
    4: Evidence(1, 0.50),
    3: Evidence(1, 0.50),
    2: Evidence(2, 0.50),
    1: Evidence(2, 0.66),
}


class Ngram:
    """Proposes the most frequent successor of the longest n-gram with enough evidence.

    evidence: n-gram length -> the evidence required. Only n-grams of these lengths are counted.
    """

    name = "ngram"
    traits = Traits(cheap=True, reads_media=True)

    def __init__(self, evidence: dict[int, Evidence] | None = None) -> None:
        self._evidence = DEFAULT_EVIDENCE if evidence is None else evidence
        if not self._evidence or min(self._evidence) < 1:
            raise InvalidValueError(f"evidence is {evidence}; it must map lengths of 1 or more")
        self._sizes = sorted(self._evidence, reverse=True)
        self._counts = _Successors(self._sizes)
        self._history = History(self._counts)

    def begin(self, tokens: Sequence[int]) -> None:
        """Change to this text."""
        self._history.set_text(tokens)

    def propose(self, limit: Limit) -> Draft:
        """Propose one successor after the other, until there is not enough evidence."""
        context = self._history.text[-self._sizes[0] :]
        drafted: list[int] = []
        while len(drafted) < limit.depth:
            token = self._successor(context)
            if token is None:
                break
            drafted.append(token)
            context.append(token)
        return Draft(drafted)

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens."""
        self._history.extend(outcome.tokens)

    def _successor(self, context: list[int]) -> int | None:
        for size in self._sizes:
            seen = self._counts.after(tuple(context[-size:]))
            if seen is None:
                continue
            token, count, total = seen
            required = self._evidence[size]
            if count >= required.count and count >= required.share * total:
                return token
        return None


class _Successors:
    """For each n-gram, how often each token followed it.

    The most frequent successor (the favourite) is stored beside the counts, so that finding it
    takes constant time: a space can have thousands of successors.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._counts: dict[Gram, dict[int, int]] = {}
        self._totals: dict[Gram, int] = {}
        self._favourites: dict[Gram, int] = {}

    def push(self, text: list[int]) -> None:
        token = text[-1]
        for gram in self._grams_before_last(text):
            counts = self._counts.setdefault(gram, {})
            counts[token] = counts.get(token, 0) + 1
            self._totals[gram] = self._totals.get(gram, 0) + 1
            favourite = self._favourites.get(gram)
            if favourite is None or _rank(counts, token) > _rank(counts, favourite):
                self._favourites[gram] = token

    def pop(self, text: list[int]) -> None:
        token = text[-1]
        for gram in self._grams_before_last(text):
            counts = self._counts[gram]
            counts[token] -= 1
            self._totals[gram] -= 1
            if not counts[token]:
                del counts[token]
            if not counts:
                del self._counts[gram], self._totals[gram], self._favourites[gram]
            elif self._favourites[gram] == token:
                self._favourites[gram] = max(counts, key=lambda other: _rank(counts, other))

    def after(self, gram: Gram) -> tuple[int, int, int] | None:
        """The favourite, its count, and the count of all successors; None if there is none."""
        favourite = self._favourites.get(gram)
        if favourite is None:
            return None
        return favourite, self._counts[gram][favourite], self._totals[gram]

    def _grams_before_last(self, text: list[int]) -> list[Gram]:
        end = len(text) - 1
        return [tuple(text[end - size : end]) for size in self._sizes if size <= end]


def _rank(counts: dict[int, int], token: int) -> tuple[int, int]:
    # Of equal counts the lower id wins, so that the favourite depends only on the text.
    return counts[token], -token
