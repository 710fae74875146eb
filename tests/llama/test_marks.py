"""Marks: places in a text that a cache can come back to, where it cannot be cut anywhere."""

import llama_cpp
import numpy as np
import pytest
from fakes.checked import SLIDES_AFTER, SLIDING, STATES, WINDOW, Checked, Make

from localspec.llama import kv_cache as kv_cache_module
from localspec.llama import marks as marks_module
from localspec.llama.rollback import SNAPSHOTS, Memory, Rollback

# Where a cache cannot be cut anywhere, once the text is longer than a window that slides.
MARKED = [SLIDING, *STATES]
LONG = SLIDES_AFTER + 40


def test_a_mark_is_somewhere_to_come_back_to(checked: Checked) -> None:
    """However much was evaluated since, and however often."""
    checked.read(20)
    checked.context.mark()
    for accepted in (0, 2, 3):
        checked.read(LONG)
        checked.step(3, accepted)
        evaluated = checked.context.evaluated
        assert checked.truncate(20) == 20
        assert checked.context.evaluated == evaluated
        checked.step(12, accepted)
        checked.step(2, 1)


@pytest.mark.parametrize("kind", MARKED)
def test_without_a_mark_there_is_nowhere_to_come_back_to(checked: Checked) -> None:
    checked.read(20)
    checked.read(LONG)
    assert checked.truncate(20) == 0


@pytest.mark.parametrize("kind", MARKED)
def test_the_last_mark_before_the_place_is_gone_back_to(checked: Checked) -> None:
    places = (10, 30, 60, 100)
    for place in places:
        checked.read(place - len(checked.text))
        checked.context.mark()
    checked.read(LONG)
    for length, left in ((150, 100), (99, 60), (60, 60), (29, 10), (9, 0)):
        assert checked.context.memory.left_by_cut(length) == left
        assert checked.truncate(length) == left
        checked.read(LONG)


@pytest.mark.parametrize("kind", ["llama", "gemma3", SLIDING])
def test_what_a_cut_leaves_is_known_before(checked: Checked) -> None:
    for length in (LONG + 5, LONG, LONG - 1, LONG - WINDOW + 1):
        checked.truncate(0)
        checked.read(LONG)
        left = checked.context.memory.left_by_cut(length)
        assert checked.truncate(length) == left == min(length, LONG)


@pytest.mark.parametrize("kind", ["llama"])
def test_attention_can_be_cut_anywhere(checked: Checked) -> None:
    checked.read(LONG)
    assert checked.context.memory.left_by_cut(7) == checked.truncate(7) == 7


def test_a_mark_is_of_one_text_only(checked: Checked) -> None:
    """Of another text that is as long, nothing is known."""
    checked.read(10)
    checked.context.mark()
    checked.read(10)
    checked.context.mark()
    checked.truncate(15)
    checked.read(LONG)
    assert checked.truncate(20) in (10, 20)
    checked.step(3, 1)


