"""PARD drafts what one forward of the text and its masks gives, after any verdict."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fakes.eagle3 import LIKELY
from fakes.mutants import Code, Edit
from fakes.pard import MASK, NumpyCache, PardOracle, write_pard
from fakes.tiny import N_VOCAB

from localspec.drafters.pard import Pard
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Constraint
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.passes import run

GREEDY = Sampler(SamplingParams(temperature=0), Noise(1))
WARM = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))
PROMPT = [1, 259, 30, 266, 271, 90, 275]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> PardOracle:
    return PardOracle(write_pard(tmp_path_factory.mktemp("pard") / "pard.gguf"))


class Text:
    """A text that PARD drafts for; each draft is compared with the oracle's."""

    def __init__(self, oracle: PardOracle, drafter: type[Pard] = Pard, **cache: int) -> None:
        self.text: list[int] = []
        self.cache = NumpyCache(oracle.llama, **cache)
        self.drafter = drafter(self.cache, name="pard", n_vocab=N_VOCAB, mask=MASK)
        self.oracle = oracle

    def begin(self, text: list[int]) -> None:
        self.text = list(text)
        self.drafter.begin(text)

    def draft(self, depth: int = 4, sampler: Sampler = WARM) -> list[int]:
        limit = Limit(depth, sampler.prefix(self.text), sampler, needs_probs=True)
        draft = run(self.drafter.passes(limit))
        tokens = [int(token) for token in draft.tokens]
        rows = self.oracle.draft_logits(self.text, tokens)
        prefix = sampler.prefix(self.text)
        assert draft.probs is not None and len(draft.probs) == len(tokens)
        for row, probs, token in zip(rows, draft.probs, tokens, strict=True):
            expected = sampler.distribution(row.astype(np.float32), prefix)
            assert np.abs(probs.dense(N_VOCAB) - expected.dense(N_VOCAB)).max() < 1e-4
            assert sampler.sample(expected, prefix) == token
            prefix = prefix.then(token)
        return tokens

    def step(self, accepted: list[int], token: int) -> None:
        self.text += [*accepted, token]
        self.drafter.observe(Outcome([*accepted, token], len(accepted)))


@pytest.mark.parametrize("keeps", [True, False], ids=["attention", "running state"])
@pytest.mark.parametrize("sampler", [GREEDY, WARM], ids=["greedy", "warm"])
def test_drafts_stay_right_after_any_verdict(
    oracle: PardOracle, sampler: Sampler, keeps: bool
) -> None:
    rng = np.random.default_rng(1)
    text = Text(oracle)
    text.cache.keeps = keeps
    text.begin(PROMPT)
    counts = set()
    for _ in range(12):
        drafted = text.draft(int(rng.integers(1, 9)), sampler)
        kept = int(rng.integers(0, len(drafted) + 1))
        counts.add(kept)
        text.step(drafted[:kept], int(rng.choice(LIKELY)))
        fresh = Text(oracle)
        fresh.begin(text.text)
        assert fresh.draft(3, sampler) == text.draft(3, sampler)
    assert {0, 1, 2} <= counts


