"""Hidden rows and the drafts of an EAGLE-3 head in llama.cpp, against an independent forward."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

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
from fakes.head_texts import GREEDY, TOLERANCE, HeadText, prompt, side_by_side, steps, together
from fakes.tiny import N_VOCAB

from localspec.drafters.eagle3 import Eagle3
from localspec.errors import DeviceError, LocalspecError, ModelLoadError
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.head_context import HeadContext
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, run

EXACT = {"flash_attention": False, "kv_type": "f32", "threads": 1}
TEXTS = 4


class Models:
    """A target and a head of one shape, their oracle, and contexts for several texts."""

    def __init__(self, folder: Path, shape: str, undo: ExitStack) -> None:
        target, head = write_target(folder / "target.gguf"), folder / "head.gguf"
        write_head(head, SHAPES[shape])
        self.oracle = Eagle3Oracle(target, head)
        self.target = undo.enter_context(Model(target, ON_PROCESSOR))
        self.head = undo.enter_context(Model(head, ON_PROCESSOR))
        self.shape = SHAPES[shape]
        self._undo = undo

    def contexts(self, texts: int = TEXTS) -> tuple[Context, HeadContext]:
        params = ContextParams(256, texts=texts, **EXACT)
        target = Context(self.target, params)
        self._undo.callback(target.close)
        return target, HeadContext(
            self.head,
            params,
            target=target,
            encoder_width=len(READS) * WIDTH,
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


class Text(HeadText):
    """A text of a target with an EAGLE-3 head."""

    def __init__(self, models: Models, target: Context, head: HeadContext, text: list[int]) -> None:
        drafter = Eagle3(head.new_sequence(), name="head", n_vocab=N_VOCAB, layers=READS)
        super().__init__(models.oracle, target.new_sequence(), drafter, text)


def test_hidden_rows_and_drafts_alone(every: Models) -> None:
    text = Text(every, *every.contexts(texts=1), prompt(0, 30))
    run(steps(text, 0))


def test_hidden_rows_and_drafts_beside_three_other_texts(every: Models) -> None:
    contexts, prompts = every.contexts(), [prompt(i, n) for i, n in enumerate((30, 3, 70, 11))]
    texts = [Text(every, *contexts, list(each)) for each in prompts]
    side_by_side(texts, [Text(every, *every.contexts(texts=1), each) for each in prompts])


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


@pytest.mark.parametrize("of_head", [True, False])
def test_passes_behind_places_that_were_lost_are_refused_until_the_head_looks(
    models: Models, of_head: bool
) -> None:
    """They may wait while another text's pass finds that the device has failed."""
    target, head = models.contexts()
    sequence = head.new_sequence()
    states = np.zeros((2, models.shape.width), np.float32)
    waiting = Pass(sequence, [*LIKELY[:2]], embeddings=states)
    head.decode([waiting])
    if of_head:
        head.has_failed = True
    else:
        target.renew()
    for _ in range(2):
        with pytest.raises(DeviceError, match="has lost this text"):
            head.decode([waiting])
    assert sequence.truncate(2) == 0
    head.decode([waiting])
    assert (sequence.tokens, sequence.memory.length) == ([*LIKELY[:2]], 2)
    assert target.renewals == (not of_head)
    # Where it has failed in the meantime, it looks at a cache that was made anew.
    head.has_failed = True
    assert sequence.truncate(2) == 0


def test_a_lost_context_is_made_anew_with_its_next_use_and_stays_closed_if_it_was_closed(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, head = models.contexts()
    first, second = target.new_sequence(), target.new_sequence()
    first.extend(prompt(1, 12))
    of_head = head.new_sequence()
    with monkeypatch.context() as patch:
        patch.setattr(target, "new_handle", Mock(side_effect=ModelLoadError("no memory")))
        for use in (target.renew, first.roll_back, lambda: target.resize(TEXTS + 1)):
            with pytest.raises(DeviceError, match="no memory"):
                use()
        with pytest.raises(DeviceError, match="no memory"):
            of_head.truncate(0)
        second.close()
    assert first.truncate(12) == 0
    assert (target.has_failed, head.has_failed) == (False, False)
    first.extend(prompt(1, 12))
    target.has_failed = True
    target.close()
    with pytest.raises(LocalspecError, match="closed"):
        first.extend([5])


def test_a_head_is_closed_with_its_target(models: Models) -> None:
    target, head = models.contexts(texts=1)
    text = Text(models, target, head, prompt(3, 20))
    run(text.begin())
    target.close()
    with pytest.raises(LocalspecError, match="closed"):
        run(text.drafter.passes(Limit(3, GREEDY.prefix(text.text), GREEDY)))


@pytest.mark.parametrize("layer", [-2, LAYERS + 1])
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
