"""Slot: its caches saved, loaded and copied, and what its texts are made with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.tiny import tiny_model

from localspec.control.fixed_depth import FixedDepth
from localspec.engine import slot as slot_module
from localspec.engine import slot_cache
from localspec.engine.engine import Engine, load
from localspec.engine.slot import Slot
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError, WorkerError
from localspec.generation_config import GenerationConfig
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.llama.state import State
from localspec.speculation.draft import Draft
from localspec.speculation.passes import draft_pass
from localspec.stats import Stats

TEXT = list(range(5, 25))


def config(**options: Any) -> GenerationConfig:
    return GenerationConfig.of(**{"max_tokens": 4, "temperature": 0, "ignore_eos": True, **options})


def loaded(kind: str = "llama", draft: str | None = None, **options: Any) -> Engine:
    path = tiny_model(kind)
    usual: dict[str, Any] = {"threads": 1, "context": 128, "texts": 2}
    return load(path, draft or str(path), **(usual | options))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with loaded() as engine:
        yield engine


@pytest.fixture
def slot(engine: Engine) -> Slot:
    """The own slot, with a text in its caches."""
    engine.slots.own.start(TEXT, config(depth=2)).result()
    return engine.slots.own


@pytest.fixture
def other(engine: Engine) -> Iterator[Slot]:
    """A slot with another text."""
    slot = engine.slots.open()
    further = engine.slots.open() if slot is engine.slots.own else slot
    further.start(TEXT[::-1], config()).result()
    yield further
    engine.slots.leave(further)
    engine.slots.leave(engine.slots.own)


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(tmp_path)


def drafter_of(slot: Slot) -> KVSequence:
    (sequence,) = slot.loaded.drafter_set.sequences.values()
    return sequence


def held(slot: Slot) -> tuple[list[int], list[int]]:
    """What the caches of target and drafter hold."""
    return list(slot.target.tokens), list(drafter_of(slot).tokens)


def test_what_was_saved_is_loaded_by_another_slot(
    slot: Slot, other: Slot, store: StateStore
) -> None:
    assert slot.save("a", store) is None
    saved = held(slot)
    assert len(saved[0]) >= len(TEXT) and len(saved[1]) >= len(TEXT)
    running = other.start(TEXT, config())
    next(running)
    assert other.load("a", store) is None
    assert running.stop_reason == "cancelled"
    assert held(other) == saved
    again = other.start([*saved[0], 7], config()).result()
    assert again.stats.prompt_evaluated == 1


def test_each_key_has_its_own_caches(slot: Slot, store: StateStore) -> None:
    assert slot.load("a", store) == "nothing was saved under this key"
    slot.save("a", store)
    first = held(slot)
    slot.start(TEXT[::-1], config()).result()
    slot.save("b", store)
    assert slot.load("a", store) is None and held(slot) == first
    store.remove("a")
    assert slot.load("a", store) == "nothing was saved under this key"
    assert slot.load("b", store) is None
    store.remove("b")
    assert not [*store.folder.glob("*.state")]


def test_what_does_not_fit_is_said(slot: Slot, store: StateStore) -> None:
    slot.save("a", store)
    with loaded(context=16) as small:
        assert small.slots.own.load("a", store) == "it does not fit this context"


@pytest.mark.parametrize(
    ("options", "which"),
    [
        ({"kv_type": "f32"}, "another kv type"),
        ({"flash_attention": False}, "another flash attention"),
        ({"reproducible": True}, "another flash attention and another reproducible"),
        ({"rope_scale": 2.0, "rope_scaling": "linear"}, "another rope scaling"),
        ({"kind": "qwen3", "draft": "none"}, "another model file"),
    ],
)
def test_a_state_of_another_origin_is_not_loaded(
    slot: Slot, store: StateStore, options: dict[str, Any], which: str
) -> None:
    slot.save("a", store)
    with loaded(**options) as engine:
        assert engine.slots.own.load("a", store) == f"the saved state is of {which}"


def test_the_drafter_s_cache_may_be_another_s(slot: Slot, store: StateStore) -> None:
    """The target's is loaded, and the drafter reads the text again."""
    slot.save("a", store)
    with loaded(drafter_kv_type="f32") as engine:
        assert engine.slots.own.load("a", store) is None
        assert held(engine.slots.own) == (held(slot)[0], [])


