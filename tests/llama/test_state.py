"""States: what one context holds, another goes on from, without evaluating anything."""

from dataclasses import replace

import llama_cpp
import numpy as np
import pytest
from fakes.checked import KINDS, SLIDES_AFTER, SLIDING, STATES, Checked, Make, context_of

from localspec.llama.model import Model
from localspec.llama.rollback import Memory
from localspec.llama.sequence import KVSequence
from localspec.llama.state import State
from localspec.speculation.draft import NOTHING, Draft

LONG = SLIDES_AFTER + 40


def goes_on(checked: Checked) -> None:
    """Drafts of every outcome, a cut, a mark."""
    for depth, accepted in ((0, 0), (3, 3), (3, 1), (1, 0), (12, 5), (0, 0), (4, 0)):
        checked.step(depth, accepted)
    checked.truncate(len(checked.text) - 2)
    checked.read(3)
    checked.context.mark()
    checked.read(5)
    checked.truncate(len(checked.text) - 5)
    checked.step(2, 1)


@pytest.mark.parametrize("length", [1, 7, 40, LONG])
def test_a_fork_goes_on_from_there(make: Make, kind: str, length: int) -> None:
    """And so does the context it is of, each with a text of its own."""
    source = Checked(make(kind), make(kind), seed=1)
    source.read(length)
    forked = make(kind)
    state = source.context.state()
    assert source.context.memory.copy_bytes == state.data.size
    assert forked.restore(state)
    assert forked.tokens == source.text
    fork = Checked(forked, make(kind), seed=2)
    fork.step(0, 0)
    assert forked.evaluated == 1
    goes_on(fork)
    goes_on(source)
    assert fork.text != source.text


def test_a_state_in_the_midst_of_drafts(make: Make, kind: str) -> None:
    """What the text has and the cache lacks after a rejection is not in it."""
    source = Checked(make(kind), make(kind))
    source.read(20)
    for depth, accepted in ((3, 1), (12, 2), (1, 0), (4, 4), (8, 0)):
        source.step(depth, accepted)
        state = source.context.state()
        assert state.tokens == tuple(source.text[: source.context.memory.length])
        forked = make(kind)
        assert forked.restore(state)
        fork = Checked(forked, make(kind), seed=3)
        goes_on(fork)


def test_a_state_after_an_interrupted_pass(make: Make, kind: str) -> None:
    source = Checked(make(kind), make(kind))
    source.read(20)
    source.score(3)
    state = source.context.state()
    assert source.text[: len(state.tokens)] == list(state.tokens)
    forked = make(kind)
    assert forked.restore(state)
    goes_on(Checked(forked, make(kind)))


@pytest.mark.parametrize("kinds", [("qwen35", "qwen35 with two"), ("qwen35 with two", "qwen35")])
@pytest.mark.parametrize("without", [False, True])
def test_snapshots_are_no_part_of_it(make: Make, kinds: tuple[str, str], without: bool) -> None:
    one, other = kinds[0], "qwen35 without snapshots" if without else kinds[1]
    source = Checked(make(one), make(one))
    source.read(20)
    source.step(2, 1)
    forked = make(other)
    assert forked.restore(source.context.state())
    goes_on(Checked(forked, make(other)))


def test_it_takes_the_place_of_what_was_held(make: Make, kind: str) -> None:
    """Checkpoints and marks are gone with their text."""
    source = make(kind)
    source.extend(list(range(20, 60)))
    checked = Checked(make(kind), make(kind))
    checked.read(30)
    checked.context.mark()
    checked.context.checkpoint()
    checked.score(3)
    assert checked.context.restore(source.state())
    checked.text = list(range(20, 60))
    assert checked.context.tokens == checked.text
    checked.step(3, 1)
    checked.truncate(30)
    checked.step(3, 1)


@pytest.mark.parametrize("kind", [SLIDING, *STATES])
def test_a_mark_after_it_is_somewhere_to_come_back_to(make: Make, kind: str) -> None:
    source = make(kind)
    source.extend(list(range(20, 60)))
    context = make(kind)
    assert context.restore(source.state())
    context.mark()
    checked = Checked(context, make(kind))
    checked.read(LONG)
    assert checked.truncate(40) == 40
    goes_on(checked)


@pytest.mark.parametrize("kind", ["gemma3", SLIDING])
def test_drafts_after_a_state_of_less_than_a_window(make: Make, kind: str) -> None:
    """Windows in chunks: a state may reach back less far than they may, and needs no more."""
    source = make(kind)
    source.extend(list(range(20, 80)))
    context = make(kind)
    context.memory._window = 48
    assert context.restore(source.state())
    checked = Checked(context, make(kind))
    for accepted in (0, 1, 3):
        evaluated = context.evaluated
        checked.step(3, accepted)
        assert context.evaluated == evaluated + 4
    assert checked.truncate(59) == 0


