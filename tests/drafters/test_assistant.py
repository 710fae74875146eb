"""An assistant drafts what an independent forward of the whole text drafts, whatever happened.

Target and assistant are computed in numpy here; tests/llama has them in llama.cpp.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.assistant import LAYERS, write_assistant, write_target
from fakes.eagle3 import LIKELY
from fakes.mutants import Code, Edit
from fakes.numpy_gemma4 import AssistantOracle
from fakes.numpy_llama import Floats
from fakes.tiny import N_VOCAB

from localspec.drafters.assistant import Assistant
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Evaluated, Limit, Outcome
from localspec.speculation.passes import Pass, Scores, run
from localspec.utils.tokens import common_prefix

LAST, TOLERANCE = len(LAYERS), 1e-3
WARM = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))
PROMPT = [1, 259, 30, 266, 271, 90, 275]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> AssistantOracle:
    folder: Path = tmp_path_factory.mktemp("assistant")
    target = write_target(folder / "target.gguf")
    return AssistantOracle(target, write_assistant(folder / "assistant.gguf"))


@dataclass
class NumpyCells:
    """The target's cache in numpy, as an assistant reads it.

    text: what is in it. logits: the rows that were computed.
    """

    oracle: AssistantOracle
    text: list[int] = field(default_factory=list)
    logits: list[Floats] = field(default_factory=list)
    n_cells: int = 256
    n_vocab: int = N_VOCAB

    @property
    def cells(self) -> int:
        return len(self.text)

    @property
    def context(self) -> "NumpyCells":
        return self

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        assert one.sequence is self and one.embeddings is not None
        (token,) = one.tokens
        _, cached = self.oracle.target.forward(self.text)
        row = one.embeddings.astype(np.float64)
        logits, own = self.oracle.decoded(token, row, cached, len(self.text))
        self.logits.append(logits[0])
        return [Scores(logits.astype(np.float32), hidden={0: own.astype(np.float32)})]


class Text:
    """A text that an assistant drafts for, as the decoder and a target drive it.

    evaluated: how many tokens the target has evaluated.
    """

    def __init__(self, oracle: AssistantOracle, drafter: Any = Assistant, **cells: Any) -> None:
        self.text: list[int] = []
        self.cells = NumpyCells(oracle, **cells)
        self.drafter = drafter(self.cells, name="assistant", n_vocab=N_VOCAB, layers=(LAST,))
        self.oracle = oracle
        self.evaluated = 0

    def begin(self, text: list[int], chunk: int = 100) -> None:
        prompt = text[:-1]
        held = self.drafter.held(prompt)
        shared = min(common_prefix(self.cells.text, prompt), held)
        del self.cells.text[shared:]
        for start in range(shared, len(prompt), chunk):
            self._evaluate(start, prompt[start : start + chunk])
        self.text = list(text)
        self.drafter.begin(text)

    def draft(self, depth: int = 4) -> list[int]:
        """Draft, and check each token with the oracle."""
        limit, before = Limit(depth, WARM.prefix(self.text), WARM), len(self.cells.logits)
        tokens = [int(token) for token in run(self.drafter.passes(limit)).tokens]
        prefix = limit.prefix
        rows = self.oracle.draft_logits(self.text, tokens) if tokens else np.empty((0, 1))
        for row, found in zip(rows, self.cells.logits[before:], strict=True):
            assert np.abs(row - found).max() < TOLERANCE
        for row, token in zip(rows, tokens, strict=True):
            expected = WARM.distribution(row.astype(np.float32), prefix)
            assert WARM.sample(expected, prefix) == token
            prefix = prefix.then(token)
        return tokens

    def step(self, accepted: list[int], token: int, again: int = 0) -> None:
        """The target accepts some drafted tokens and gives one of its own.

        again: as many tokens before are evaluated once more.
        """
        pending, committed = self.text[-1], [*accepted, token]
        self.text += committed
        self.drafter.observe(Outcome(committed, len(accepted)))
        self._evaluate(len(self.text) - len(committed) - 1, [pending, *accepted], again)

    def _evaluate(self, start: int, tokens: list[int], again: int = 0) -> None:
        self.cells.text = [*self.cells.text[:start], *tokens]
        self.evaluated += len(tokens)
        start -= again
        rows = self.oracle.target.hidden(self.cells.text)[-1][start:]
        hidden = {LAST: rows.astype(np.float32)}
        run(self.drafter.read(Evaluated(start, self.cells.text[start:], hidden)))


def use(text: Text) -> None:
    """Steps with every verdict, plain steps, rows that come again, edits and a fork."""
    rng = np.random.default_rng(1)
    text.begin(PROMPT, chunk=3)
    for kept in (0, 1, 2, 0, 3, 4, 1):
        drafted = text.draft()
        assert len(drafted) == 4
        text.step(drafted[:kept], int(rng.choice(LIKELY)), again=kept % 3)
    for token in LIKELY * 6:
        text.step([], token)
    assert text.draft()
    written = list(text.text)
    for other in (
        [*written[:-1], 40, 41],
        PROMPT,
        [*PROMPT[:-1], 77],
        [*PROMPT[:-2], 78, 79],
        [*PROMPT[:3], 50, *written[4:]],
        written,
        [1, 9],
        [*PROMPT, 259, 33],
    ):
        text.begin(other, chunk=5)
        assert text.draft()
    text.step(text.draft()[:1], 266)
    assert text.draft()
    # The target's cache comes from the disk, or from another text.
    text.begin(written)
    for changed in range(2, 8):
        other = [*written[:-changed], 60 + changed, *written[len(written) - changed + 1 :]]
        text.cells.text = other[:-1]
        text.begin(other)
        assert text.draft()
        text.begin(written)


def test_drafts_stay_right_whatever_happens(oracle: AssistantOracle) -> None:
    use(Text(oracle))


def test_a_draft_takes_one_pass_a_token_and_rows_take_none(oracle: AssistantOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    assert len(text.cells.logits) == 0
    text.step(text.draft(3)[:2], 271)
    assert len(text.cells.logits) == 3


def test_the_last_row_is_all_that_is_read_again(oracle: AssistantOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for _ in range(30):
        text.step([], 259)
    written, before = list(text.text), text.evaluated
    # Another answer to the same prompt, and one to the whole text.
    text.begin(PROMPT)
    text.begin([*PROMPT, 259])
    assert text.evaluated == before + 1
    text.begin(written)
    assert text.draft()
    # A place in the middle: the row in front of the pending token is evaluated once more.
    before = text.evaluated
    text.begin(written[:20])
    assert text.evaluated == before + 1
    assert text.draft()


def test_a_prompt_that_loses_its_end_is_not_read_again(oracle: AssistantOracle) -> None:
    """The rows before its last one are kept, too, and not with all rows of its pass."""
    for shorter in (1, 2, 4):
        text = Text(oracle)
        text.begin(PROMPT)
        before = text.evaluated
        text.begin([*PROMPT[: -1 - shorter], 77])
        assert text.evaluated == before
        assert text.draft()
        assert all(row.base is None for row in text.drafter._rows.values())


def test_it_may_miss_rows_and_draft_again_later(oracle: AssistantOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for token in LIKELY:
        # As a step whose rows are not shown.
        text.cells.text.append(text.text[-1])
        text.text.append(token)
        text.drafter.observe(Outcome([token], 0))
        assert text.draft() == []
    assert text.drafter.traits.only_last_row
    text.step([], LIKELY[0])
    assert text.draft()


def test_an_empty_text_has_no_draft(oracle: AssistantOracle) -> None:
    text = Text(oracle)
    text.begin([1])
    assert text.draft() == []
    text.step([], 259)
    assert text.draft()


def test_it_drafts_only_with_all_cells_of_the_text_and_one_free(oracle: AssistantOracle) -> None:
    text = Text(oracle, n_cells=len(PROMPT))
    text.begin(PROMPT)
    lost = text.cells.text.pop()
    assert text.draft() == []
    text.cells.text.append(lost)
    assert text.draft()
    text.step([], 259)
    assert text.draft() == []


def test_a_token_that_it_does_not_know_is_not_drafted_behind(oracle: AssistantOracle) -> None:
    text = Text(oracle, n_vocab=N_VOCAB - 2)
    text.begin([*PROMPT, N_VOCAB - 2])
    assert text.draft() == []
    text.step([], N_VOCAB - 3)
    assert text.draft()


def test_old_rows_are_dropped_but_those_where_a_part_ended() -> None:
    cells: Any = None
    drafter = Assistant(cells, name="assistant", n_vocab=N_VOCAB, layers=(LAST,))
    row = {LAST: np.zeros((1, 4), np.float32)}

    def read(place: int) -> None:
        run(drafter.read(Evaluated(place, [259], row)))

    for length in range(10, 400):
        drafter.held([259] * length)
        read(length - 1)
        drafter.begin([259] * (length + 1))
    assert len(drafter._rows) <= 32
    # The text where an answer ended, long before.
    answered = 400 - 17
    for place in range(399, 450):
        drafter.observe(Outcome([259], 0))
        read(place)
    assert drafter.held([259] * 399) == 399
    assert drafter.held([259] * answered) == answered - 1


def test_a_draft_ends_when_the_controller_says_so(oracle: AssistantOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    asked: list[float] = []

    def go_on(confidence: float) -> bool:
        asked.append(confidence)
        return len(asked) < 2

    limit = Limit(8, WARM.prefix(PROMPT), WARM, go_on=go_on)
    assert len(run(text.drafter.passes(limit)).tokens) == 2
    assert len(text.cells.logits) == 2
    cancelled = Limit(8, WARM.prefix(PROMPT), WARM, cancelled=lambda: True)
    assert not run(text.drafter.passes(cancelled))


MISTAKES = {
    "the row before": Edit(
        Assistant.passes, "self._rows.get(before - 1)", "self._rows.get(before - 2)"
    ),
    "rows shifted": Edit(Assistant.read, "self._rows[place] =", "self._rows[place + 1] ="),
    "the row of a rejected text": Edit(
        Assistant.held, "if place < shared}", "if place < len(tokens)}"
    ),
    "one token too many in common": Edit(
        Assistant.held, "common_prefix(self._text, tokens)", "common_prefix(self._text, tokens) + 1"
    ),
    "the target's row for every token": Edit(
        Assistant.passes,
        "token, row = chain.tokens[-1], scores.hidden[_OWN][-1:].copy()",
        "token = chain.tokens[-1]",
    ),
    "the pending token for every token": Edit(
        Assistant.passes,
        "token, row = chain.tokens[-1], scores.hidden[_OWN][-1:].copy()",
        "row = scores.hidden[_OWN][-1:].copy()",
    ),
    "cells that are missing": Edit(Assistant.passes, "self._cells.cells == before < ", "before < "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(oracle: AssistantOracle, mistake: str) -> None:
    text = Text(oracle, Code(MISTAKES[mistake]).of(Assistant))
    with pytest.raises((AssertionError, KeyError, ValueError)):
        use_and_lose(text)


def test_code_without_a_mistake_passes_what_finds_them(oracle: AssistantOracle) -> None:
    use_and_lose(Text(oracle, Code().of(Assistant)))


def use_and_lose(text: Text) -> None:
    """As `use`; then the target's cache loses tokens."""
    use(text)
    for _ in range(3):
        del text.cells.text[-5:]
        text.draft()
