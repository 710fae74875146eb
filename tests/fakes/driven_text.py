"""A text that a head drafts for, driven as the decoder and a target do, without llama.cpp.

Each draft is checked with an oracle, by the logits that its tokens are to be drawn from.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from fakes.numpy_llama import Floats
from fakes.tiny import N_VOCAB

from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Evaluated, Limit, Outcome
from localspec.speculation.passes import Pass, Passes, Scores, direct, run
from localspec.utils.tokens import common_prefix

GREEDY = Sampler(SamplingParams(temperature=0), Noise(1))
WARM = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))
PROMPT = [1, 259, 30, 266, 271, 90, 275]
TOLERANCE = 1e-4
Result = TypeVar("Result")


class DrivenText(ABC):
    """held: the tokens in the target's cache. evaluated: how many the target has evaluated."""

    def __init__(self, drafter: Any) -> None:
        self.drafter = drafter
        self.text: list[int] = []
        self.held: list[int] = []
        self.evaluated = 0
        self._scores: Scores | None = None

    @abstractmethod
    def rows(self, tokens: list[int]) -> Mapping[int, Floats]:
        """The rows of a text that the drafter reads, by layer."""

    @abstractmethod
    def draft_logits(self, drafted: list[int]) -> Floats:
        """The logits that each of these tokens behind the text is to be drawn from."""

    def begin(self, text: list[int], chunk: int = 100) -> None:
        prompt = text[:-1]
        shared = min(common_prefix(self.held, prompt), self.drafter.held(prompt))
        self.held = prompt[:shared]
        for start in range(shared, len(prompt), chunk):
            self.evaluate(start, prompt[start : start + chunk])
        self.text = list(text)
        self.drafter.begin(text)

    def draft(self, depth: int = 4, sampler: Sampler = WARM) -> list[int]:
        """A draft of so many tokens, or of as many as the drafter can draft at most."""
        tokens = self.proposed(depth, sampler)
        assert len(tokens) == min(depth, self.drafter.traits.deepest or depth)
        return tokens

    def proposed(self, depth: int = 4, sampler: Sampler = WARM) -> list[int]:
        """What is drafted, if anything."""
        limit = Limit(depth, sampler.prefix(self.text), sampler, needs_probs=True)
        draft = self.compute(self.drafter.passes(limit))
        tokens = [int(token) for token in draft.tokens]
        if tokens:
            assert draft.probs is not None
            prefix = sampler.prefix(self.text)
            for row, probs, token in zip(
                self.draft_logits(tokens), draft.probs, tokens, strict=True
            ):
                expected = sampler.distribution(row.astype(np.float32), prefix)
                difference = probs.dense(N_VOCAB) - expected.dense(N_VOCAB)
                assert np.abs(difference).max() < TOLERANCE
                assert sampler.sample(expected, prefix) == token
                prefix = prefix.then(token)
        return tokens

    def step(self, accepted: list[int], token: int, again: int = 0) -> None:
        """The target accepts some drafted tokens and gives one of its own. again: as `evaluate`."""
        pending, committed = self.text[-1], [*accepted, token]
        self.text += committed
        self.drafter.observe(Outcome(committed, len(accepted)))
        self.evaluate(len(self.text) - len(committed) - 1, [pending, *accepted], again)

    def evaluate(self, start: int, tokens: list[int], again: int = 0) -> None:
        """again: as many tokens before these are evaluated once more."""
        self.held = [*self.held[:start], *tokens]
        self.evaluated += len(tokens)
        start -= again
        hidden = {
            layer: rows[start:].astype(np.float32) for layer, rows in self.rows(self.held).items()
        }
        self.compute(self.drafter.read(Evaluated(start, self.held[start:], hidden)))

    def compute(self, passes: Passes[Result]) -> Result:
        """Compute passes; each, as one for another text, destroys the scores of the one before."""

        def one(requested: Pass) -> Scores:
            if self._scores:
                for rows in (self._scores.logits, *self._scores.hidden.values()):
                    rows[...] = np.nan
            self._scores = direct(requested)
            return self._scores

        return run(passes, one)