def test_a_draft_takes_one_pass_whose_masks_are_forgotten(oracle: PardOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for kept, rows in ((0, len(PROMPT) + 5), (3, 1 + 5), (5, 4 + 5), (0, 6 + 5)):
        passes, evaluated = text.cache.passes, text.cache.evaluated
        drafted = text.draft(6)
        assert len(drafted) == 6
        assert text.cache.passes == passes + 1
        # The pending token, those that were accepted, and five masks.
        assert text.cache.evaluated == evaluated + rows
        assert text.cache.tokens == text.text
        text.step(drafted[:kept], 266)
        assert text.drafter.traits.backlog and text.drafter.traits.backlog() == kept + 1
    assert text.drafter.traits.parallel


@pytest.mark.parametrize("chunk", [8, 11, 64])
def test_long_prompts_are_read_in_chunks_of_any_size(oracle: PardOracle, chunk: int) -> None:
    prompt = [1, *(int(each) for each in np.random.default_rng(0).integers(3, N_VOCAB, 59))]
    text = Text(oracle, chunk=chunk)
    text.begin(prompt)
    text.step(text.draft(8)[:2], 266)
    text.draft(1)


def test_edits_and_other_texts(oracle: PardOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    text.step(text.draft(8)[:2], 266)
    for other in ([*PROMPT[:3], 77, *PROMPT[4:]], PROMPT, [*PROMPT, 40, 41], [1, 50]):
        text.begin(other)
        text.draft(8)


def test_drafts_end_with_the_context(oracle: PardOracle) -> None:
    text = Text(oracle, n_ctx=len(PROMPT) + 2)
    text.begin(PROMPT)
    assert len(text.draft(10)) == 3


def test_a_draft_that_was_abandoned_leaves_nothing_behind(oracle: PardOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    for _ in range(3):
        passes = text.drafter.passes(Limit(5, GREEDY.prefix(text.text), GREEDY))
        text.cache.decode([next(passes)])
        passes.close()
        text.draft()
        text.step([], 259)


def test_a_cancelled_draft_is_none(oracle: PardOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    limit = Limit(5, GREEDY.prefix(PROMPT), GREEDY, cancelled=lambda: True)
    assert len(run(text.drafter.passes(limit))) == 0
    assert text.cache.passes == 0


def test_go_on_ends_a_draft_but_not_its_pass(oracle: PardOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    answers = iter([True, False])
    limit = Limit(6, GREEDY.prefix(PROMPT), GREEDY, go_on=lambda _margin: next(answers))
    assert len(run(text.drafter.passes(limit))) == 2
    assert text.cache.evaluated == len(PROMPT) + 5


class Nothing(Constraint):
    """A grammar that forbids every token."""

    def allowed(self) -> np.ndarray:
        return np.zeros(N_VOCAB, bool)

    def then(self, token: int) -> "Nothing":
        return self


def test_a_draft_without_a_token_does_not_end_those_after_it(oracle: PardOracle) -> None:
    text = Text(oracle)
    text.begin(PROMPT)
    forbidden = Sampler(WARM.params, Noise(1), constraint=Nothing())
    drafts = [
        run(text.drafter.passes(Limit(8, sampler.prefix(text.text), sampler)))
        for sampler in (forbidden, WARM, WARM)
    ]
    assert [len(draft) for draft in drafts] == [0, 8, 8]


def planted() -> Iterator[tuple[str, Callable[[], Code]]]:
    masks = "[self._mask] * (rows - 1)"
    yield "a mask too many", lambda: Code(Edit(Pard.passes, masks, "[self._mask] * rows"))
    yield (
        "masks stay in the cache",
        lambda: Code(
            Edit(Pard.passes, "self._cache.commit([])", "self._cache.commit(range(len(masks)))")
        ),
    )
    yield (
        "rows in the wrong order",
        lambda: Code(Edit(Pard.passes, "in scores.logits:", "in scores.logits[::-1]:")),
    )
    yield "a mask too few", lambda: Code(Edit(Pard.passes, masks, "[self._mask] * (rows - 2)"))
    yield (
        "the pending token as a mask",
        lambda: Code(
            Edit(Pard.passes, "[*lacking, *masks]", "[*lacking[:-1], self._mask, *masks]")
        ),
    )


MISTAKES = dict(planted())


def go_through(text: Text) -> None:
    """What a text goes through in which mistakes show."""
    text.begin(PROMPT)
    for kept in (0, 1, 2, 4, 3):
        text.step(text.draft()[:kept], 266)
        assert text.cache.tokens == text.text[: len(text.cache.tokens)]


def test_the_text_without_a_mistake(oracle: PardOracle) -> None:
    go_through(Text(oracle))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(oracle: PardOracle, mistake: str) -> None:
    text = Text(oracle, MISTAKES[mistake]().of(Pard))
    with pytest.raises(AssertionError):
        go_through(text)
