"""A head that drafts blocks drafts what an independent forward of the whole text drafts.

The head and its target are computed in numpy here; tests/llama has them in llama.cpp.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.dflash import KINDS, BlockOracle, NumpyBlockCache, block_drafter, write_block_head
from fakes.driven_text import GREEDY, PROMPT, WARM, DrivenText
from fakes.eagle3 import LIKELY, READS, write_target
from fakes.mutants import Code, Edit
from fakes.numpy_llama import Floats
from fakes.tiny import N_VOCAB
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.dflash import Dflash
from localspec.drafters.dflash2 import Dflash2
from localspec.drafters.dspark import Dspark
from localspec.drafters.head_cache import MOST_WAITING
from localspec.sampling.noise import Noise
from localspec.sampling.prefix import Constraint
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.passes import Pass, Scores, run


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def oracle(kind: str, tmp_path_factory: pytest.TempPathFactory) -> BlockOracle:
    folder: Path = tmp_path_factory.mktemp("block")
    head = write_block_head(folder / "head.gguf", KINDS[kind][0])
    return BlockOracle(write_target(folder / "target.gguf"), head)


class Text(DrivenText):
    """A text of a target in numpy."""

    def __init__(
        self, oracle: BlockOracle, drafter: type[Dflash] | None = None, **cache: int
    ) -> None:
        self.cache = NumpyBlockCache(oracle, **cache)
        self.oracle = oracle
        super().__init__(block_drafter(self.cache, oracle.head, drafter or KINDS[oracle.kind][1]))

    def rows(self, tokens: list[int]) -> dict[int, Floats]:
        states = self.oracle.target.hidden(tokens)
        return {layer: states[layer] for layer in READS}

    def draft_logits(self, drafted: list[int]) -> Floats:
        return self.oracle.draft_logits(self.text, drafted)


def test_greedy_drafts_are_those_of_the_oracle(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    assert text.draft(8, GREEDY) == oracle.draft(PROMPT, 8)
    assert len(set(text.draft(8))) > 1


@pytest.mark.parametrize("sampler", [GREEDY, WARM], ids=["greedy", "warm"])
def test_drafts_stay_right_after_any_verdict_at_any_depth(
    oracle: BlockOracle, sampler: Sampler
) -> None:
    rng = np.random.default_rng(1)
    text = Text(oracle)
    text.begin(PROMPT)
    accepted: Counter[tuple[int, int]] = Counter()
    for depth in [*range(1, 9)] * 2:
        for kept in sorted({0, depth // 2, depth}):
            drafted = text.draft(depth, sampler)
            assert len(drafted) == depth
            text.step(drafted[:kept], int(rng.choice(LIKELY)))
            accepted[depth, kept] += 1
            if len(text.text) > 60:
                text.begin([*PROMPT, kept, depth])
    assert len(accepted) == 2 + 7 * 3 and min(accepted.values()) == 2


def test_a_draft_has_at_most_the_tokens_of_a_block(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    assert len(text.draft(30)) == oracle.block.drafted == text.drafter.traits.deepest


def test_a_draft_takes_one_pass_at_any_depth(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft(3)
    before = text.cache.passes
    text.step([259, 266], 271)
    assert text.cache.passes == before
    text.draft(8)
    assert text.cache.passes == before + 2
    text.draft(1)
    assert text.cache.passes == before + 3
    assert text.cache.tokens == text.text[:-1]


def test_plain_steps_are_read_in_few_passes(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    before = text.cache.passes
    for token in LIKELY * 10:
        text.step([], token)
    assert text.cache.passes - before <= 40 / 16
    assert len(text.cache.tokens) >= len(text.text) - 1 - MOST_WAITING
    text.draft()


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64])
def test_long_prompts_are_read_in_chunks_of_any_size(oracle: BlockOracle, chunk: int) -> None:
    prompt = [1, *(int(each) for each in np.random.default_rng(0).integers(3, N_VOCAB, 60))]
    text = Text(oracle, chunk=chunk)
    text.begin(prompt, chunk=7)
    text.draft()
    text.step([259], 266)
    text.draft()


def test_what_a_text_shares_is_read_once(oracle: BlockOracle) -> None:
    prompt = [1, *(int(each) for each in np.random.default_rng(0).integers(3, N_VOCAB, 40))]
    text = Text(oracle)
    text.begin(prompt)
    for token in LIKELY * 10:
        text.step(text.draft()[:2], token)
    answer, read = list(text.text), text.evaluated
    # It goes on: the token that was pending, and the new ones but the last.
    text.begin([*answer, 40, 41, 42])
    assert text.evaluated == read + 3
    text.draft()
    # The prompt is answered again, and then edited.
    text.begin(prompt)
    assert text.evaluated == read + 3
    text.draft()
    text.begin([*prompt[:20], 50, *prompt[21:]])
    assert text.evaluated == read + 3 + 20
    text.draft()


def test_another_pending_token_is_drafted_after(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    text.begin([*PROMPT[:-1], 77])
    text.draft()
    text.begin([*PROMPT[:-1], 78, 79])
    text.draft()


def test_rows_that_come_again_change_nothing(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for again in (1, 3, 6):
        text.draft()
        text.text += [259]
        text.drafter.observe(Outcome([259], 0))
        text.evaluate(len(text.text) - 2, text.text[-2:-1], again)
        text.draft()


def test_a_text_that_was_not_read_in_full_is_not_drafted_for(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.held = [*PROMPT, 259, 266]
    text.evaluate(9, [271, 275])
    text.text = [*PROMPT, 259, 266, 271, 275, 259]
    text.drafter.begin(text.text)
    assert not text.proposed()
    # Until the text is read from where it ends for the head.
    assert text.drafter.held(text.text[:-1]) == len(PROMPT) - 1
    text.begin(text.text)
    text.draft()


def test_a_token_outside_the_heads_vocabulary_is_read_and_not_drafted_after(
    oracle: BlockOracle,
) -> None:
    text = Text(oracle)
    text.cache.n_vocab = 280
    text.begin(PROMPT)
    text.draft()
    text.step([], 281)
    assert not text.proposed()
    text.step([], 259)
    text.draft()


def test_a_block_that_has_no_room_is_not_drafted(oracle: BlockOracle) -> None:
    text = Text(oracle, n_ctx=len(PROMPT) - 1 + oracle.block.size)
    text.begin(PROMPT)
    text.draft()
    text.step([], 259)
    assert not text.proposed()


@pytest.mark.parametrize("computed", [0, 1, 2])
def test_a_draft_that_is_cancelled_leaves_nothing(oracle: BlockOracle, computed: int) -> None:
    """The passes are computed, but their scores are never seen."""
    text = Text(oracle)
    text.begin(PROMPT)
    text.step([259, 266], 275)
    passes = text.drafter.passes(Limit(4, WARM.prefix(text.text), WARM))
    requested = next(passes)
    for number in range(computed):
        scores = text.cache.decode([requested])[0]
        if number + 1 < computed:
            requested = passes.send(scores)
    passes.close()
    text.draft()
    text.begin([*text.text, 40])
    text.draft()


def test_a_cache_that_was_restored_is_gone_on_with(oracle: BlockOracle) -> None:
    text, other = Text(oracle), Text(oracle)
    text.begin(PROMPT)
    text.step(text.draft()[:2], 259)
    text.draft()
    other.begin([*PROMPT[:-2], 40, 41])
    other.draft()
    other.cache.tokens, other.cache._features = list(text.cache.tokens), text.cache._features
    other.held = list(text.held)
    other.begin(text.text)
    assert not other.evaluated - len(PROMPT) + 1
    assert other.draft() == text.draft()


@pytest.mark.parametrize(
    "kept", [[], PROMPT[:3], [*PROMPT[:3], 90, 91, 92], [*PROMPT, 259]], ids=len
)
def test_a_cache_that_was_restored_holds_what_it_holds(
    oracle: BlockOracle, kept: list[int]
) -> None:
    """Nothing, less of the text, as much of another one, or more; a row was waiting meanwhile."""
    text, other = Text(oracle), Text(oracle)
    text.begin(PROMPT)
    text.draft()
    text.step([], 259)
    other.begin([*kept, 40])
    other.draft()
    text.cache.tokens, text.cache._features = list(other.cache.tokens), other.cache._features
    text.begin([*PROMPT, 259, 33])
    text.draft()


def test_a_draft_that_nobody_waits_for_takes_no_pass(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    limit = Limit(4, WARM.prefix(PROMPT), WARM, cancelled=lambda: True)
    assert not run(text.drafter.passes(limit)).tokens
    assert text.cache.passes == 0


class OnlyEven(Constraint):
    """A grammar of even tokens; every third token of it may be none of the likely ones."""

    def __init__(self, allowed: np.ndarray) -> None:
        self._allowed = allowed

    def allowed(self) -> np.ndarray:
        return self._allowed

    def then(self, token: int) -> "OnlyEven":
        return self


def test_a_grammar_is_kept(oracle: BlockOracle) -> None:
    even = np.arange(N_VOCAB) % 2 == 0
    for sampler in (GREEDY, WARM):
        strict = Sampler(sampler.params, Noise(1), constraint=OnlyEven(even))
        text = Text(oracle)
        text.begin(PROMPT)
        drafted = text.draft(8, strict)
        assert all(token % 2 == 0 for token in drafted)
        text.step(drafted[:1], 266)
        text.draft(8, strict)


def test_a_grammar_that_leaves_nothing_ends_the_draft(oracle: BlockOracle) -> None:
    strict = Sampler(WARM.params, Noise(1), constraint=OnlyEven(np.zeros(N_VOCAB, bool)))
    text = Text(oracle)
    text.begin(PROMPT)
    assert text.proposed(8, strict) == []
    assert text.draft(8)


def test_drawing_ends_where_the_policy_says(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    whole, seen = text.draft(6), list[float]()
    limit = Limit(
        6, WARM.prefix(text.text), WARM, go_on=lambda each: seen.append(each) or len(seen) < 3
    )
    draft = run(text.drafter.passes(limit))
    # The token just drawn is proposed in any case.
    assert [*draft.tokens] == whole[:3]
    assert len(seen) == 3


@pytest.mark.parametrize("kind", ["dspark"], scope="module")
def test_a_confidence_head_says_how_sure_it_is(oracle: BlockOracle) -> None:
    text, seen = Text(oracle), list[float]()
    text.begin(PROMPT)
    for _ in range(3):
        seen.clear()
        limit = Limit(8, WARM.prefix(text.text), WARM, go_on=lambda each: not seen.append(each))
        draft = run(text.drafter.passes(limit))
        chances = oracle.confidence(text.text)[: len(seen)]
        assert np.abs(np.array(seen) - np.log(chances / (1 - chances))).max() < 1e-3
        assert len(set(np.round(seen, 3))) > 4
        text.step([*draft.tokens][:2], 266)


@pytest.mark.parametrize("kind", ["dspark"], scope="module")
@pytest.mark.parametrize("chance", [0, 1])
def test_a_confidence_that_was_rounded_to_a_certainty_is_a_number(
    oracle: BlockOracle, monkeypatch: pytest.MonkeyPatch, chance: int
) -> None:
    text, seen = Text(oracle), list[float]()
    text.begin(PROMPT)
    usual = text.cache.decode

    def decode(passes: Sequence[Pass]) -> list[Scores]:
        [found] = usual(passes)
        for rows in found.hidden.values():
            rows[:] = chance
        return [found]

    monkeypatch.setattr(text.cache, "decode", decode)
    limit = Limit(4, WARM.prefix(PROMPT), WARM, go_on=lambda each: not seen.append(each))
    assert len(run(text.drafter.passes(limit)).tokens) == 4
    assert np.abs(seen).min() > 10 and np.isfinite(seen).all()
    assert (np.array(seen) > 0).all() == chance


@pytest.mark.parametrize("kind", ["dflash2"], scope="module")
def test_candidates_take_no_logits_of_the_whole_vocabulary(oracle: BlockOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    assert text.cache.wanted == 0


@pytest.mark.parametrize("kind", ["dflash2"], scope="module")
@pytest.mark.parametrize(
    ("ids", "scores", "drafts"),
    [
        (N_VOCAB, 0, True),
        (-1, 0, True),
        (np.nan, 0, True),
        (100, np.nan, True),
        (100, np.inf, True),
        ([N_VOCAB, -1, np.inf, np.nan, 1e9], 0, False),
        (range(100, 105), np.nan, False),
    ],
)
def test_candidates_that_are_not_of_the_target_are_left_out(
    oracle: BlockOracle, monkeypatch: pytest.MonkeyPatch, ids: Any, scores: float, drafts: bool
) -> None:
    """One candidate of each row is broken, or all."""
    text = Text(oracle)
    text.begin(PROMPT)
    count = oracle.block.candidates
    usual, broken = text.cache.decode, slice(None) if isinstance(ids, Sequence) else slice(1)
    lattice = np.empty(0)

    def decode(passes: Sequence[Pass]) -> list[Scores]:
        nonlocal lattice
        [found] = usual(passes)
        for row in found.hidden.values():
            row[:, :count][:, broken] = ids
            for start in range(count, count * (count + 1), count):
                row[:, start : start + count][:, broken] += np.float32(scores)
            lattice = row
        return [found]

    monkeypatch.setattr(text.cache, "decode", decode)
    draft = run(text.drafter.passes(Limit(4, WARM.prefix(PROMPT), WARM, needs_probs=True)))
    assert len(draft.tokens) == (4 if drafts else 0)
    before = 0
    for row, token, probs in zip(lattice[1:], draft.tokens, draft.probs or (), strict=False):
        others = slice(1, count)
        after = row[count : count * (count + 1)].reshape(count, count)[before, others]
        weights = np.exp(after.astype(float) - after.max())
        law = probs.dense(N_VOCAB)[row[others].astype(int)]
        assert np.abs(law - weights / weights.sum()).max() < 1e-5
        before = row[:count].tolist().index(token)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["draft", "plain", "cut", "edit", "go on"]),
        st.integers(0, 40),
        st.sampled_from(LIKELY),
    ),
    max_size=10,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(actions=ACTIONS)
def test_drafts_stay_right_whatever_happens(
    oracle: BlockOracle, actions: list[tuple[str, int, int]]
) -> None:
    text = Text(oracle, chunk=5)
    text.begin(PROMPT, chunk=4)
    for action, number, token in actions:
        if action == "draft":
            drafted = text.draft(1 + number % 8)
            text.step(drafted[: number % (len(drafted) + 1)], token)
        elif action == "plain":
            text.step([], token)
        elif action == "cut":
            text.begin([*text.text[: 1 + number % len(text.text)], token])
        elif action == "edit":
            place = number % len(text.text)
            text.begin([*text.text[:place], token, *text.text[place + 1 :], token])
        else:
            text.begin([*text.text, *LIKELY, token], chunk=3)
        text.draft(2)


def planted() -> Iterator[tuple[str, Callable[[], Code]]]:
    yield (
        "rows shifted by one",
        lambda: Code(
            Edit(
                Dflash.read,
                "evaluated.hidden[layer][known:]",
                "np.roll(evaluated.hidden[layer], 1, axis=0)[known:]",
            )
        ),
    )
    yield (
        "layers in another order",
        lambda: Code(
            Edit(
                Dflash.read,
                "for layer in self.traits.reads_hidden",
                "for layer in reversed(self.traits.reads_hidden)",
            )
        ),
    )
    yield (
        "rows of a token that was evaluated again are taken for the next ones",
        lambda: Code(
            Edit(
                Dflash.read,
                "        self._keep(start + known)\n        known = len(self._read) - start\n",
                "        self._keep(start + known)\n        known = 0\n",
            )
        ),
    )
    yield (
        "the rows of another text stay",
        lambda: Code(
            Edit(
                Dflash.read,
                "common_prefix(self._read[start:], tokens)",
                "max(0, min(len(self._read) - start, len(tokens)))",
            ),
            Edit(Dflash.held, "common_prefix(self._read, tokens)", "len(tokens)"),
        ),
    )
    yield (
        "drafts for a text with rows missing",
        lambda: Code(Edit(Dflash.passes, "known != len(self._read)", "False")),
    )
    yield (
        "a block without the last of its masks",
        lambda: Code(Edit(Dflash.passes, "* (block.size - 1)", "* depth")),
    )
    yield (
        "rows that wait are forgotten",
        lambda: Code(Edit(Dflash._keep, "self._rows[max(0, length - before) :]", "self._rows[:]")),
    )


def planted_in_dspark() -> Iterator[tuple[str, Callable[[], Code]]]:
    yield (
        "the confidence of the row before",
        lambda: Code(Edit(Dspark._confidence, "[place, 0]", "[place - 1, 0]")),
    )
    yield (
        "rows without the anchor's",
        lambda: Code(Edit(Dspark._draw, "scores.logits[place]", "scores.logits[place - 1]")),
    )


def planted_in_dflash2() -> Iterator[tuple[str, Callable[[], Code]]]:
    yield (
        "the candidates of the row mixed up",
        lambda: Code(Edit(Dflash2._draw, "= row[:count],", "= row[:count][::-1],")),
    )
    yield (
        "scores after the first candidate",
        lambda: Code(Edit(Dflash2._draw, "before * count :", "0 * count :")),
    )
    yield (
        "scores after the candidate that is the likeliest",
        lambda: Code(
            Edit(
                Dflash2._draw,
                "np.flatnonzero(known & (ids == chain.tokens[-1]))[0]",
                "transitions.argmax()",
            )
        ),
    )
    yield (
        "the row of the pending token",
        lambda: Code(Edit(Dflash2._draw, "[self._block.rows][1:]", "[self._block.rows][2:]")),
    )


MISTAKES = dict(planted())
OF_KINDS = {
    **{("dspark", name): (Dspark, code) for name, code in planted_in_dspark()},
    **{("dflash2", name): (Dflash2, code) for name, code in planted_in_dflash2()},
}


def go_through(text: Text) -> None:
    """What a text goes through in which mistakes show."""
    text.begin(PROMPT, chunk=4)
    for kept in (0, 1, 2, 0, 3):
        drafted = text.draft()
        text.step(drafted[:kept], 266)
    text.text += [259]
    text.drafter.observe(Outcome([259], 0))
    text.evaluate(len(text.text) - 2, text.text[-2:-1], 3)
    text.draft()
    text.begin([*text.text[:-3], 40, 41, 42, 43])
    text.draft()
    text.text += [259, 266]
    text.drafter.observe(Outcome([259, 266], 0))
    assert not text.proposed()


def test_the_text_without_a_mistake(oracle: BlockOracle) -> None:
    go_through(Text(oracle))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    head = write_block_head(tmp_path / "head.gguf", KINDS["dflash"][0])
    oracle = BlockOracle(write_target(tmp_path / "target.gguf"), head)
    text = Text(oracle, MISTAKES[mistake]().of(Dflash))
    with pytest.raises((AssertionError, KeyError, ValueError)):
        go_through(text)


@pytest.mark.parametrize(("kind", "mistake"), OF_KINDS, ids=[" ".join(each) for each in OF_KINDS])
def test_a_planted_mistake_of_a_kind_is_found(tmp_path: Path, kind: str, mistake: str) -> None:
    head = write_block_head(tmp_path / "head.gguf", KINDS[kind][0])
    oracle = BlockOracle(write_target(tmp_path / "target.gguf"), head)
    drafter, plant = OF_KINDS[kind, mistake]
    code = plant()
    with pytest.raises((AssertionError, ValueError)):
        go_through(Text(oracle, code.of(drafter)))
        seen: list[float] = []
        text = Text(oracle, code.of(drafter))
        text.begin(PROMPT)
        run(
            text.drafter.passes(
                Limit(8, WARM.prefix(PROMPT), WARM, go_on=lambda c: not seen.append(c))
            )
        )
        chances = oracle.confidence(PROMPT)[: len(seen)]
        assert np.abs(np.array(seen) - np.log(chances / (1 - chances))).max() < 1e-3
