"""The EAGLE-3 head drafts what an independent forward of the whole text drafts, after any verdict.

The head and its target are computed in numpy here; tests/llama has them in llama.cpp.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.driven_text import GREEDY, PROMPT, WARM, DrivenText
from fakes.eagle3 import LIKELY, READS, Eagle3Oracle, NumpyHeadCache, write_head, write_target
from fakes.mutants import Code, Edit
from fakes.numpy_llama import Floats
from fakes.tiny import N_VOCAB
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.eagle3 import Eagle3
from localspec.drafters.head_cache import MOST_WAITING
from localspec.drafters.paired_head import PairedHead
from localspec.drafters.row_reader import RowReader
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.passes import run


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Eagle3Oracle:
    folder: Path = tmp_path_factory.mktemp("eagle3")
    return Eagle3Oracle(write_target(folder / "target.gguf"), write_head(folder / "head.gguf"))


class Text(DrivenText):
    """A text of a target in numpy."""

    def __init__(self, oracle: Eagle3Oracle, head: type[Eagle3] = Eagle3, **cache: int) -> None:
        self.cache = NumpyHeadCache(oracle, **cache)
        self.oracle = oracle
        super().__init__(head(self.cache, name="head", n_vocab=N_VOCAB, layers=READS))

    def rows(self, tokens: list[int]) -> dict[int, Floats]:
        states = self.oracle.target.hidden(tokens)
        return {layer: states[layer] for layer in READS}

    def draft_logits(self, drafted: list[int]) -> Floats:
        return self.oracle.draft_logits(self.text, drafted)


def test_greedy_drafts_are_those_of_the_oracle(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    assert text.draft(6, GREEDY) == oracle.draft(PROMPT, 6)
    assert len(set(text.draft(6))) > 1


@pytest.mark.parametrize("sampler", [GREEDY, WARM], ids=["greedy", "warm"])
def test_drafts_stay_right_after_any_verdict(oracle: Eagle3Oracle, sampler: Sampler) -> None:
    rng = np.random.default_rng(1)
    text = Text(oracle)
    text.begin(PROMPT)
    accepted_counts = set()
    for _ in range(12):
        drafted = text.draft(int(rng.integers(1, 6)), sampler)
        kept = int(rng.integers(0, len(drafted) + 1))
        accepted_counts.add(kept)
        text.step(drafted[:kept], int(rng.choice(LIKELY)))
    assert {0, 1, 2} <= accepted_counts


def test_a_draft_takes_one_encode_and_one_decode_a_token(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft(3)
    before = text.cache.passes
    text.step([259, 266], 271)
    assert text.cache.passes == before
    text.draft(3)
    assert text.cache.passes == before + 1 + 3


def test_plain_steps_are_read_in_few_passes(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    before, wanted = text.cache.passes, text.cache.wanted
    for token in LIKELY * 10:
        text.step([], token)
    assert text.cache.passes - before <= 2 * 40 / 16
    # The library computes the logits of all rows of a pass where those of one are wanted.
    assert text.cache.wanted == wanted
    assert len(text.cache.tokens) >= len(text.text) - 2 - MOST_WAITING
    text.draft()
    assert len(text.cache.tokens) == len(text.text) - 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64])
def test_long_prompts_are_read_in_chunks_of_any_size(oracle: Eagle3Oracle, chunk: int) -> None:
    # Some rows wait for the draft.
    prompt = [1, *(int(each) for each in np.random.default_rng(0).integers(3, N_VOCAB, 56))]
    text = Text(oracle, chunk=chunk)
    text.begin(prompt, chunk=7)
    drafted = text.draft()
    assert text.cache.wanted == len(drafted)
    text.step([259], 266)
    text.draft()


def test_a_continued_text_is_not_read_again(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    drafted = text.draft()
    text.step(drafted[:1], 266)
    read = text.evaluated
    text.begin([*text.text, 40, 41, 42])
    # The token that was pending, and the new ones but the last.
    assert text.evaluated == read + 3
    text.draft()


def test_a_prompt_is_answered_again_without_reading_it_again(oracle: Eagle3Oracle) -> None:
    prompt = [1, *(int(each) for each in np.random.default_rng(0).integers(3, N_VOCAB, 40))]
    text = Text(oracle)
    text.begin(prompt)
    for token in LIKELY * 10:
        text.step(text.draft()[:2], token)
    read = text.evaluated
    text.begin(prompt)
    assert text.evaluated == read
    text.draft()
    # An edit in the middle: one token before it is read again, whose state was dropped.
    text.begin([*prompt[:20], 50, *prompt[21:]])
    assert text.evaluated == read + 1 + 20
    text.draft()


def test_another_token_after_a_draft_is_paired_anew(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.draft()
    text.begin([*PROMPT[:-1], 77])
    text.draft()
    text.begin([*PROMPT[:-1], 78, 79])
    text.draft()


def test_rows_that_come_again_change_nothing(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for again in (1, 3, 6):
        text.draft()
        text.text += [259]
        text.drafter.observe(Outcome([259], 0))
        text.evaluate(len(text.text) - 2, text.text[-2:-1], again)
        text.draft()


def test_a_text_that_was_not_read_in_full_is_not_drafted_for(oracle: Eagle3Oracle) -> None:
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


def test_a_token_outside_the_heads_vocabulary_ends_its_drafts(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.cache.n_vocab = 280
    text.begin(PROMPT)
    text.draft()
    text.step([], 281)
    assert not text.proposed()
    text.step([], 259)
    assert not text.proposed()
    text.begin([*PROMPT, 259])
    text.draft()


def test_drafts_end_with_the_context(oracle: Eagle3Oracle) -> None:
    text = Text(oracle, n_ctx=len(PROMPT) + 1)
    text.begin(PROMPT)
    # The first token takes no place, its pair is that of the prompt's last token.
    assert len(text.proposed(10)) == 3


def test_a_restored_cache_is_gone_on_with(oracle: Eagle3Oracle) -> None:
    text, fresh = Text(oracle), Text(oracle)
    text.begin(PROMPT)
    text.step(text.draft()[:2], 266)
    text.draft()
    fresh.cache.tokens = list(text.cache.tokens)
    fresh.cache._states = list(text.cache._states)
    fresh.held = list(text.held)
    fresh.begin([*text.text, 33, 34])
    assert fresh.evaluated == 2
    fresh.draft()


def test_a_draft_that_was_abandoned_leaves_nothing_behind(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for stop in (1, 2, 3):
        passes = text.drafter.passes(Limit(5, GREEDY.prefix(text.text), GREEDY))
        requested = next(passes)
        for _ in range(stop):
            requested = passes.send(text.cache.decode([requested])[0])
        passes.close()
        text.draft()
        text.step([], 259)
        text.draft()


def test_a_cancelled_draft_takes_no_pass(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    before = text.cache.passes
    limit = Limit(6, GREEDY.prefix(PROMPT), GREEDY, cancelled=lambda: True)
    assert not run(text.drafter.passes(limit)).tokens
    assert text.cache.passes == before


def test_a_state_that_is_kept_does_not_keep_those_of_its_pass(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin([*PROMPT, *LIKELY * 10])
    text.draft()
    assert text.drafter._states
    assert all(state.base is None for state in text.drafter._states.values())


def test_go_on_ends_a_draft(oracle: Eagle3Oracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    margins: list[float] = []

    def twice(margin: float) -> bool:
        margins.append(margin)
        return len(margins) < 2

    limit = Limit(6, GREEDY.prefix(PROMPT), GREEDY, go_on=twice)
    assert len(run(text.drafter.passes(limit)).tokens) == 2
    first = np.sort(oracle.draft_logits(PROMPT, [0])[0])
    assert margins[0] == pytest.approx(first[-1] - first[-2], abs=1e-3)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["draft", "plain", "cut", "edit", "go on"]),
        st.integers(0, 40),
        st.sampled_from(LIKELY),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(actions=ACTIONS)
def test_drafts_stay_right_whatever_happens(
    oracle: Eagle3Oracle, actions: list[tuple[str, int, int]]
) -> None:
    text = Text(oracle, chunk=5)
    text.begin(PROMPT, chunk=4)
    for action, number, token in actions:
        if action == "draft":
            drafted = text.draft(1 + number % 4)
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
        "a pair with its own token",
        lambda: Code(
            Edit(
                PairedHead._draw,
                "self._decode(self._text[self._pairs + self.skipped :]",
                "self._decode(self._text[self._pairs : -1]",
            )
        ),
    )
    yield (
        "a pair with the state after it",
        lambda: Code(
            Edit(
                PairedHead._state,
                "self._states[place]",
                "self._states.get(place + 1, self._states[place])",
            )
        ),
    )
    yield (
        "the drafter's state from the row before",
        lambda: Code(
            Edit(PairedHead._draw, "hidden[self._own][-1:]", "hidden[self._own][:1]"),
        ),
    )
    yield (
        "drafted pairs stay",
        lambda: Code(
            Edit(
                PairedHead.passes,
                "        self._cut_pairs(self._pairs)\n        return chain.draft",
                "        self._pairs = len(self._cache.tokens)\n        return chain.draft",
            )
        ),
    )
    yield (
        "layers in another order",
        lambda: Code(
            Edit(
                RowReader.read,
                "for layer in self.traits.reads_hidden",
                "for layer in reversed(self.traits.reads_hidden)",
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
def test_a_planted_mistake_is_found(oracle: Eagle3Oracle, mistake: str) -> None:
    text = Text(oracle, MISTAKES[mistake]().of(Eagle3))
    with pytest.raises((AssertionError, KeyError)):
        text.begin(PROMPT)
        for kept in (0, 1, 2, 0, 3):
            drafted = text.draft()
            text.step(drafted[:kept], 266)
        text.draft()
        text.begin([*text.text[:-1], 40, 41])
        text.draft()
