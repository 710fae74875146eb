"""Texts of a target with a head in llama.cpp, driven as the decoder does, alone or side by side.

Every row that the target hands out and every draft is compared with an independent forward.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from fakes.numpy_llama import NumpyLlama
from fakes.tiny import N_VOCAB

from localspec.llama.sequence import KVSequence
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Evaluated, HiddenReader, Limit, Outcome
from localspec.speculation.passes import Pass, Passes, Scores, direct, run

GREEDY = Sampler(SamplingParams(temperature=0), Noise(1))
TOLERANCE = 1e-4


class Oracle(Protocol):
    target: NumpyLlama

    def draft(self, text: list[int], depth: int) -> list[int]: ...


class HeadText:
    """A text; its methods yield the passes that it needs.

    target: its place in a context of the target. drafter: of a head, for this text. tolerance: how
    far rows and logits may be from those of the oracle.
    """

    tolerance = TOLERANCE

    def __init__(
        self, oracle: Oracle, target: KVSequence, drafter: HiddenReader, text: list[int]
    ) -> None:
        self.text = text
        self.oracle, self.target, self.drafter = oracle, target, drafter
        self._reads = drafter.traits.reads_hidden

    def begin(self, chunk: int = 512) -> Passes[None]:
        prompt = self.text[:-1]
        shared = min(self.target.shared(prompt), self.drafter.held(prompt))
        self.target.truncate(shared)
        for start in range(shared, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            scores = yield Pass(self.target, tokens, hidden=self._reads)
            yield from self._read(start, tokens, scores)
        self.drafter.begin(self.text)

    def step(self, depth: int, kept: int) -> Passes[list[int]]:
        """Draft, check the draft, and let the target accept `kept` of it; return the draft."""
        text = list(self.text)
        limit = Limit(depth, GREEDY.prefix(text), GREEDY)
        draft = yield from self.drafter.passes(limit)
        assert [*draft.tokens] == self.oracle.draft(text, depth)
        drafted = list(draft.tokens)
        scores = yield Pass(
            self.target, [text[-1], *drafted], len(drafted), wanted=depth + 1, hidden=self._reads
        )
        expected = self.oracle.target.logits([*text, *drafted])[-depth - 1 :]
        assert np.abs(scores.logits - expected).max() < self.tolerance
        own = int(scores.logits[kept].argmax())
        hidden = {layer: rows[: kept + 1].copy() for layer, rows in scores.hidden.items()}
        self.target.commit(range(kept))
        committed = [*drafted[:kept], own]
        self.text += committed
        self.drafter.observe(Outcome(committed, kept))
        yield from self._read(len(text) - 1, [text[-1], *drafted[:kept]], scores, hidden)
        return drafted

    def _read(
        self,
        start: int,
        tokens: Sequence[int],
        scores: Scores,
        hidden: dict[int, Any] | None = None,
    ) -> Passes[None]:
        found = {layer: rows.copy() for layer, rows in (hidden or scores.hidden).items()}
        states = self.oracle.target.hidden(self.text[: start + len(tokens)])
        for layer, rows in found.items():
            assert np.abs(rows - states[layer][start:]).max() < self.tolerance
        yield from self.drafter.read(Evaluated(start, tokens, found))


def prompt(seed: int, length: int) -> list[int]:
    """Random tokens behind the beginning of a text."""
    rng = np.random.default_rng(seed)
    return [1, *(int(token) for token in rng.integers(3, N_VOCAB, length - 1))]


def steps(text: HeadText, seed: int, count: int = 6, deepest: int = 5) -> Passes[None]:
    """Begin a text, and take steps with drafts of any depth and any verdict."""
    rng = np.random.default_rng(seed)
    yield from text.begin(chunk=int(rng.integers(3, 40)))
    for _ in range(count):
        depth = int(rng.integers(1, deepest + 1))
        yield from text.step(depth, int(rng.integers(0, depth + 1)))


def side_by_side(texts: Sequence[HeadText], alone: Sequence[HeadText]) -> None:
    """Take steps with texts side by side and with the same texts alone: they stay equal."""
    count = 0
    for i, text in enumerate(alone):
        passes = steps(text, i)

        def counted(requested: Pass) -> Scores:
            nonlocal count
            count += 1
            return direct(requested)

        run(passes, counted)
    assert together([steps(text, i) for i, text in enumerate(texts)]) < count
    assert [text.text for text in texts] == [text.text for text in alone]


def together(flows: Sequence[Passes[Any]]) -> int:
    """Run computations side by side, putting passes that fit into one decode; return the decodes.

    Which of them go ahead is drawn at random, so that their steps are not in time.
    """
    rng = np.random.default_rng(5)
    waiting = {i: next(flow) for i, flow in enumerate(flows)}
    decodes = 0
    while waiting:
        chosen: list[int] = []
        for i in rng.permutation(list(waiting)).tolist()[: 1 + int(rng.integers(len(waiting)))]:
            group: list[Any] = [waiting[each] for each in (*chosen, i)]
            contexts = {id(each.sequence.context) for each in group}
            if len(contexts) == 1 and group[0].sequence.context.fits(group):
                chosen.append(i)
        passes = [waiting[i] for i in chosen]
        decodes += 1
        # Each text uses its scores before the next decode.
        for i, scores in zip(chosen, passes[0].sequence.context.decode(passes), strict=True):
            try:
                waiting[i] = flows[i].send(scores)
            except StopIteration:
                del waiting[i]
    return decodes
