"""Drafting on every kind of memory: after each step the logits are those of the text alone."""

import llama_cpp
import numpy as np
import pytest
from fakes.checked import KINDS, STATES, Checked, Make
from fakes.tiny import N_VOCAB
from fakes.toy import proposed

from localspec.drafters.draft_model import DraftModel
from localspec.llama import kv_cache as kv_cache_module
from localspec.llama import sequence as sequence_module
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.rollback import SNAPSHOTS, Memory, Rollback
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.passes import draft_pass


def test_what_each_family_can_forget(make: Make, kind: str) -> None:
    context, (_, snapshots, rollback) = make(kind), KINDS[kind]
    assert context.rollback is rollback
    assert context.takes_back == (None if rollback is Rollback.PARTIAL else snapshots)


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_cannot_be_copied_is_read_again(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_state_seq_get_data_ext", lambda *_: 0)
        checked = Checked(make(kind), make(kind))
    assert checked.context.rollback is Rollback.NOTHING
    checked.read(9)
    checked.context.mark()
    checked.step(0, 0)
    assert checked.truncate(9) == 0
    checked.step(0, 0)


def test_attention_makes_no_snapshots(models: dict[str, Model]) -> None:
    """It needs none, and pays nothing if they are asked for."""
    for family in ("llama", "gemma3", "mamba"):
        with single_sequence(
            models[family], ContextParams(n_ctx=256, threads=1, snapshots=SNAPSHOTS)
        ) as context:
            assert llama_cpp.llama_n_rs_seq(context.context.handle) == 0


@pytest.mark.parametrize("seed", range(3))
def test_random_drafts_and_paths(make: Make, kind: str, seed: int) -> None:
    checked = Checked(make(kind), make(kind), seed)
    rng = np.random.default_rng(seed)
    checked.read(12)
    for _ in range(24):
        depth = int(rng.choice([0, 1, 1, 2, 3, 5, SNAPSHOTS, SNAPSHOTS + 1, 12]))
        checked.step(depth, int(rng.integers(0, depth + 1)))
        if rng.random() < 0.1:
            checked.read(int(rng.integers(1, 5)))


def test_from_an_empty_cache(checked: Checked) -> None:
    checked.step(3, 0)
    checked.step(3, 1)
    checked.step(0, 0)


def test_an_interrupted_pass_is_rolled_back(checked: Checked) -> None:
    """Between score and commit anything may happen, an interrupt above all."""
    checked.read(10)
    for depth in (0, 1, 4, SNAPSHOTS + 1):
        checked.score(depth)
        checked.step(2, 1)
        checked.score(depth)
        checked.read(2)
        checked.score(depth)
        checked.truncate(len(checked.text))
        checked.read(2)


def test_a_pass_interrupted_within_the_library(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked.read(10)
    for depth in (0, 1, 4):
        checked.step(4, 2)
        checked.interrupted(depth, monkeypatch)
        checked.step(2, 1)


def test_cut_to_every_length(checked: Checked) -> None:
    for length in range(14, -1, -1):
        checked.truncate(0)
        checked.read(8)
        checked.step(4, 2)
        checked.step(3, 1)
        checked.truncate(length)
        checked.step(2, 1)


@pytest.mark.parametrize("kind", ["qwen35", "qwen35 with two"])
def test_what_snapshots_take_back_is_not_read_again(make: Make, kind: str) -> None:
    context = make(kind)
    context.extend([5, 6, 7])
    context.score(5, Draft([6] * (context.takes_back or 0)))
    context.commit([])
    assert context.memory.length == len(context.tokens) == 4


@pytest.mark.parametrize("kind", ["qwen35", "qwen35 with two"])
def test_a_restored_checkpoint_has_no_snapshots(checked: Checked) -> None:
    """Those of the pass before would still be accepted, and be of other tokens."""
    checked.read(10)
    checked.step(SNAPSHOTS + 1, 1)
    assert checked.truncate(9) == 0
    checked.read(1)
    checked.step(2, 1)


@pytest.mark.parametrize("kind", ["qwen35", "qwen35 with two"])
@pytest.mark.parametrize("drafted", [SNAPSHOTS, SNAPSHOTS + 1])
def test_a_text_that_was_moved_has_no_snapshots_or_checkpoint(
    checked: Checked, drafted: int
) -> None:
    """They are left in the cache before; a cut reads the text again instead."""
    checked.read(10)
    checked.step(drafted, drafted)
    checked.context.context.resize(4)
    assert checked.truncate(len(checked.text) - 1) == 0
    checked.read(11)
    checked.step(2, 1)


def test_a_prompt_that_shares_its_beginning(checked: Checked) -> None:
    """As a generation does it: cut to what is shared, evaluate the rest."""
    for shared in (20, 5, 9, 0):
        prompt = [*checked.text[:shared], *checked.some(6)]
        checked.truncate(checked.context.shared(prompt))
        rest = prompt[len(checked.text) :]
        checked.text += rest
        checked.compare(checked.context.extend(rest), checked.text)
        for accepted in (0, 3, 1):
            checked.step(3, accepted)


def test_a_checkpoint_is_somewhere_to_come_back_to(checked: Checked) -> None:
    """What a drafter does: one token after the other, then back."""
    checked.read(9)
    for drafted, kept in ((1, 0), (3, 0), (4, 2), (3, 3)):
        checked.context.checkpoint()
        here = len(checked.text)
        for _ in range(drafted):
            checked.read(1)
        checked.truncate(here + kept)
        assert len(checked.text) >= here
        checked.read(2)


@pytest.mark.parametrize("kind", STATES)
def test_a_checkpoint_is_copied_once(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a drafter and a long draft both ask for one."""
    copied, copies = llama_cpp.llama_state_seq_get_data_ext, list[int]()

    def counted(*arguments: object) -> int:
        copies.append(len(checked.text))
        return int(copied(*arguments))

    monkeypatch.setattr(llama_cpp, "llama_state_seq_get_data_ext", counted)
    for length in (5, 9):
        checked.read(length - len(checked.text))
        checked.context.checkpoint()
        checked.context.checkpoint()
    checked.step(SNAPSHOTS + 1, 1)
    assert copies == [5, 9]


@pytest.mark.parametrize("kind", STATES)
def test_a_checkpoint_that_is_interrupted_is_none(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the place of the one before."""
    copied = llama_cpp.llama_state_seq_get_data_ext

    def interrupted(*arguments: object) -> None:
        copied(*arguments)
        raise KeyboardInterrupt

    checked.read(9)
    checked.context.checkpoint()
    checked.read(1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(llama_cpp, "llama_state_seq_get_data_ext", interrupted)
        checked.context.checkpoint()
    assert checked.truncate(9) == 0
    checked.step(2, 1)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every pass from here on."""
    decode, rows = llama_cpp.llama_decode, list[int]()

    def counted(handle: object, batch: llama_cpp.llama_batch) -> int:
        rows.append(batch.n_tokens)
        return int(decode(handle, batch))

    monkeypatch.setattr(llama_cpp, "llama_decode", counted)
    return rows


def test_nothing_is_replayed_at_once(make: Make, passes: list[int]) -> None:
    """What a rollback took is evaluated with the next pass."""
    context = make("mamba")
    context.extend(list(range(10, 20)))
    passes.clear()
    for accepted, again in ((1, 0), (0, 2), (3, 3), (2, 0)):
        assert context.rows_of(draft_pass(context, 5, Draft([6, 7, 8]))) == 4 + again
        scores = context.score(5, Draft([6, 7, 8]))
        assert scores.again == again and scores.width == 4 == len(scores.logits)
        context.commit(range(accepted))
    assert passes == [4, 6, 7, 4]
    assert context.score(5, NOTHING).again == 3


@pytest.mark.parametrize("kind", ["llama"])
def test_what_is_missing_goes_with_a_pass_or_before_it(checked: Checked, passes: list[int]) -> None:
    """However much of it there is; no decode has more rows than a chunk."""
    text, chunk = checked.context, 16
    text.chunk, draft = chunk, Draft([8, 9, 10])
    checked.read(24)
    for missing in range(24):
        text.memory.cut(24 - missing)
        passes.clear()
        text.evaluated = 0
        rows = text.context.decode([draft_pass(text, 7, draft)])[0].logits.copy()
        assert max(passes) <= chunk and sum(passes) == missing + 4 == text.evaluated
        for length, row in enumerate(rows):
            checked.compare(row, [*checked.text, 7, *draft.tokens[:length]])
        text.roll_back()


def test_what_is_evaluated_again_is_bounded(checked: Checked, passes: list[int]) -> None:
    """Drafts that are always rejected do not make passes wider and wider."""
    checked.read(4)
    again: list[int] = []
    for _ in range(30):
        passes.clear()
        pending, draft = checked.some(1)[0], checked.some(4)
        scores = checked.context.score(pending, Draft(draft))
        assert passes[-1] == 5 + scores.again <= 5 + sequence_module._MAX_REPLAYED
        again.append(len(passes) - 1)
        checked.context.commit([0])
        checked.text += [pending, draft[0]]
    assert sum(again) <= 30 / 4 and max(again) <= 1
    checked.step(1, 1)


def test_without_drafts_there_is_no_checkpoint(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make(kind)
    monkeypatch.setattr(llama_cpp, "llama_state_seq_get_data_ext", None)
    context.extend([5, 6, 7])
    for _ in range(4):
        context.score(5, NOTHING)
        context.commit([])
    if KINDS[kind][2] is not Rollback.FULL:
        context.score(5, Draft([6, 7]))
        context.commit([0])


class SkipsRestore(Memory):
    """A mutant: believes in the checkpoint, and does not put it back."""

    def _restore(self, saved: int) -> bool:
        return True


class CutsTooDeep(Memory):
    """A mutant: takes the library's word for how far snapshots reach."""

    def end_pass(self, rows: int) -> None:
        super().end_pass(rows)
        self._within_snapshots = self._snapshots


@pytest.mark.parametrize(
    ("kind", "mutant"),
    [*((kind, SkipsRestore) for kind in STATES), ("qwen35", CutsTooDeep)],
)
def test_mutants_are_caught(
    make: Make, kind: str, mutant: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache_module, "Memory", mutant)
    wrong = make(kind)
    monkeypatch.undo()
    checked = Checked(wrong, make(kind))
    with pytest.raises((AssertionError, kv_cache_module.LocalspecError)):
        checked.read(8)
        checked.step(12, 3)
        checked.step(0, 0)
        checked.score(0)
        checked.step(1, 1)


@pytest.mark.parametrize("kind", [*STATES, "llama"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_drafter_with_a_running_state(make: Make, kind: str, temperature: float) -> None:
    """Whatever is accepted, its cache is that of the text, and so are its drafts."""
    cache, other = make(kind), make(kind)
    sampler = Sampler(SamplingParams(temperature=temperature), Noise(7))
    drafter = DraftModel(cache, name="small", n_vocab=N_VOCAB)
    rng = np.random.default_rng(1)
    text = [int(token) for token in rng.integers(3, N_VOCAB, 9)]
    drafter.begin(text)
    for _ in range(20):
        depth = int(rng.integers(1, 6))
        drafted = proposed(drafter, Limit(depth, sampler.prefix(text), sampler)).tokens
        fresh = DraftModel(other, name="small", n_vocab=N_VOCAB)
        other.truncate(0)
        fresh.begin(text)
        assert drafted == proposed(fresh, Limit(depth, sampler.prefix(text), sampler)).tokens
        accepted = int(rng.integers(0, depth + 1))
        tokens = [*drafted[:accepted], int(rng.integers(3, N_VOCAB))]
        drafter.observe(Outcome(tokens, accepted))
        text += tokens
