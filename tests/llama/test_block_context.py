"""The blocks of a head in llama.cpp, against an independent forward."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from fakes.dflash import (
    KINDS,
    SHAPES,
    BlockOracle,
    BlockShape,
    block_drafter,
    block_of,
    write_block_head,
)
from fakes.eagle3 import LIKELY, READS, WIDTH, write_target
from fakes.head_texts import GREEDY, TOLERANCE, HeadText, prompt, steps, together
from fakes.tiny import N_VOCAB

from localspec.drafters.dflash import Dflash
from localspec.errors import LocalspecError
from localspec.llama.block_context import BlockContext
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, Passes, direct, run

EXACT = {"flash_attention": False, "kv_type": "f32", "threads": 1}
TEXTS = 4
WARM = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))


class Models:
    """A target and a head, their oracle, and contexts for several texts."""

    def __init__(
        self, folder: Path, shape: BlockShape, drafter: type[Dflash], undo: ExitStack
    ) -> None:
        target, head = write_target(folder / "target.gguf"), folder / "head.gguf"
        write_block_head(head, shape)
        self.oracle = BlockOracle(target, head)
        self.target = undo.enter_context(Model(target, ON_PROCESSOR))
        self.head = undo.enter_context(Model(head, ON_PROCESSOR))
        self.drafter = drafter
        self._undo = undo

    def contexts(self, texts: int = TEXTS) -> tuple[Context, BlockContext]:
        params = ContextParams(256, texts=texts, **EXACT)
        target = Context(self.target, params)
        self._undo.callback(target.close)
        return target, BlockContext(
            self.head,
            params,
            target=target,
            block=block_of(self.oracle.head),
            encoder_width=len(READS) * WIDTH,
        )

    def text(self, target: Context, head: BlockContext, text: list[int]) -> HeadText:
        drafter = block_drafter(head.new_sequence(), self.oracle.head, self.drafter)
        return HeadText(self.oracle, target.new_sequence(), drafter, text)


CASES = {**{f"dflash, {name}": (shape, Dflash) for name, shape in SHAPES.items()}, **KINDS}


@pytest.fixture(scope="module", params=CASES)
def every(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Models]:
    with ExitStack() as undo:
        yield Models(tmp_path_factory.mktemp("blocks"), *CASES[request.param], undo)


@pytest.fixture(scope="module", params=KINDS)
def models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Models]:
    with ExitStack() as undo:
        yield Models(tmp_path_factory.mktemp("blocks"), *KINDS[request.param], undo)


def test_drafts_alone(every: Models) -> None:
    text = every.text(*every.contexts(texts=1), prompt(0, 30))
    run(steps(text, 0, count=8, deepest=8))


def test_drafts_beside_three_other_texts(every: Models) -> None:
    contexts, lengths = every.contexts(), (30, 3, 70, 11)
    texts = [every.text(*contexts, prompt(i, length)) for i, length in enumerate(lengths)]
    alone, expected = 0, list[list[int]]()
    for i, length in enumerate(lengths):
        lone, counted = every.text(*every.contexts(texts=1), prompt(i, length)), list[int]()
        run(steps(lone, i), lambda one, counted=counted: counted.append(1) or direct(one))
        alone += len(counted)
        expected.append(lone.text)
    decodes = together([steps(text, i) for i, text in enumerate(texts)])
    assert decodes < alone
    assert [text.text for text in texts] == expected


def test_confidence_and_candidates_of_every_text(models: Models) -> None:
    contexts, block = models.contexts(texts=3), models.oracle.block
    texts = [models.text(*contexts, prompt(i, 10 + 5 * i)) for i in range(3)]
    seen: list[list[float]] = [[] for _ in texts]

    def draft(number: int) -> Passes[None]:
        text, own = texts[number], seen[number]
        yield from text.begin()
        limit = Limit(
            8, WARM.prefix(text.text), WARM, True, go_on=lambda each: not own.append(each)
        )
        drafted = yield from text.drafter.passes(limit)
        rows = models.oracle.draft_logits(text.text, drafted.tokens)
        prefix = WARM.prefix(text.text)
        for row, law, token in zip(rows, drafted.probs or (), drafted.tokens, strict=True):
            expected = WARM.distribution(row.astype(np.float32), prefix)
            assert np.abs(law.dense(N_VOCAB) - expected.dense(N_VOCAB)).max() < TOLERANCE
            assert WARM.sample(expected, prefix) == token
            prefix = prefix.then(token)

    together([draft(number) for number in range(len(texts))])
    assert all(len(own) == min(8, block.drafted) for own in seen)
    if block.has_confidence:
        for text, own in zip(texts, seen, strict=True):
            chances = models.oracle.confidence(text.text)[: len(own)]
            assert np.abs(np.array(own) - np.log(chances / (1 - chances))).max() < 1e-3


def test_a_text_that_is_cut_and_edited(models: Models) -> None:
    text = models.text(*models.contexts(texts=1), prompt(3, 40))
    run(steps(text, 2))
    for kept, more in ((45, [40, 41]), (20, [50, 51, 52]), (3, [60])):
        text.text = [*text.text[:kept], *more]
        run(text.begin(chunk=7))
        run(text.step(6, 3))


def test_a_head_with_a_sliding_window(tmp_path: Path) -> None:
    """Cut deeper than its window reaches, the head reads the text again."""
    with ExitStack() as undo:
        models = Models(tmp_path, SHAPES["window"], Dflash, undo)
        contexts = models.contexts(texts=3)
        texts = [models.text(*contexts, prompt(i, 30 + 40 * i)) for i in range(3)]
        together([steps(text, i, count=8, deepest=8) for i, text in enumerate(texts)])
        for kept, more in ((100, [40, 41]), (95, [50, 51, 52]), (30, [60]), (28, [61, 62])):
            text = texts[2]
            text.text = [*text.text[:kept], *more]
            run(text.begin(chunk=7))
            run(text.step(6, 3))
        contexts[0].resize(4)
        run(texts[2].step(8, 5))


def test_a_target_that_makes_room_keeps_its_head(models: Models) -> None:
    target, head = models.contexts(texts=1)
    first = models.text(target, head, prompt(3, 20))
    run(first.begin())
    run(first.step(4, 2))
    target.resize(3)
    run(first.step(4, 1))
    head.resize(2)
    second = models.text(target, head, prompt(4, 9))
    together([steps(second, 1), first.step(3, 3)])


def test_a_saved_state_is_gone_on_with(models: Models) -> None:
    contexts = models.contexts(texts=2)
    first, second = (models.text(*contexts, prompt(5, 20)) for _ in range(2))
    run(steps(first, 3))
    own, other = (text.drafter._cache for text in (first, second))  # type: ignore[attr-defined]
    assert other.restore(own.state()) and second.target.restore(first.target.state())
    second.text = list(first.text)
    evaluated = second.target.evaluated
    run(second.begin())
    # The hidden rows of the last step were not in the head's cache yet.
    assert second.target.evaluated - evaluated <= len(first.text) - len(own.tokens)
    run(second.step(8, 4))


def test_a_head_is_closed_with_its_target(models: Models) -> None:
    target, head = models.contexts(texts=1)
    text = models.text(target, head, prompt(3, 20))
    run(text.begin())
    target.close()
    with pytest.raises(LocalspecError, match="closed"):
        run(text.drafter.passes(Limit(3, GREEDY.prefix(text.text), GREEDY)))


def test_blocks_share_a_decode_only_with_blocks(models: Models) -> None:
    _, head = models.contexts()
    sequences = [head.new_sequence() for _ in range(3)]
    size, row = models.oracle.block.size, np.zeros((2, len(READS) * WIDTH), np.float32)
    block = Pass(sequences[0], LIKELY[:1] * size, size, wanted=size)
    same = Pass(sequences[1], LIKELY[:1] * size, size, wanted=size)
    smaller = Pass(sequences[1], LIKELY[:1] * 2, 2, wanted=2)
    text = Pass(sequences[2], LIKELY[:2], wanted=0, embeddings=row)
    assert head.fits([block, same])
    for other in (smaller, text):
        assert not head.fits([block, other])
        with pytest.raises(LocalspecError, match="blocks"):
            head.decode([block, other])
    head.decode([block, same])
    assert not any(sequence.tokens for sequence in sequences)
    head.decode([text])
    assert sequences[2].tokens == [*LIKELY[:2]]


@pytest.mark.parametrize("shape", [(2, 8), (3, 96), (1, 96)])
def test_rows_of_another_size_are_refused(models: Models, shape: tuple[int, int]) -> None:
    _, head = models.contexts(texts=1)
    sequence = head.new_sequence()
    rows = np.zeros(shape, np.float32)
    with pytest.raises(LocalspecError, match=f"96 numbers .* got {shape[0]} of {shape[1]} for 2"):
        head.decode([Pass(sequence, LIKELY[:2], wanted=0, embeddings=rows)])
    assert not sequence.tokens
