"""Toy models with exact tables, through the very interfaces of the real ones."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.control.fixed_depth import FixedDepth
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome, Traits, proposal
from localspec.speculation.passes import Pass, Scores, run
from localspec.speculation.target import prompt_part


def proposed(drafter: Drafter, limit: Limit) -> Draft:
    """The drafter's proposal, each of whose passes has a decode of its own."""
    return run(proposal(drafter, limit))


def fixed(drafter: Drafter | None, depth: int) -> FixedDepth:
    """The policy that always drafts so deep."""
    return FixedDepth([drafter] if drafter else [], depth)


class ToyModel:
    """Logits that depend on the last two tokens.

    table: (n_vocab, n_vocab, n_vocab) float32; table[a, b] are the logits after "... a b".
    """

    def __init__(self, table: NDArray[np.float32]) -> None:
        self.table = table.astype(np.float32)
        self.n_vocab = table.shape[0]

    @classmethod
    def random(cls, n_vocab: int, *, seed: int, spread: float = 1.0) -> "ToyModel":
        rng = np.random.default_rng(seed)
        return cls(rng.normal(size=(n_vocab,) * 3) * spread)

    def like(self, *, seed: int, noise: float) -> "ToyModel":
        """A model that agrees with this one but for some noise: a drafter for it."""
        rng = np.random.default_rng(seed)
        return ToyModel(self.table + rng.normal(size=self.table.shape) * noise)

    def logits(self, text: Sequence[int]) -> NDArray[np.float32]:
        before, last = ([0, 0, *text])[-2:]
        return self.table[before, last]


class ToyTarget:
    """A target that scores chains and trees, and checks that it is used as a cache must be."""

    most_kept = 512
    takes_back = None
    scores_drafts = True
    branches = 100
    only_chains = None

    def __init__(self, model: ToyModel, prompt: Sequence[int]) -> None:
        self.n_vocab = model.n_vocab
        self.cache = list(prompt[:-1])
        self.passes = 0
        self._model = model
        self._draft: Draft | None = None

    @property
    def context(self) -> "ToyTarget":
        return self

    def shared(self, tokens: Sequence[int]) -> int:
        assert self.cache == list(tokens), "toys do not read prompts"
        return len(tokens)

    def truncate(self, length: int) -> int:
        assert length == len(self.cache)
        return length

    def take_prefix(self, tokens: Sequence[int]) -> int:
        return len(self.cache)

    def part(self, tokens: Sequence[int], at: int, end: int, most: int) -> int:
        return prompt_part(end - at, most)

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        return 0

    def mark(self) -> None:
        pass

    def catch_up(self) -> Iterator[Pass]:
        return iter(())

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        assert self._draft is None, "the last draft was never committed"
        (one,) = passes
        assert one.sequence is self
        assert one.wanted == len(one)
        self.passes += 1
        pending, *drafted = one.tokens
        assert len(drafted) == one.drafted
        self._pending, self._draft = pending, (draft := Draft(drafted, one.parents))
        rows = [
            self._model.logits([*self.cache, pending, *(draft.tokens[i] for i in draft.path(node))])
            for node in range(ROOT, len(draft))
        ]
        return [Scores(np.array(rows))]

    def commit(self, path: Sequence[int]) -> None:
        assert self._draft is not None, "nothing was scored"
        self.cache += [self._pending, *(self._draft.tokens[node] for node in path)]
        self._draft = None


class ToyCache:
    """A drafter's cache that counts what it evaluates."""

    def __init__(self, model: ToyModel, n_ctx: int = 1000) -> None:
        self.n_ctx = n_ctx
        self.n_vocab = model.n_vocab
        self.chunk = 512
        self.tokens: list[int] = []
        self.evaluated = 0
        self._model = model

    @property
    def context(self) -> "ToyCache":
        return self

    def shared(self, tokens: Sequence[int]) -> int:
        same = 0
        while same < min(len(tokens), len(self.tokens)) and tokens[same] == self.tokens[same]:
            same += 1
        return same

    def take_prefix(self, tokens: Sequence[int]) -> int:
        return self.shared(tokens)

    def truncate(self, length: int) -> int:
        del self.tokens[length:]
        return len(self.tokens)

    def checkpoint(self) -> None:
        pass

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        assert one.sequence is self
        return [Scores(self.extend(one.tokens)[np.newaxis])]

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        assert len(tokens) > 0
        self.tokens += tokens
        self.evaluated += len(tokens)
        return self._model.logits(self.tokens)


class Scripted:
    """A drafter that proposes what a function of the text says."""

    name = "scripted"
    traits = Traits()

    def __init__(self, guess) -> None:  # type: ignore[no-untyped-def]
        self.text: list[int] = []
        self._guess = guess

    def begin(self, tokens: Sequence[int]) -> None:
        self.text = list(tokens)

    def propose(self, limit: Limit) -> Draft:
        guess: Draft = self._guess(self.text, limit)
        return guess

    def observe(self, outcome: Outcome) -> None:
        self.text += outcome.tokens


class Repeat:
    """Proposes the last token again and again."""

    name = "repeat"
    traits = Traits()

    def begin(self, tokens: Sequence[int]) -> None:
        self.last = tokens[-1]

    def propose(self, limit: Limit) -> Draft:
        return Draft([self.last] * limit.depth)

    def observe(self, outcome: Outcome) -> None:
        self.last = outcome.tokens[-1]
