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
from fakes.mtp import (
    TRUNK,
    ChainOracle,
    MtpOracle,
    NumpyChainCache,
    NumpyHeadCache,
    write_chain,
    write_sidecar,
)
from fakes.mutants import Code, Edit
from fakes.numpy_llama import Floats
from fakes.tiny import N_VOCAB

from localspec.drafters.head_cache import MOST_WAITING
from localspec.drafters.mtp import ChainedMtp, Mtp
from localspec.drafters.paired_head import PairedHead
from localspec.drafters.row_reader import RowReader
from localspec.speculation.drafter import Evaluated, Limit
from localspec.speculation.passes import Pass, Scores

HEADS = 3
chained = partial(ChainedMtp, count=HEADS)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> MtpOracle:
    return MtpOracle(write_sidecar(tmp_path_factory.mktemp("mtp") / "mtp.gguf"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> ChainOracle:
    return ChainOracle(write_chain(tmp_path_factory.mktemp("chain") / "chain.gguf", heads=HEADS))


@pytest.fixture(scope="module", params=[Mtp, chained], ids=["one head", "chained heads"])
def of_kind(
    request: pytest.FixtureRequest, oracle: MtpOracle, chain: ChainOracle
) -> Callable[..., "Text"]:
    """Makes a text with one head or with several."""
    return partial(Text, oracle if request.param is Mtp else chain, request.param)


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

    def __init__(
        self, oracle: MtpOracle | ChainOracle, head: Callable[..., Mtp] = Mtp, **cache: int
    ) -> None:
        kind = NumpyChainCache if isinstance(oracle, ChainOracle) else NumpyHeadCache
        self.cache = kind(oracle, **cache)  # type: ignore[arg-type]
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
    for kept, depth in ((0, 4), (1, 1), (2, 4), (0, 2), (3, 4), (1, 1), (4, 4), (1, 4)):
        drafted = text.draft(depth)
        text.step(drafted[:kept], int(rng.choice(LIKELY)), again=kept % 3)
    for token in LIKELY * 6:
        text.step([], token)
    text.draft()
    text.step([], PROMPT[0])
    text.step([], 259)
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


def test_drafts_stay_right_whatever_happens(of_kind: Callable[..., Text]) -> None:
    use(of_kind())


@pytest.mark.parametrize("chunk", [1, 3])
def test_in_a_cache_that_decodes_little_at_once(oracle: MtpOracle, chunk: int) -> None:
    use(Text(oracle, chunk=chunk))


@pytest.mark.parametrize("chunk", [HEADS + 1, HEADS + 2])
def test_chained_heads_in_a_cache_that_decodes_little_at_once(
    chain: ChainOracle, chunk: int
) -> None:
    """A draft's pass has room for one pair of the text, and for the tokens drafted before."""
    use(Text(chain, chained, chunk=chunk))


def test_a_draft_takes_one_decode_a_token(of_kind: Callable[..., Text]) -> None:
    text = of_kind()
    text.begin(PROMPT)
    text.draft(3)
    for accepted in ([259, 266], [], [259], [259, 266, 275]):
        before = text.cache.passes
        text.step(accepted, 271)
        assert text.cache.passes == before
        text.draft(3)
        assert text.cache.passes == before + 3


def test_a_row_that_is_kept_does_not_keep_those_of_its_pass(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin([*PROMPT, *LIKELY * 10])
    text.draft()
    assert text.drafter._states
    assert all(row.base is None for row in text.drafter._states.values())


def test_plain_steps_are_read_in_few_passes(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    before, wanted = text.cache.passes, text.cache.wanted
    for token in LIKELY * 10:
        text.step([], token)
    assert text.cache.passes - before <= 40 / 16
    assert text.cache.wanted == wanted
    assert len(text.cache.tokens) >= len(text.text) - 1 - MOST_WAITING
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
    text.draft()


def test_a_part_that_was_read_may_come_again(of_kind: Callable[..., Text]) -> None:
    """Where another drafter has to read it."""
    text = of_kind()
    text.begin([*PROMPT, *LIKELY * 6])
    text.draft()
    before = text.cache.passes
    for start in (0, 3):
        tokens = text.text[start : start + 3]
        hidden = {TRUNK: rows_of(text.text)[start : start + 3].astype(np.float32)}
        text.compute(text.drafter.read(Evaluated(start, tokens, hidden)))
    text.draft(2)
    assert text.cache.passes == before + 2


def test_a_text_that_grows_token_by_token_is_read_on(oracle: MtpOracle) -> None:
    """Each of its prompts ends at another place, at which a row may wait for its pair."""
    words, text = [1, *LIKELY * 12], Text(oracle)
    for length in range(2, len(words)):
        text.begin(words[:length])
        assert text.evaluated == length - 1
    text.draft()


def test_the_end_of_an_answer_is_gone_back_to_without_reading_it_again(
    of_kind: Callable[..., Text],
) -> None:
    text = of_kind()
    text.begin(PROMPT)
    for token in LIKELY * 5:
        text.step([], token)
    answered = list(text.text)
    text.begin([*answered, 40, 41, *LIKELY * 5])
    text.draft()
    read = text.evaluated
    # Its last token was pending, and another one stands there.
    text.begin([*answered[:-1], 42, 43])
    assert text.evaluated == read + 1
    text.draft()


def test_drafts_end_with_the_context(oracle: MtpOracle) -> None:
    text = Text(oracle, n_ctx=len(PROMPT) + 1)
    text.begin(PROMPT)
    assert len(text.proposed(10)) == 2


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


def test_of_a_restored_cache_the_beginning_is_gone_on_with(oracle: MtpOracle) -> None:
    """It is another text's, of which this one has the first tokens alone."""
    text, fresh = Text(oracle), Text(oracle)
    text.begin([*PROMPT, 40, 41, 42])
    text.draft()
    fresh.cache.tokens = list(text.cache.tokens)
    fresh.cache.rows = list(text.cache.rows)
    fresh.held = list(text.held)
    fresh.begin([*PROMPT, 50, 51, 52, 53])
    assert fresh.evaluated <= 5
    assert fresh.draft()


def test_a_row_that_is_missing_ends_the_drafts(oracle: MtpOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.held = [*PROMPT, 259, 266]
    text.evaluate(9, [271])
    text.text = [*PROMPT, 259, 266, 271, 275]
    text.drafter.begin(text.text)
    assert not text.proposed()
    text.begin(text.text)
    text.draft()


def test_pairs_that_the_cache_loses_end_the_drafts(
    of_kind: Callable[..., Text], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another text finds, behind a pass of this one, that the device has failed."""
    lost = drafts = 0
    for losing in range(1, 60):
        text = of_kind(chunk=7)
        cache, usual, passes = text.cache, text.cache.truncate, 0

        def truncate(
            length: int, losing: int = losing, cache: Any = cache, usual: Any = usual
        ) -> int:
            nonlocal passes, lost
            if cache.passes >= losing > passes:
                lost += 1
                cache.lose()
            passes = cache.passes
            return int(usual(length))

        monkeypatch.setattr(cache, "truncate", truncate)
        # The row of the first token, where a prompt ends, stays known.
        text.begin(PROMPT[:2])
        text.begin(PROMPT, chunk=5)
        for kept in (0, 2, 1, 3):
            drafted = text.proposed()
            text.step(drafted[:kept], 259)
            drafts += bool(drafted)
        for token in LIKELY * 5:
            text.step([], token)
        text.proposed()
        over = cache.passes >= losing
        text.begin([*text.text, 40, 41])
        assert text.proposed() or not over
    assert lost > 10
    assert drafts > 40


def test_a_text_is_read_again_where_the_device_has_failed_since(
    of_kind: Callable[..., Text], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = of_kind()
    text.begin(PROMPT)
    text.draft()
    usual = text.cache.truncate

    def truncate(length: int) -> int:
        monkeypatch.undo()
        text.cache.lose()
        return int(usual(length))

    monkeypatch.setattr(text.cache, "truncate", truncate)
    text.begin([*PROMPT, 40])
    assert text.evaluated == len(PROMPT) - 1 + len(PROMPT)
    text.draft()


@pytest.mark.parametrize("plain", [0, 20])
def test_an_abandoned_draft_leaves_nothing_behind(of_kind: Callable[..., Text], plain: int) -> None:
    """plain: as many steps come before the next draft, whose rows go into the cache meanwhile."""
    text = of_kind()
    text.begin(PROMPT)
    for stop in (1, 2, 3):
        passes = text.drafter.passes(Limit(5, WARM.prefix(text.text), WARM))
        requested = next(passes)
        for _ in range(stop - 1):
            requested = passes.send(text.cache.decode([requested])[0])
        text.cache.decode([requested])
        passes.close()
        for _ in range(plain):
            text.step([], 266)
        text.draft()
        text.step([], 259)


def test_chained_heads_read_the_pairs_of_shallow_drafts_once(
    chain: ChainOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Text(chain, chained)
    text.begin(PROMPT)
    assert len(text.draft(8)) == HEADS == text.drafter.traits.deepest
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
        lambda: Code(Edit(RowReader.read, "[layer][known:]", "[layer][: len(tokens) - known]")),
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


OF_CHAINS = {
    "the first head alone": Edit(
        ChainedMtp._draw,
        "                layer_offset=head,\n",
        "                layer_offset=0,\n",
    ),
    "pairs that some heads have not read": Edit(
        ChainedMtp._draw, "if head == self._heads - 1:", "if True:"
    ),
    "the row behind the first token of a pass": Edit(
        ChainedMtp._draw, "hidden[self._own][-1:]", "hidden[self._own][:1]"
    ),
}
MISTAKES = dict(planted())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(oracle: MtpOracle, mistake: str) -> None:
    text = Text(oracle, MISTAKES[mistake]().of(Mtp))
    with pytest.raises((AssertionError, KeyError)):
        use(text)


@pytest.mark.parametrize("mistake", OF_CHAINS)
def test_a_planted_mistake_of_chained_heads_is_found(chain: ChainOracle, mistake: str) -> None:
    mistaken = partial(Code(OF_CHAINS[mistake]).of(ChainedMtp), count=HEADS)
    with pytest.raises(AssertionError):
        use(Text(chain, mistaken))
