"""A head of multi-token prediction drafts what an independent forward of the whole text drafts.

The head is computed in numpy here, from rows that each depend on the whole text before them;
tests/engine has it in llama.cpp.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from fakes.driven_text import PROMPT, WARM, DrivenText
from fakes.eagle3 import LIKELY, WIDTH
from fakes.mtp import TRUNK, MtpOracle, NumpyHeadCache, write_sidecar
from fakes.mutants import Code, Edit
from fakes.numpy_llama import Floats
from fakes.tiny import N_VOCAB

from localspec.drafters.mtp import ChainedMtp, Mtp
from localspec.drafters.paired_head import PairedHead
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, Scores

# Heads that are alike draft what a single one drafts.
HEADS = 3
chained = partial(ChainedMtp, count=HEADS)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> MtpOracle:
    return MtpOracle(write_sidecar(tmp_path_factory.mktemp("mtp") / "mtp.gguf"))


def rows_of(tokens: Sequence[int]) -> np.ndarray:
    """Rows of a pretended target: each is a sum over all tokens so far, (n, width)."""
    table = np.random.default_rng(7).standard_normal((N_VOCAB, WIDTH))
    rows, row = np.empty((len(tokens), WIDTH)), np.zeros(WIDTH)
    for place, token in enumerate(tokens):
        row = 0.7 * row + table[token]
        rows[place] = row
    rows[:, 0] = 5
    return rows


class Text(DrivenText):
    """A text of a pretended target."""

    def __init__(self, oracle: MtpOracle, head: Callable[..., Mtp] = Mtp, **cache: int) -> None:
        self.cache = NumpyHeadCache(oracle, **cache)
        self.oracle = oracle
        names = {"name": "mtp", "n_vocab": N_VOCAB, "layers": (TRUNK,), "own": TRUNK}
        super().__init__(head(self.cache, width=WIDTH, **names))

    def rows(self, tokens: list[int]) -> dict[int, Floats]:
        return {TRUNK: rows_of(tokens)}

    def draft_logits(self, drafted: list[int]) -> Floats:
        return self.oracle.draft_logits(self.text, rows_of(self.text[:-1]), drafted)


def use(text: Text) -> None:
    """Steps with every verdict, plain steps, rows that come again, edits and a fork."""
    rng = np.random.default_rng(1)
    text.begin(PROMPT, chunk=3)
    for kept in (0, 1, 2, 0, 3, 4, 1):
        drafted = text.draft()
        text.step(drafted[:kept], int(rng.choice(LIKELY)), again=kept % 3)
    for token in LIKELY * 6:
        text.step([], token)
    text.draft()
    written = list(text.text)
    text.begin([*written[:-1], 40, 41])
    text.draft()
    text.begin(PROMPT)
    text.draft()
    text.begin([*PROMPT[:-1], 77])
    text.draft()
    text.begin([*PROMPT[:-1], 78, 79])
    text.draft()
    text.begin([*PROMPT[:3], 50, *written[4:]], chunk=5)
    text.draft()
    text.begin([1])
    text.draft()
    text.begin([*PROMPT, 259, 33])
    text.step(text.draft()[:1], 266)
    text.draft()


def test_drafts_stay_right_whatever_happens(oracle: MtpOracle) -> None:
    use(Text(oracle))


@pytest.mark.parametrize("chunk", [1, 3])
def test_in_a_cache_that_decodes_little_at_once(oracle: MtpOracle, chunk: int) -> None:
    use(Text(oracle, chunk=chunk))


def test_a_draft_takes_one_decode_a_token(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft(3)
    before = text.cache.passes
    text.step([259, 266], 271)
    assert text.cache.passes == before
    text.draft(3)
    assert text.cache.passes == before + 3


def test_plain_steps_are_read_in_few_passes(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    before = text.cache.passes
    for token in LIKELY * 10:
        text.step([], token)
    assert text.cache.passes - before <= 40 / 16
    text.draft()
    assert text.cache.tokens == text.text


def test_a_prompt_is_answered_again_without_reading_it_again(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for token in LIKELY * 10:
        text.step([], token)
    read = text.evaluated
    text.begin(PROMPT)
    assert text.evaluated == read
    assert text.draft()


def test_drafts_end_with_the_context(oracle: MtpOracle) -> None:
    text = Text(oracle, n_ctx=len(PROMPT) + 1)
    text.begin(PROMPT)
    assert len(text.draft(10)) == 2


def test_a_restored_cache_is_gone_on_with(oracle: MtpOracle) -> None:
    text, fresh = Text(oracle), Text(oracle)
    text.begin(PROMPT)
    text.step(text.draft()[:2], 266)
    text.draft()
    fresh.cache.tokens = list(text.cache.tokens)
    fresh.cache.rows = list(text.cache.rows)
    fresh.held = list(text.held)
    fresh.begin([*text.text, 33, 34])
    assert fresh.evaluated <= 3
    fresh.draft()


def test_a_row_that_is_missing_ends_the_drafts(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.held = [*PROMPT, 259, 266]
    text.evaluate(9, [271])
    text.text = [*PROMPT, 259, 266, 271, 275]
    text.drafter.begin(text.text)
    assert not text.draft()
    text.begin(text.text)
    assert text.draft()


@pytest.mark.parametrize("count", [1, HEADS])
def test_pairs_that_the_cache_loses_end_the_drafts(
    oracle: MtpOracle, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """As a sliding window does whose cells another text has taken."""
    head = chained if count > 1 else Mtp
    lost = drafts = 0
    for losing in range(1, 60):
        text = Text(oracle, head, chunk=7)
        usual, cuts = text.cache.truncate, 0

        def truncate(length: int, losing: int = losing, usual: Any = usual) -> int:
            nonlocal cuts, lost
            cuts += 1
            lost += cuts == losing
            return int(usual(0 if cuts == losing else length))

        monkeypatch.setattr(text.cache, "truncate", truncate)
        text.begin(PROMPT, chunk=5)
        for kept in (0, 2, 1, 3):
            drafted = text.draft()
            text.step(drafted[:kept], 259)
            drafts += bool(drafted)
        text.step([], 33)
        for token in LIKELY * 6:
            text.step([], token)
        text.draft()
        over = cuts >= losing
        text.begin([*text.text, 40, 41])
        assert text.draft() or not over
    assert lost > 10
    assert drafts > 40


def test_an_abandoned_draft_leaves_nothing_behind(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for stop in (1, 2, 3):
        passes = text.drafter.passes(Limit(5, WARM.prefix(text.text), WARM))
        requested = next(passes)
        for _ in range(stop):
            requested = passes.send(text.cache.decode([requested])[0])
        passes.close()
        text.draft()
        text.step([], 259)


def test_chained_heads_stay_right_whatever_happens(oracle: MtpOracle) -> None:
    text = Text(oracle, chained)
    assert text.drafter.traits.deepest == HEADS
    use(text)


def test_chained_heads_read_the_pairs_of_shallow_drafts_once(
    oracle: MtpOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Text(oracle, chained)
    text.begin(PROMPT)
    assert len(text.draft(8)) == HEADS
    usual, rows = text.cache.decode, {0: 0, 1: 0}

    def decode(passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        rows[one.wanted] += len(one)
        assert len(one) <= HEADS + 1 or not one.wanted
        return usual(passes)

    monkeypatch.setattr(text.cache, "decode", decode)
    for token in LIKELY * 5:
        text.step(text.draft(1), token)
    # Two tokens a step: each is read by all heads, and again by the first one in the next drafts.
    assert rows[0] <= HEADS * 2 * 20
    assert rows[1] <= 20 * (HEADS + 1)


def planted() -> Iterator[tuple[str, Callable[[], Code]]]:
    yield (
        "rows shifted by one",
        lambda: Code(
            Edit(
                Mtp._state,
                "self._states[place] if place >= 0",
                "self._states[min(place + 1, max(self._states))] if place >= 0",
            )
        ),
    )
    yield (
        "the first row in front of the text",
        lambda: Code(Edit(Mtp._state, "if place >= 0 else", "if place > 0 else")),
    )
    yield (
        "a stale pair after a rejection",
        lambda: Code(
            Edit(
                PairedHead.passes,
                "        self._cut_pairs(self._pairs)\n        return chain.draft",
                "        self._pairs = len(self._cache.tokens)\n        return chain.draft",
            )
        ),
    )
    yield (
        "the row of a token that was evaluated again in place of a new one's",
        lambda: Code(Edit(PairedHead.read, "[layer][known:]", "[layer][: len(tokens) - known]")),
    )
    yield (
        "the target's row where the head's own belongs",
        lambda: Code(
            Edit(
                PairedHead._draw,
                "scores.hidden[self._own][-1:].copy()",
                "self._state(len(self._text) - 2)[None]",
            )
        ),
    )
    yield (
        "the pair of another pending token stays",
        lambda: Code(
            Edit(
                PairedHead.held,
                "if not pair or pair != list(tokens[kept : kept + 1])",
                "if not pair",
            )
        ),
    )


MISTAKES = dict(planted())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(oracle: MtpOracle, mistake: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        use(Text(oracle, MISTAKES[mistake]().of(Mtp)))
