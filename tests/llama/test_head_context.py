"""Hidden rows and the drafts of an EAGLE-3 head in llama.cpp, against an independent forward."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from fakes.eagle3 import (
    LAYERS,
    LIKELY,
    READS,
    SHAPES,
    WIDTH,
    Eagle3Oracle,
    write_head,
    write_target,
)
from fakes.tiny import N_VOCAB

from localspec.drafters.eagle3 import Eagle3
from localspec.errors import LocalspecError
from localspec.llama.context import Context
from localspec.llama.head_context import HeadContext
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Evaluated, Limit, Outcome
from localspec.speculation.passes import Pass, Passes, Scores, direct, run

GREEDY = Sampler(SamplingParams(temperature=0), Noise(1))
EXACT = {"flash_attention": False, "kv_type": llama_cpp.GGML_TYPE_F32, "threads": 1}
TOLERANCE = 1e-4
TEXTS = 4


class Models:
    """A target and a head of one shape, their oracle, and contexts for several texts."""

    def __init__(self, folder: Path, shape: str, undo: ExitStack) -> None:
        target, head = write_target(folder / "target.gguf"), folder / "head.gguf"
        write_head(head, SHAPES[shape])
        self.oracle = Eagle3Oracle(target, head)
        self.target = undo.enter_context(Model(target, gpu_layers=0))
        self.head = undo.enter_context(Model(head, gpu_layers=0))
        self.shape = SHAPES[shape]
        self._undo = undo

    def contexts(self, texts: int = TEXTS) -> tuple[Context, HeadContext]:
        target = Context(self.target, n_ctx=256, texts=texts, **EXACT)
        self._undo.callback(target.close)
        return target, HeadContext(
            self.head,
            target=target,
            encoder_width=len(READS) * WIDTH,
            n_ctx=256,
            texts=texts,
            **EXACT,
        )


@pytest.fixture(scope="module", params=SHAPES)
def every(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Models]:
    with ExitStack() as undo:
        yield Models(tmp_path_factory.mktemp("heads"), request.param, undo)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    with ExitStack() as undo:
        yield Models(tmp_path_factory.mktemp("heads"), "target's embedding", undo)


class Text:
    """A text of a target with a head, driven as the decoder does; `compute` computes its passes."""

    def __init__(self, models: Models, target: Context, head: HeadContext, text: list[int]) -> None:
        self.text = text
        self.models = models
        self.target: KVSequence = target.new_sequence()
        self.drafter = Eagle3(head.new_sequence(), name="head", n_vocab=N_VOCAB, layers=READS)

    def begin(self, chunk: int = 512) -> Passes[None]:
        prompt = self.text[:-1]
        shared = min(self.target.shared(prompt), self.drafter.held(prompt))
        self.target.truncate(shared)
        for start in range(shared, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            scores = yield Pass(self.target, tokens, hidden=READS)
            yield from self._read(start, tokens, scores)
        self.drafter.begin(self.text)

    def step(self, depth: int, kept: int) -> Passes[list[int]]:
        """Draft, check the draft, and let the target accept `kept` of it; return the draft."""
        text = list(self.text)
        limit = Limit(depth, GREEDY.prefix(text), GREEDY)
        draft = yield from self.drafter.passes(limit)
        assert [*draft.tokens] == self.models.oracle.draft(text, depth)
        drafted = list(draft.tokens)
        scores = yield Pass(
            self.target, [text[-1], *drafted], len(drafted), wanted=depth + 1, hidden=READS
        )
        expected = self.models.oracle.target.logits([*text, *drafted])[-depth - 1 :]
        assert np.abs(scores.logits - expected).max() < TOLERANCE
        own = int(scores.logits[kept].argmax())
        hidden = {layer: rows[: kept + 1].copy() for layer, rows in scores.hidden.items()}
        self.target.commit(range(kept))
        committed = [*drafted[:kept], own]
        self.text += committed
        self.drafter.observe(Outcome(committed, kept))
        yield from self._read(len(text) - 1, [text[-1], *drafted[:kept]], scores, hidden)
        return drafted

    def _read(
        self, start: int, tokens: list[int], scores: Scores, hidden: dict | None = None
    ) -> Passes[None]:
        found = {layer: rows.copy() for layer, rows in (hidden or scores.hidden).items()}
        states = self.models.oracle.target.hidden(self.text[: start + len(tokens)])
        for layer, rows in found.items():
            assert np.abs(rows - states[layer][start:]).max() < TOLERANCE
        yield from self.drafter.read(Evaluated(start, tokens, found))


def prompt(seed: int, length: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return [1, *(int(token) for token in rng.integers(3, N_VOCAB, length - 1))]


def together(flows: list[Passes[object]]) -> int:
    """Run computations side by side, putting passes that fit into one decode; return the decodes.

    Which of them go ahead is drawn at random, so that their steps are not in time.
    """
    rng = np.random.default_rng(5)
    waiting = {i: next(flow) for i, flow in enumerate(flows)}
    decodes = 0
    while waiting:
        chosen: list[int] = []
        for i in rng.permutation(list(waiting)).tolist()[: 1 + int(rng.integers(len(waiting)))]:
            group = [waiting[each] for each in (*chosen, i)]
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


def steps(text: Text, seed: int, count: int = 6) -> Passes[None]:
    rng = np.random.default_rng(seed)
    yield from text.begin(chunk=int(rng.integers(3, 40)))
    for _ in range(count):
        depth = int(rng.integers(1, 6))
        yield from text.step(depth, int(rng.integers(0, depth + 1)))


def test_hidden_rows_and_drafts_alone(every: Models) -> None:
    text = Text(every, *every.contexts(texts=1), prompt(0, 30))
    run(steps(text, 0))


def test_hidden_rows_and_drafts_beside_three_other_texts(every: Models) -> None:
    contexts = every.contexts()
    lengths = (30, 3, 70, 11)
    texts = [Text(every, *contexts, prompt(i, length)) for i, length in enumerate(lengths)]
    alone = 0
    for i, text in enumerate(texts):
        lone = Text(every, *every.contexts(texts=1), prompt(i, lengths[i]))
        counted: list[int] = []
        run(steps(lone, i), lambda one, counted=counted: counted.append(1) or direct(one))
        alone += len(counted)
        text.expected = lone.text  # type: ignore[attr-defined]
    decodes = together([steps(text, i) for i, text in enumerate(texts)])
    assert decodes < alone
    for text in texts:
        assert text.text == text.expected  # type: ignore[attr-defined]


def test_rows_are_those_of_each_text_in_a_decode(models: Models) -> None:
    target, _ = models.contexts()
    sequences = [target.new_sequence() for _ in range(TEXTS)]
    texts = [prompt(i, length) for i, length in enumerate((3, 7, 1, 5))]
    layers = (0, *READS)
    passes = [
        Pass(sequence, text, wanted=min(len(text), 1 + i), hidden=layers[: i + 1])
        for i, (sequence, text) in enumerate(zip(sequences, texts, strict=True))
    ]
    backwards = target.decode(passes[::-1])[::-1]
    for one, scores, text in zip(passes, backwards, texts, strict=True):
        states = models.oracle.target.hidden(text)
        assert scores.hidden.keys() == set(one.hidden)
        for layer, rows in scores.hidden.items():
            assert np.abs(rows - states[layer]).max() < TOLERANCE
        expected = models.oracle.target.logits(text)[len(text) - one.wanted :]
        assert np.abs(scores.logits - expected).max() < TOLERANCE


def test_rows_of_tokens_that_are_evaluated_once_more_come_first(models: Models) -> None:
    target, _ = models.contexts(texts=1)
    sequence, text = target.new_sequence(), prompt(1, 12)
    sequence.extend(text[:10])
    sequence.memory.cut(7)
    (scores,) = target.decode([Pass(sequence, text[10:], hidden=READS)])
    assert scores.again == 3
    states = models.oracle.target.hidden(text)
    for layer in READS:
        assert np.abs(scores.hidden[layer] - states[layer][7:]).max() < TOLERANCE


def test_rows_do_not_include_padding(models: Models) -> None:
    target, _ = models.contexts(texts=1)
    sequence, text = target.new_sequence(), prompt(2, 5)
    sequence.least_rows = 16
    (scores,) = target.decode([Pass(sequence, text, wanted=5, hidden=READS)])
    assert scores.padding == 11
    states = models.oracle.target.hidden(text)
    for layer in READS:
        assert scores.hidden[layer].shape == (5, WIDTH)
        assert np.abs(scores.hidden[layer] - states[layer]).max() < TOLERANCE


def test_a_target_that_makes_room_keeps_its_head(models: Models) -> None:
    target, head = models.contexts(texts=1)
    first = Text(models, target, head, prompt(3, 20))
    run(first.begin())
    run(first.step(4, 2))
    target.resize(3)
    run(first.step(4, 1))
    head.resize(2)
    second = Text(models, target, head, prompt(4, 9))
    together([steps(second, 1), first.step(3, 3)])


def test_a_head_is_closed_with_its_target(models: Models) -> None:
    target, head = models.contexts(texts=1)
    text = Text(models, target, head, prompt(3, 20))
    run(text.begin())
    target.close()
    with pytest.raises(LocalspecError, match="closed"):
        run(text.drafter.passes(Limit(3, GREEDY.prefix(text.text), GREEDY)))


@pytest.mark.parametrize("layer", [-1, LAYERS + 1])
def test_a_layer_that_is_not_there_is_refused(models: Models, layer: int) -> None:
    target, _ = models.contexts(texts=1)
    sequence = target.new_sequence()
    with pytest.raises(LocalspecError, match=f"no layer {layer} .* {LAYERS} layers"):
        target.decode([Pass(sequence, [1, 5], hidden=(layer,))])
    assert not sequence.tokens
    target.decode([Pass(sequence, [1, 5], hidden=(LAYERS - 1,))])


def test_rows_of_another_width_and_mixed_passes_are_refused(models: Models) -> None:
    _, head = models.contexts()
    sequences = [head.new_sequence() for _ in range(2)]
    states, rows = np.zeros((2, models.shape.width), np.float32), np.zeros((2, 96), np.float32)
    decode = Pass(sequences[0], LIKELY[:2], embeddings=states)
    encode = Pass(sequences[1], (), wanted=0, embeddings=rows, encode=True)
    assert not head.fits([decode, encode])
    for wrong, words in (
        ([decode, encode], "cannot share a decode"),
        ([Pass(sequences[0], LIKELY[:2], embeddings=rows)], "rows of 32 numbers, and got 96"),
        ([Pass(sequences[0], LIKELY[:3], embeddings=states)], "3 tokens and 2 states"),
        ([Pass(sequences[0], (), embeddings=states, encode=True)], "96 numbers, and got 32"),
        ([Pass(sequences[0], (), encode=True, embeddings=np.zeros((65, 96), np.float32))], "64"),
    ):
        with pytest.raises(LocalspecError, match=words):
            head.decode(wrong)
    head.decode([decode])
    head.decode([encode])
    assert sequences[0].tokens == [*LIKELY[:2]]
    assert sequences[1].tokens == []
