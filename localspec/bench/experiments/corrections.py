"""Corrections of a drafter's logits, learnt from the rows of the target that verify its drafts.

Each follows the gradient of the cross entropy between the target's distribution p and the corrected
drafter's q, which for a logit is p - q (softmax regression), at the likeliest tokens of both.

Used by `learning`.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.block_maxima import Row
from localspec.sampling.filters import largest

_Ids = NDArray[np.intp]
_Floats = NDArray[np.float64]
# Of how many likeliest tokens of a row something is learnt, and the least gap worth keeping.
_LIKELIEST = 16
_LEAST_GAP = 0.01
_SCALES = 0.3, 3.0


class Correction:
    """No correction, and the base of all others.

    temperature: at which tokens are drawn; 1 for greedy drafts. `text` always is the tokens before
    a row, drafted ones included.
    """

    name = "none"
    temperature = 1.0

    def begin(self) -> None:
        """Start on another text."""

    def corrected(self, row: Row, text: Sequence[int]) -> Row:
        """The corrected logits; `row` is not modified."""
        return row

    def learn(self, row: Row, text: Sequence[int], target: Row) -> None:
        """Learn from a row of the drafter and the target's row at the same place."""

    def surer(self, text: Sequence[int], token: int) -> float:
        """What to add to the drafter's confidence in a drawn token."""
        return 0.0

    def learn_verdict(self, text: Sequence[int], token: int, right: bool) -> None:
        """Learn whether a drawn token was right."""

    def gap(self, row: Row, text: Sequence[int], target: Row) -> tuple[_Ids, _Floats]:
        """The likeliest tokens of both models, and p - q of each."""
        corrected = self.corrected(row, text)
        likeliest = [largest(each, min(_LIKELIEST, each.size)) for each in (target, corrected)]
        ids = np.union1d(*likeliest)
        return ids, self._probabilities(target, ids) - self._probabilities(corrected, ids)

    def _probabilities(self, row: Row, ids: _Ids) -> _Floats:
        scores = (row.astype(np.float64) - row.max()) / self.temperature
        return np.asarray(np.exp(scores[ids]) / np.exp(scores).sum())


class Scale(Correction):
    """All logits times one factor: the drafter's own temperature."""

    name = "temperature"

    def __init__(self, rate: float = 0.01) -> None:
        self._rate, self._factor = rate, 1.0

    def corrected(self, row: Row, text: Sequence[int]) -> Row:
        """The scaled logits."""
        return row * np.float32(self._factor)

    def learn(self, row: Row, text: Sequence[int], target: Row) -> None:
        """Follow the gradient of the factor."""
        ids, gap = self.gap(row, text, target)
        step = self._rate * float(gap @ (row[ids] - row[ids].mean())) / self.temperature
        self._factor = min(max(self._factor + step, _SCALES[0]), _SCALES[1])


class Ngrams(Correction):
    """A bias of each token after the same last tokens.

    sizes: how many last tokens; the biases of all sizes are added. 0: the same bias everywhere.
    choice: whether the drafter's likeliest token must be the same too. forgets: whether each text
    begins anew.
    """

    def __init__(
        self,
        name: str,
        sizes: Iterable[int],
        rate: float,
        *,
        choice: bool = False,
        forgets: bool = False,
    ) -> None:
        self.name, self._sizes, self._rate = name, tuple(sizes), rate
        self._choice, self._forgets = choice, forgets
        self._biases: dict[tuple[int, ...], dict[int, float]] = {}

    def begin(self) -> None:
        """Start on another text."""
        if self._forgets:
            self._biases = {}

    def corrected(self, row: Row, text: Sequence[int]) -> Row:
        """The logits with the biases."""
        found = [each for key in self._keys(row, text) if (each := self._biases.get(key))]
        if not found:
            return row
        row = row.copy()
        for biases in found:
            row[list(biases)] += np.fromiter(biases.values(), np.float32, len(biases))
        return row

    def learn(self, row: Row, text: Sequence[int], target: Row) -> None:
        """Add a part of the gap to the biases."""
        ids, gap = self.gap(row, text, target)
        large = np.abs(gap) > _LEAST_GAP
        step = (self._rate * self.temperature * gap[large]).tolist()
        for key in self._keys(row, text):
            biases = self._biases.setdefault(key, {})
            for token, each in zip(ids[large].tolist(), step, strict=True):
                biases[token] = biases.get(token, 0.0) + each

    def _keys(self, row: Row, text: Sequence[int]) -> list[tuple[int, ...]]:
        choice = (-1 - int(row.argmax()),) if self._choice else ()
        return [(*choice, *text[len(text) - size :]) for size in self._sizes]