@pytest.mark.parametrize("kind", ["mamba"])
def test_a_mark_is_added_within_the_text_and_memory(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it the text may go on otherwise."""
    checked.read(20)
    checked.context.mark()
    memory = checked.context.memory
    copy = memory.marks[20]
    memory.add_mark(21, copy)
    assert [*memory.marks] == [20]
    memory.marks.clear()
    with monkeypatch.context() as patch:
        patch.setattr(marks_module, "spare_memory", lambda: 0)
        memory.add_mark(20, copy)
        assert not memory.marks
    memory.add_mark(20, copy)
    assert [*memory.marks] == [20]


@pytest.mark.parametrize("kind", MARKED)
@pytest.mark.parametrize("seed", range(3))
def test_random_marks_drafts_and_cuts(make: Make, kind: str, seed: int) -> None:
    """Marks and the checkpoint of drafts and drafters are used by turns."""
    checked = Checked(make(kind), make(kind), seed)
    rng = np.random.default_rng(seed)
    marks = list[int]()
    for _ in range(30):
        if len(checked.text) > LONG or rng.random() < 0.15:
            length = int(rng.choice([*marks, rng.integers(0, LONG)]))
            left = checked.truncate(length)
            marks = [mark for mark in marks if mark <= length]
            assert left >= max(marks, default=0)
        checked.read(int(rng.choice([1, 2, 9, 70])))
        if rng.random() < 0.3 and len(checked.text) < LONG:
            checked.context.mark()
            marks.append(checked.context.memory.length)
        if rng.random() < 0.3:
            checked.context.checkpoint()
        depth = int(rng.choice([0, 1, 3, SNAPSHOTS + 1]))
        checked.step(depth, int(rng.integers(0, depth + 1)))


@pytest.mark.parametrize("kind", MARKED)
def test_a_mark_where_the_cache_lacks_a_part_of_the_text(checked: Checked) -> None:
    """It is of what the cache holds; the rest is evaluated again."""
    checked.read(20)
    checked.step(12, 3)
    held = checked.context.memory.length
    checked.context.mark()
    checked.read(LONG)
    assert checked.truncate(held + 1) == held <= 24
    checked.step(3, 2)


@pytest.mark.parametrize("kind", MARKED)
def test_marks_are_few(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is nearest to another goes first; without memory, there is none more."""
    # Texts of other tests, which the garbage collector has not found yet, would count.
    monkeypatch.setattr(marks_module, "_TEXTS", marks_module._MarkedTexts())
    monkeypatch.setattr(marks_module, "MAX_MARKS", 3)
    marks = checked.context.memory.marks
    for tokens in (30, 10, 20, 20, 20):
        checked.read(tokens)
        checked.context.mark()
        checked.context.mark()
    assert [*marks] == [30, 60, 100]
    monkeypatch.setattr(marks_module, "spare_memory", lambda: marks.size // 8)
    checked.read(10)
    checked.context.mark()
    assert [*marks] == [110] and not marks.refused
    monkeypatch.setattr(marks_module, "spare_memory", lambda: 0)
    checked.read(10)
    checked.context.mark()
    assert [*marks] == [110] and marks.refused > marks.size // 2
    checked.read(LONG)
    assert checked.truncate(115) == 110
    checked.step(2, 1)


@pytest.mark.parametrize("kind", MARKED)
def test_a_closed_text_keeps_no_copies(checked: Checked) -> None:
    """They would take the memory of the model that is loaded next, and of other texts."""
    for _ in range(2):
        checked.read(10)
        checked.context.mark()
    memory = checked.context.memory
    assert memory.marks.size
    checked.context.close()
    assert not memory.marks and memory._checkpoint is None


@pytest.mark.parametrize("kind", ["llama"])
def test_what_can_be_cut_anywhere_is_never_copied(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_state_seq_get_data_ext", None)
    checked.read(LONG)
    checked.context.mark()
    checked.read(LONG // 2)
    assert checked.truncate(LONG) == LONG
    assert checked.truncate(7) == 7
    checked.step(2, 1)


def refuses(*_arguments: object) -> int:
    """A function of the library that does not do it."""
    return 0


@pytest.mark.parametrize("kind", MARKED)
@pytest.mark.parametrize("function", ["get_size", "get_data", "set_data"])
def test_what_the_library_refuses_is_evaluated_again(
    checked: Checked, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked.read(20)
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, f"llama_state_seq_{function}_ext", refuses)
        checked.context.mark()
        checked.read(LONG)
        assert checked.truncate(20) == 0
    assert not checked.context.memory._marks
    checked.step(2, 1)


@pytest.mark.parametrize("kind", MARKED)
def test_a_return_to_a_mark_that_is_interrupted(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back = llama_cpp.llama_state_seq_set_data_ext

    def interrupted_after(*arguments: object) -> int:
        put_back(*arguments)
        raise KeyboardInterrupt

    def interrupted_before(*_arguments: object) -> int:
        raise KeyboardInterrupt

    checked.read(20)
    checked.context.mark()
    for interrupted in (interrupted_before, interrupted_after):
        for length in (20, 25):
            checked.read(LONG)
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(llama_cpp, "llama_state_seq_set_data_ext", interrupted)
                checked.context.truncate(length)
            assert checked.context.tokens == checked.text
            assert checked.truncate(length) == 20
            checked.step(2, 1)


@pytest.mark.parametrize("kind", MARKED)
def test_a_pass_interrupted_after_a_return_to_a_mark(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is then longer than what the cache holds."""
    checked.read(20)
    checked.context.mark()
    checked.read(LONG)
    checked.context.memory.cut(100)
    for _ in range(2):
        checked.interrupted(2, monkeypatch)
    checked.step(2, 1)


@pytest.mark.parametrize("kind", [SLIDING])
def test_drafts_after_a_return_to_less_than_a_window(checked: Checked) -> None:
    """Windows in chunks: a mark may reach back less far than they may, and needs no more."""
    checked.context.memory._window = 48
    checked.read(60)
    checked.context.mark()
    checked.read(LONG)
    assert checked.truncate(60) == 60
    for accepted in (0, 1, 3):
        evaluated = checked.context.evaluated
        checked.step(3, accepted)
        assert checked.context.evaluated == evaluated + 4


@pytest.mark.parametrize("kind", [SLIDING, "gemma3"])
def test_a_window_is_cut_as_far_as_it_reaches(checked: Checked) -> None:
    """And not a token further."""
    for back, possible in ((0, True), (1, True), (2, False), (WINDOW, False)):
        checked.read(LONG)
        checked.context.restore(checked.context.state())
        here = len(checked.text)
        assert checked.truncate(here - back) == (here - back if possible else 0)
        checked.step(3, 1)
        checked.truncate(0)


class SkipsRestore(Memory):
    """A mutant: believes in a mark, and does not put it back."""

    def _restore(self, saved: int) -> bool:
        return True


class CutsTooDeep(Memory):
    """A mutant: takes the library's word for how far windows reach."""

    def _can_remove_from(self, length: int) -> bool:
        return self.kind is Rollback.PARTIAL


class KeepsMarks(Memory):
    """A mutant: believes in marks of a text that is no more."""

    def cut(self, length: int) -> int:
        kept = dict(self._marks)
        left = super().cut(length)
        self._marks._copies.update(kept)
        return left


class LeavesTheRest(Memory):
    """A mutant: puts the state back, and does not cut what is no part of it."""

    def _restore(self, saved: int) -> bool:
        return self._load_state(self._marks[saved], 1)


@pytest.mark.parametrize(
    ("kind", "mutant"),
    [
        *((kind, mutant) for kind in MARKED for mutant in (SkipsRestore, KeepsMarks)),
        *((kind, LeavesTheRest) for kind in MARKED if kind != "mamba"),
        (SLIDING, CutsTooDeep),
    ],
)
def test_mutants_of_marks_are_caught(
    make: Make, kind: str, mutant: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    def marks_and_cuts(checked: Checked) -> None:
        for _ in range(2):
            checked.read(10)
            checked.context.mark()
        checked.truncate(15)
        checked.read(LONG)
        checked.truncate(20)
        checked.step(2, 1)

    marks_and_cuts(Checked(make(kind), make(kind)))
    monkeypatch.setattr(kv_cache_module, "Memory", mutant)
    wrong = make(kind)
    monkeypatch.undo()
    with pytest.raises((AssertionError, kv_cache_module.LocalspecError)):
        marks_and_cuts(Checked(wrong, make(kind)))
