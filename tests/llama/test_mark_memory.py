"""The memory of marks: how many there may be, of one text and of several."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.llama import marks as module
from localspec.llama.marks import MAX_MARKS, Marks


class Machine:
    """A machine on which nothing but marks takes memory."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.texts: list[Marks] = []

    def text(self) -> Marks:
        self.texts.append(Marks())
        return self.texts[-1]

    def spare(self) -> int:
        copies = {id(copy): copy.size for text in self.texts for copy in text.values()}
        return max(0, self.total - sum(copies.values()))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine(4000)
    monkeypatch.setattr(module, "spare_memory", machine.spare)
    monkeypatch.setattr(module, "_TEXTS", module._MarkedTexts())
    yield machine
    machine.texts.clear()


def mark(marks: Marks, length: int, size: int = 100) -> bool:
    fits = marks.make_room(size)
    if fits:
        marks.add(length, np.zeros(size, np.uint8))
    return fits


def test_a_text_takes_its_part_of_memory(machine: Machine) -> None:
    marks = machine.text()
    for length in range(10, 300, 10):
        assert mark(marks, length)
    # A quarter of what is free without them.
    assert marks.size == 1000
    assert marks.longest == 290


def test_the_one_that_saves_the_least_goes(machine: Machine) -> None:
    """A prompt of 1,000 tokens and calls of tools: the question's end is kept."""
    machine.total = 1200
    marks = machine.text()
    for length in (1000, 2000, 2100, 2200, 2300, 2400, 2500):
        mark(marks, length)
    assert [*marks] == [1000, 2000, 2500]


def test_one_is_kept_in_little_memory(machine: Machine) -> None:
    marks = machine.text()
    assert mark(marks, 10, 2000)
    assert mark(marks, 20, 2000)
    assert [*marks] == [20] and not marks.refused
    # Copies are made before others are freed by the system.
    assert not mark(marks, 30, 2001)
    assert [*marks] == [20] and marks.refused == 2001
    assert mark(marks, 40)
    assert not marks.refused
    assert not mark(marks, 50, 0)


def test_later_texts_have_their_part(machine: Machine) -> None:
    first, *others = (machine.text() for _ in range(4))
    for length in range(10, 200, 10):
        mark(first, length)
    for parts, marks in enumerate(others, start=2):
        for length in range(10, 200, 10):
            mark(marks, length)
        assert marks.size == 1000 // parts // 100 * 100
    # It gives back when it makes another.
    mark(first, 200)
    assert first.size <= 1000 - 500 or first.size == 200


def test_what_texts_share_counts_once(machine: Machine) -> None:
    first, second = machine.text(), machine.text()
    mark(first, 10, 500)
    second.add(10, first[10])
    for length in (20, 30, 40, 50):
        mark(second, length)
    assert second.size == 1000 - 100


def test_a_text_that_is_gone_takes_nothing(machine: Machine) -> None:
    first, second = machine.text(), machine.text()
    for length in range(10, 200, 10):
        mark(first, length)
        mark(second, length)
    first.clear()
    for length in range(200, 400, 10):
        mark(second, length)
    assert second.size == 1000


def test_they_are_few(machine: Machine) -> None:
    machine.total = 10**6
    marks = machine.text()
    for length in range(1, 100):
        mark(marks, length)
    assert len(marks) == MAX_MARKS


def test_the_latest(machine: Machine) -> None:
    marks = machine.text()
    assert marks.latest(1000) == []
    for length in (10, 20, 30, 40):
        mark(marks, length)
    assert [length for length, _ in marks.latest(250)] == [30, 40]
    assert [length for length, _ in marks.latest(50)] == [40]
    assert [length for length, _ in marks.latest(10**6)] == [10, 20, 30, 40]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400), st.booleans()), max_size=60))
def test_half_of_memory_is_left(steps: list[tuple[int, int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(4000)
        patch.setattr(module, "spare_memory", machine.spare)
        patch.setattr(module, "_TEXTS", module._MarkedTexts())
        texts = [machine.text() for _ in range(4)]
        for text, size, cut in steps:
            marks = texts[text]
            if cut:
                marks.drop_beyond(marks.longest // 2)
            mark(marks, marks.longest + size, size)
            assert [*marks] == sorted(marks)
        assert machine.spare() >= machine.total // 3