class LowRank(Correction):
    """Biases that are linear in a few numbers of the drafter's last hidden row.

    Logits are linear in that row, so random sums of centred logits stand for it (a random
    projection keeps angles).
    """

    name = "low rank"

    def __init__(self, rank: int = 32, rate: float = 0.3) -> None:
        self._rank, self._rate, self._seen = rank, rate, 0
        # (vocabulary, rank), (rank,) and (vocabulary, rank), made with the first row.
        self._sums = self._mean = self._weights = np.array([], np.float32)

    def corrected(self, row: Row, text: Sequence[int]) -> Row:
        """The corrected logits of the likeliest tokens."""
        if not self._seen:
            return row
        ids = largest(row, min(_LIKELIEST, row.size))
        row = row.copy()
        row[ids] += self._weights[ids] @ self._features(row)
        return row

    def learn(self, row: Row, text: Sequence[int], target: Row) -> None:
        """Follow the gradient of the weights."""
        if not self._seen:
            random = np.random.default_rng(0)
            self._sums = random.normal(size=(row.size, self._rank)).astype(np.float32)
            self._weights = np.zeros((row.size, self._rank), np.float32)
            self._mean = self._sum(row)
        self._seen += 1
        ids, gap = self.gap(row, text, target)
        features = self._features(row)
        self._mean += (self._sum(row) - self._mean) / min(self._seen, 500)
        step = (self._rate * self.temperature * gap).astype(np.float32)
        self._weights[ids] += step[:, None] * features

    def _features(self, row: Row) -> Row:
        away = self._sum(row) - self._mean
        return np.asarray(away / (np.linalg.norm(away) + 1e-6), np.float32)

    def _sum(self, row: Row) -> Row:
        return np.asarray((row - row.mean()) @ self._sums)


class Copies(Correction):
    """A bias of the token that followed the same last tokens before, by how many are the same."""

    name = "copies"

    def __init__(self, longest: int = 8, rate: float = 0.3) -> None:
        self._sizes, self._rate = range(longest, 0, -1), rate
        self._biases = [0.0] * (longest + 1)
        self._followers: dict[tuple[int, ...], int] = {}
        self._known = 0

    def begin(self) -> None:
        """Start on another text, and forget the last one."""
        self._followers, self._known = {}, 0

    def corrected(self, row: Row, text: Sequence[int]) -> Row:
        """The logits with the bias of one token."""
        found = self._found(text)
        if found is None:
            return row
        size, token = found
        row = row.copy()
        row[token] += np.float32(self._biases[size])
        return row

    def learn(self, row: Row, text: Sequence[int], target: Row) -> None:
        """Follow the gradient of the bias; index the text, whose tokens are all committed here."""
        if found := self._found(text):
            size, token = found
            ids = np.array([token])
            q = self._probabilities(self.corrected(row, text), ids)
            gap = float((self._probabilities(target, ids) - q)[0])
            self._biases[size] += self._rate * self.temperature * gap
        for place in range(max(1, self._known), len(text)):
            for size in self._sizes:
                if size <= place:
                    self._followers[tuple(text[place - size : place])] = text[place]
        self._known = len(text)

    def _found(self, text: Sequence[int]) -> tuple[int, int] | None:
        for size in self._sizes:
            token = self._followers.get(tuple(text[-size:])) if size <= len(text) else None
            if token is not None:
                return size, token
        return None


class ChoiceRates(Correction):
    """No other logits, but another confidence in a token after the same last token as before."""

    name = "acceptance table"

    def __init__(self, rate: float = 0.5) -> None:
        self._rate = rate
        self._surer: dict[tuple[int, int], float] = {}

    def surer(self, text: Sequence[int], token: int) -> float:
        """What to add to the drafter's confidence in a drawn token."""
        return self._surer.get((text[-1], token), 0.0)

    def learn_verdict(self, text: Sequence[int], token: int, right: bool) -> None:
        """Follow the gradient of a logistic regression from even odds."""
        key = text[-1], token
        before = self._surer.get(key, 0.0)
        self._surer[key] = before + self._rate * (right - 1 / (1 + np.exp(-before)))


def all_corrections() -> list[Correction]:
    """One of each, and none as the first; the rates are the best of several on `pycode`."""
    return [
        Correction(),
        Scale(),
        Ngrams("bias", [0], 0.03),
        Ngrams("last 1 to 3 tokens", [1, 2, 3], 0.5),
        Ngrams("the same, each text anew", [1, 2, 3], 1.0, forgets=True),
        Ngrams("choice and last token", [1], 1.0, choice=True),
        LowRank(),
        Copies(),
        ChoiceRates(),
    ]