def test_what_cannot_be_saved_says_why(
    slot: Slot, store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(slot.target.memory, "length", 0)
        assert slot.save("a", store) == "its cache has to be read again first"
    (tmp_path / "file").write_text("")
    nowhere = StateStore(tmp_path / "file" / "folder")
    assert slot.save("a", nowhere) == nowhere.problem is not None
    slot.save("a", store)
    honest = KVSequence.state

    def state(sequence: KVSequence) -> State:
        lost = sequence is slot.target
        return State((), np.zeros(0, np.uint8)) if lost else honest(sequence)

    monkeypatch.setattr(KVSequence, "state", state)
    assert slot.save("a", store) == "its cache cannot be copied"
    assert slot.load("a", store) == "nothing was saved under this key", (
        "the old one is of another text"
    )


def test_an_empty_cache_is_saved_too(slot: Slot, store: StateStore) -> None:
    for sequence in (slot.target, drafter_of(slot)):
        sequence.truncate(0)
    assert slot.save("a", store) is None
    slot.start(TEXT, config()).result()
    assert slot.load("a", store) is None
    assert held(slot) == ([], [])


@pytest.mark.parametrize("saved", [False, True])
def test_a_drafter_that_is_gone_keeps_nothing_back(
    slot: Slot, other: Slot, store: StateStore, saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = KVSequence.state, KVSequence.restore, KVSequence.share
    text, before = held(slot)[0], held(other)[1]

    def gone(at: int) -> Any:
        def call(sequence: KVSequence, *arguments: Any) -> Any:
            if sequence in (drafter_of(slot), drafter_of(other)):
                raise WorkerError("gone")
            return honest[at](sequence, *arguments)

        return call

    for at, name in enumerate(("state", "restore", "share")):
        monkeypatch.setattr(KVSequence, name, gone(at))
    if saved:
        assert slot.save("a", store) is None
        assert other.load("a", store) is None
    else:
        other.copy_from(slot)
    assert held(other) == (text, before)
    monkeypatch.setattr(KVSequence, "state", lambda _: gone(0)(drafter_of(slot)))
    with pytest.raises(WorkerError):
        slot.save("a", store)


def test_only_a_drafter_s_cache_is_left_out(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "is_lost", property(lambda _: True))
    assert [each.is_lost for each in slot._caches()] == [False, True]


def test_a_copy_goes_on_from_there(slot: Slot, other: Slot) -> None:
    running = other.start(TEXT[5:], config())
    next(running)
    other.copy_from(slot)
    assert running.stop_reason == "cancelled"
    assert held(other) == held(slot)
    prompt = [*held(slot)[0], 7]
    texts = [each.start(prompt, config()).result() for each in (slot, other)]
    assert texts[0].token_ids == texts[1].token_ids
    assert texts[1].stats.prompt_evaluated == 1


def test_a_copy_of_what_must_be_rolled_back_first(slot: Slot, other: Slot) -> None:
    """A pass was computed, and its text was closed before it was known what stands."""
    before = held(slot)
    for sequence in (slot.target, drafter_of(slot)):
        sequence.context.decode([draft_pass(sequence, 7, Draft([8, 9]))])
    other.copy_from(slot)
    assert held(other) == held(slot) == before
    assert other.target.memory.length == len(before[0])
    prompt = [*before[0], 6]
    texts = [each.start(prompt, config()).result() for each in (slot, other)]
    assert texts[0].token_ids == texts[1].token_ids


@pytest.mark.parametrize("most", [0, None])
def test_marks_are_saved_too(
    most: int | None, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a running state, to which a text can return only there."""
    if most is not None:
        monkeypatch.setattr(slot_cache, "_MOST_MARK_BYTES", most)
    with loaded("mamba", "none", texts=1) as engine:
        slot = engine.slots.own
        slot.start(TEXT, config()).result()
        slot.start([*slot.target.tokens, *TEXT], config()).result()
        marks = [*slot.target.memory.marks]
        assert len(marks) > 2
        assert slot.save("a", store) is None
        slot.target.truncate(0)
        assert slot.load("a", store) is None
        assert [*slot.target.memory.marks] == (marks if most is None else marks[-1:])


def test_a_text_that_was_cancelled_before_it_began_leaves_the_caches(slot: Slot) -> None:
    before, stats = held(slot), Stats()
    closed = slot.closed_generation(TEXT[::-1], config(seed=3), stats)
    assert (closed.stop_reason, closed.prompt, closed.stats) == ("cancelled", TEXT[::-1], stats)
    assert list(closed) == [] and held(slot) == before


def test_beginnings_are_taken_where_texts_share_a_cache(slot: Slot, other: Slot) -> None:
    assert slot.takes_beginnings and other.takes_beginnings
    assert other.scheduled.rows.cache is slot.target.context, "their rows are one budget"
    with loaded(texts=1) as alone:
        assert not alone.slots.own.takes_beginnings


def test_a_policy_of_the_caller_s_own_decides(slot: Slot) -> None:
    asked = config(depth=3, max_tokens=8)
    assert slot.start(TEXT, asked).result().stats.drafted > 0
    assert slot.start(TEXT, asked, policy=FixedDepth((), 0)).result().stats.drafted == 0


def test_what_a_slot_is_doing(slot: Slot) -> None:
    assert not slot.is_writing
    running = slot.start(TEXT, config())
    assert slot.running is running and slot.is_writing
    next(running)
    assert not slot.in_step
    running.result()
    assert not slot.is_writing
    slot.in_answer = True
    assert slot.is_writing
    slot.in_answer = False
    running = slot.start(TEXT, config())
    following = slot.start(TEXT, config())
    assert (running.stop_reason, slot.running) == ("cancelled", following)
    slot.stop()
    assert (following.stop_reason, slot.running) == ("cancelled", None)


def test_what_is_reusable_is_what_is_shared(slot: Slot) -> None:
    text = held(slot)[0]
    assert slot.reusable(text) == len(text)
    assert slot.reusable([*text[:7], 200]) == 7
    assert slot.reusable([200]) == 0


def test_settings_of_the_model_s_sampler(slot: Slot) -> None:
    vocabulary = slot.target.model.n_vocab
    assert slot.params(config(logit_bias={vocabulary - 1: 1.0})).logit_bias[vocabulary - 1] == 1.0
    with pytest.raises(InvalidValueError, match=f"logit_bias token is {vocabulary}; it must be"):
        slot.params(config(logit_bias={vocabulary: 1.0}))
    assert slot.params(config()).dry_breaker_tokens == {}
    assert slot.params(config(dry_multiplier=1.0, dry_sequence_breakers=["a"])).dry_breaker_tokens
    end = min(slot.target.model.end_tokens)
    forced = {"logit_bias": {end: 100.0}, "max_tokens": 9}
    for options, length in (
        ({"ignore_eos": False}, 1),
        ({"ignore_eos": False, "min_tokens": 3}, 4),
        ({"ignore_eos": True}, 9),
    ):
        assert len(slot.start(TEXT, config(**options, **forced)).result().token_ids) == length


def test_widths_of_passes_are_those_of_the_setting(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.slots.own.reproducible_width(config()) is None
    with loaded(reproducible=True) as exact:
        slot = exact.slots.own
        running = slot.start(TEXT, config(max_tokens=20))
        next(running)
        depth = slot.reproducible_width(config(depth=3))
        assert running.stop_reason == "cancelled", "the trial has emptied its cache"
        assert depth is not None and depth.least_rows >= 1
        assert slot.width_class(3) is slot.width_class(3) is depth
        assert slot.loaded.widths[3] is depth
        # Passes with a draft of one token have two rows, and there is no width between.
        narrow = slot.width_class(1)
        assert narrow is not None and narrow.least_rows == 2
        running = slot.start(TEXT, config(depth=3, max_tokens=20))
        next(running)
        assert slot.width_class(3) is depth and running.stop_reason is None
        assert running.result().stats.steps == 6, "drafts are as long as they were asked for"
        # The trial of another depth knows nothing of padding that a policy has asked for.
        slot.target.padded, seen = lambda rows: rows + 5, list[tuple[int, int]]()
        with monkeypatch.context() as patch:
            patch.setattr(
                slot_module,
                "invariant_width",
                lambda target, widest, _: seen.append((target.padded(3), widest)) or narrow,
            )
            assert slot.width_class(4) is narrow and seen == [(3, 5)]
        assert slot.set_pass_width(config(depth=3)) == slot.target.n_ctx
        assert slot.target.least_rows == depth.least_rows
        with slot.new_context(config(depth=3), 64) as context:
            assert (context.n_cells, context.least_rows) == (64, depth.least_rows)
        with slot.new_context(config(depth=3)) as context:
            assert context.n_cells == slot.target.n_cells