def fits_not(context: KVSequence, state: State) -> None:
    """It is refused, and nothing is left of it."""
    context.extend([5, 6, 7])
    assert not context.restore(state)
    assert context.tokens == []
    assert llama_cpp.llama_memory_seq_pos_max(context.context.memory, 0) == -1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mamba"])
@pytest.mark.parametrize("options", [{"flash_attention": True}, {"kv_type": "f16"}])
def test_a_state_of_another_setup_is_refused(
    make: Make, kind: str, options: dict[str, int]
) -> None:
    source = make(kind)
    source.extend(list(range(20, 60)))
    other = make(kind, **options)
    fits_not(other, source.state())
    fresh = make(kind, **options)
    assert np.array_equal(other.extend([8, 9]), fresh.extend([8, 9]))


def test_a_state_that_is_too_long_is_refused(make: Make, kind: str) -> None:
    source = make(kind)
    source.extend(list(range(20, 80)))
    small = make(kind, n_ctx=59)
    fits_not(small, source.state())
    exactly = make(kind, n_ctx=60)
    assert exactly.restore(source.state())


def test_a_state_of_another_model_is_refused(models: dict[str, Model], make: Make) -> None:
    states = []
    for kind in ("llama", "gemma3", "mamba", "qwen35"):
        context = make(kind)
        context.extend(list(range(20, 60)))
        states.append((kind, context.state()))
    for kind, _ in states:
        for other, state in states:
            if kind != other:
                fits_not(make(kind), state)


def test_a_state_that_contradicts_itself_is_refused(make: Make, kind: str) -> None:
    source = make(kind)
    source.extend(list(range(20, 60)))
    state = source.state()
    longer = np.append(state.data, np.zeros(4, np.uint8))
    for wrong in (
        replace(state, tokens=state.tokens[:-1]),
        replace(state, tokens=(*state.tokens, 5)),
        replace(state, data=state.data[:-1]),
        replace(state, data=state.data[:9]),
        replace(state, data=longer),
    ):
        fits_not(make(kind), wrong)


def test_nothing_is_a_state_too(make: Make, kind: str) -> None:
    context = make(kind)
    nothing = context.state()
    assert nothing.tokens == () and nothing.data.size == 0
    context.extend([5, 6])
    assert context.restore(nothing)
    assert context.tokens == [] and context.state().tokens == ()


def test_where_the_library_copies_nothing_there_is_nothing_in_it(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make(kind)
    context.extend([5, 6, 7])
    for function in ("get_size", "get_data"):
        with monkeypatch.context() as patch:
            patch.setattr(llama_cpp, f"llama_state_seq_{function}_ext", lambda *_: 0)
            assert context.state().tokens == ()
    assert context.tokens == [5, 6, 7] and context.state().tokens == (5, 6, 7)


def test_without_memory_there_is_nothing_in_it(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise MemoryError

    checked.read(5)
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "_copy", refused)
        assert checked.context.state().tokens == ()
    checked.step(0, 0)


def test_a_restoration_that_is_interrupted(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back = llama_cpp.llama_state_seq_set_data_ext

    def interrupted(*arguments: object) -> int:
        put_back(*arguments)
        raise KeyboardInterrupt

    source = make(kind)
    source.extend(list(range(20, 60)))
    checked = Checked(make(kind), make(kind))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(llama_cpp, "llama_state_seq_set_data_ext", interrupted)
        checked.context.restore(source.state())
    assert checked.context.tokens == []
    checked.read(10)
    checked.step(3, 1)


def test_what_was_evaluated_is_counted(models: dict[str, Model]) -> None:
    """Padding is not; what is evaluated again is."""
    with context_of(models["llama"], "llama") as padded:
        assert padded.evaluated == 0
        padded.least_rows = 4
        padded.extend([5, 6])
        padded.score(7, Draft([8, 9]))
        padded.commit([0])
        assert padded.evaluated == 5
    with context_of(models["mamba"], "mamba") as context:
        context.extend([5, 6])
        context.score(7, Draft([8, 9]))
        context.commit([0])
        assert context.score(7, NOTHING).again == 2
        assert context.evaluated == 5 + 3


@pytest.mark.parametrize("length", [10, 16, 17, 60])
def test_a_window_that_keeps_the_whole_text_is_copied_whole_or_not_at_all(
    make: Make, length: int
) -> None:
    """Without what the window has passed, the cells would be others than the text's."""
    first, second, fresh = (make("gemma3", swa_full=True) for _ in range(3))
    first.extend(list(range(20, 20 + length)))
    second.restore(first.state())
    checked = Checked(second, fresh)
    checked.truncate(length // 2)
    checked.read(3)
