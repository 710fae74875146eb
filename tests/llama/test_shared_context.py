"""The drafts of an assistant in llama.cpp, which reads its target's cache, against an independent
forward."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fakes.assistant import LAYERS, write_assistant, write_target
from fakes.eagle3 import WIDTH
from fakes.failing_device import device_fails
from fakes.head_texts import GREEDY, HeadText, prompt, side_by_side, steps, together
from fakes.mutants import Code, Edit
from fakes.numpy_gemma4 import AssistantOracle
from fakes.tiny import N_VOCAB

from localspec.drafters.assistant import Assistant
from localspec.errors import DeviceError, LocalspecError, ModelLoadError
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.shared_context import SharedContext, SharedSequence
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, direct, run

EXACT = {"flash_attention": False, "kv_type": "f32", "threads": 1}
TEXTS = 4
LAST = len(LAYERS)
# ggml's table of GELU has 16-bit floats. Rows and logits of a wrong state differ by 1 and more.
TOLERANCE = 1e-3


class Models:
    """A target and its assistant, their oracle, and contexts for several texts."""

    def __init__(self, folder: Path, shared_layers: int, undo: ExitStack) -> None:
        target = write_target(folder / "target.gguf", shared_layers=shared_layers)
        path = write_assistant(folder / "assistant.gguf")
        self.oracle = AssistantOracle(target, path)
        self.target = undo.enter_context(Model(target, ON_PROCESSOR))
        self.assistant = undo.enter_context(Model(path, ON_PROCESSOR, mtp=True))
        self._undo = undo

    def target_context(self, texts: int = TEXTS, **options: Any) -> Context:
        target = Context(self.target, ContextParams(256, texts=texts, **{**EXACT, **options}))
        self._undo.callback(target.close)
        return target

    def contexts(self, texts: int = TEXTS, **options: Any) -> tuple[Context, SharedContext]:
        target = self.target_context(texts, **options)
        return target, self.beside(target)

    def beside(self, target: Context, made: Any = SharedContext) -> SharedContext:
        found: SharedContext = made(self.assistant, target=target, threads=1)
        return found


@pytest.fixture(scope="module", params=[0, 2], ids=["own keys", "shared keys"])
def every(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Models]:
    with ExitStack() as undo:
        yield Models(tmp_path_factory.mktemp("assistants"), request.param, undo)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    with ExitStack() as undo:
        yield Models(tmp_path_factory.mktemp("assistants"), 0, undo)


class Text(HeadText):
    """A text of a target with an assistant."""

    tolerance = TOLERANCE

    def __init__(
        self,
        models: Models,
        target: Context,
        shared: SharedContext,
        text: list[int],
        drafter: type[Assistant] = Assistant,
    ) -> None:
        place = target.new_sequence()
        beside = shared.sequence_beside(place)
        made = drafter(beside, name="assistant", n_vocab=N_VOCAB, layers=(LAST,))
        super().__init__(models.oracle, place, made, text)


def test_hidden_rows_and_drafts_alone(every: Models) -> None:
    run(steps(Text(every, *every.contexts(texts=1), prompt(0, 60)), 0, deepest=8))


@pytest.mark.parametrize("flash_attention", [True, None], ids=["flash", "library decides"])
def test_with_flash_attention(models: Models, flash_attention: bool | None) -> None:
    contexts = models.contexts(texts=1, flash_attention=flash_attention)
    text = Text(models, *contexts, prompt(3, 40))
    text.tolerance = 0.1  # it computes with 16-bit floats here and there
    run(steps(text, 1))


def test_hidden_rows_and_drafts_beside_three_other_texts(every: Models) -> None:
    contexts, prompts = every.contexts(), [prompt(i, n) for i, n in enumerate((30, 3, 70, 11))]
    texts = [Text(every, *contexts, list(each)) for each in prompts]
    side_by_side(texts, [Text(every, *every.contexts(texts=1), each) for each in prompts])


def test_a_pass_leaves_the_targets_cache_as_it_is(models: Models) -> None:
    target, shared = models.contexts(texts=1)
    sequence, text = target.new_sequence(), prompt(1, 40)
    sequence.extend(text)
    place = shared.sequence_beside(sequence)
    before = sequence.state().data
    rows = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    for token in (5, 9, 200):
        shared.decode([Pass(place, [token], hidden=(0,), embeddings=rows)])
        place.truncate(0)
    assert (place.tokens, place.memory.length, place.cells) == ([], 0, 40)
    assert np.array_equal(sequence.state().data, before)
    logits = sequence.extend([7])
    assert np.abs(logits - models.oracle.target.logits([*text, 7])[-1]).max() < TOLERANCE


def logits_after(text: list[int], models: Models, sequence: Any) -> float:
    """How far the target's logits after one more token are from those of the text."""
    expected = models.oracle.target.logits([*text, 7])[-1]
    return float(np.abs(sequence.extend([7]) - expected).max())


def test_texts_survive_that_a_head_is_made(models: Models) -> None:
    target, texts = models.target_context(texts=3), [prompt(i, 20 + 30 * i) for i in range(2)]
    sequences = [target.new_sequence() for _ in texts]
    for sequence, text in zip(sequences, texts, strict=True):
        sequence.extend(text)
    # One has a draft without a verdict, which is forgotten.
    sequences[1].score(5, Draft([9, 8]))
    before = [sequence.evaluated for sequence in sequences]
    models.beside(target)
    assert [sequence.memory.length for sequence in sequences] == [20, 50]
    for sequence, text, evaluated in zip(sequences, texts, before, strict=True):
        assert logits_after(text, models, sequence) < TOLERANCE
        assert sequence.evaluated == evaluated + 1


def test_a_text_that_cannot_be_copied_is_evaluated_again(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, text = models.target_context(texts=1), prompt(2, 20)
    sequence = target.new_sequence()
    sequence.extend(text)
    monkeypatch.setattr("localspec.llama.rollback.Memory.copy", lambda self: None)
    models.beside(target)
    assert (sequence.memory.length, sequence.tokens) == (0, text)
    assert logits_after(text, models, sequence) < TOLERANCE


def test_an_assistant_whose_device_has_failed_waits_until_its_target_has_read_the_text_again(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, shared = models.contexts(texts=1)
    sequence, text = target.new_sequence(), prompt(1, 40)
    sequence.extend(text)
    place, rows = shared.sequence_beside(sequence), np.zeros((1, WIDTH), np.float32)
    waiting = Pass(place, [5], hidden=(0,), embeddings=rows)
    with device_fails(1, later=True), pytest.raises(DeviceError, match="command buffer"):
        shared.decode([waiting])
    with pytest.raises(DeviceError, match="waits for its target"):
        shared.decode([waiting])
    target.renew()
    with pytest.raises(DeviceError, match="must be read again"):
        shared.decode([waiting])
    assert logits_after(text, models, sequence) < TOLERANCE
    shared.decode([waiting])
    assert (shared.failures, target.failures, target.renewals) == (1, 0, 1)
    # With too little memory for it, the target goes on alone; later it is made beside the target.
    with monkeypatch.context() as patch:
        patch.setattr(shared, "new_handle", Mock(side_effect=ModelLoadError("no memory")))
        target.renew()
        assert logits_after([*text, 7], models, sequence) < TOLERANCE
        with pytest.raises(DeviceError, match="no memory"):
            shared.decode([waiting])
    evaluated = sequence.evaluated
    shared.decode([waiting])
    target.resize(2)
    shared.decode([waiting])
    assert sequence.evaluated == evaluated
    assert logits_after([*text, 7, 7], models, sequence) < TOLERANCE


def test_a_target_that_makes_room_keeps_its_assistant(models: Models) -> None:
    target, shared = models.contexts(texts=1)
    first = Text(models, target, shared, prompt(3, 20))
    run(first.begin())
    run(first.step(4, 2))
    target.resize(3)
    assert shared.params.texts == 3
    run(first.step(4, 1))
    second = Text(models, target, shared, prompt(4, 9))
    together([steps(second, 1), first.step(3, 3)])


def test_a_cell_that_a_text_lacks_ends_drafting_until_it_is_there(models: Models) -> None:
    target, shared = models.contexts(texts=1)
    text = Text(models, target, shared, prompt(5, 30))
    run(text.begin())
    limit = Limit(3, GREEDY.prefix(text.text), GREEDY)
    text.target.memory.cut(12)
    assert not run(text.drafter.passes(limit))
    for missing in text.target.catch_up():
        direct(missing)
    assert run(text.drafter.passes(limit))


def test_an_assistant_is_closed_with_its_target(models: Models) -> None:
    target, shared = models.contexts(texts=1)
    text = Text(models, target, shared, prompt(3, 20))
    run(text.begin())
    target.close()
    with pytest.raises(LocalspecError, match="closed"):
        run(text.drafter.passes(Limit(3, GREEDY.prefix(text.text), GREEDY)))


def test_the_target_outlives_its_assistant(models: Models) -> None:
    target, shared = models.contexts(texts=1)
    sequence, text = target.new_sequence(), prompt(6, 20)
    place = shared.sequence_beside(sequence)
    sequence.extend(text)
    place.close()
    assert not target.head_contexts
    assert logits_after(text, models, sequence) < TOLERANCE


def test_several_rows_and_rows_of_another_width_are_refused(models: Models) -> None:
    target, shared = models.contexts(texts=2)
    sequence = target.new_sequence()
    place = shared.sequence_beside(sequence)
    sequence.extend(prompt(1, 5))
    rows = np.zeros((2, WIDTH), np.float32)
    for wrong, words in (
        (Pass(place, [5, 6], embeddings=rows), "one row of a text in a pass, not 2"),
        (Pass(place, [5], embeddings=rows), "1 tokens and 2 states"),
        (Pass(place, [5], embeddings=rows[:1, :9]), f"rows of {WIDTH} numbers, and got 9"),
    ):
        with pytest.raises(LocalspecError, match=words):
            shared.decode([wrong])
    shared.decode([Pass(place, [5], embeddings=rows[:1])])


MISTAKES = {
    "a position too far": Edit(
        SharedSequence.add_rows, "start=self.cells,", "start=self.cells + 1,"
    ),
    "a position too near": Edit(
        SharedSequence.add_rows, "start=self.cells,", "start=self.cells - 1,"
    ),
    "another text's cells": Edit(SharedSequence.add_rows, "seq_id=self.seq_id,", "seq_id=0,"),
    "a context too small": Edit(
        SharedContext.places_beside, "return texts", "return max(1, texts - 1)"
    ),
    "texts that are lost": Edit(SharedContext.__init__, "with target.emptied():", "if True:"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(models: Models, mistake: str) -> None:
    with pytest.raises((AssertionError, LocalspecError)):
        two_texts(models, Code(MISTAKES[mistake]).of(SharedContext))


def test_code_without_a_mistake_passes_what_finds_them(models: Models) -> None:
    two_texts(models, Code().of(SharedContext))


def two_texts(models: Models, made: Any) -> None:
    """Two texts with drafts: one that was there before its assistant, and one that takes room."""
    target, prompts = models.target_context(texts=1), [prompt(7, 20), prompt(8, 35)]
    early = target.new_sequence()
    early.extend(prompts[0])
    shared = models.beside(target, made)
    assert logits_after(prompts[0], models, early) < TOLERANCE
    target.resize(2)
    texts = [Text(models, target, shared, each) for each in prompts[1:]]
    together([steps(text, 1) for text in texts])
