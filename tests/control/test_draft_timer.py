"""Draft timer: which seconds of a draft are told of which token."""

from types import SimpleNamespace
from typing import Any

import pytest
from fakes.machine import FakeClock, OfTraits

from localspec.control.candidate import Candidate
from localspec.control.draft_timer import DraftTimer
from localspec.control.drafter_cost import DrafterCost

BACKLOG, DEEPEST, SLOWDOWN = 100, 5, 1.5


class Told:
    """What a drafter's cost is told."""

    def __init__(self) -> None:
        self.calls = list[tuple[Any, ...]]()

    def learn_first(self, *given: float) -> None:
        self.calls.append(("first", *given))

    def learn_further(self, *given: float) -> None:
        self.calls.append(("further", *given))

    def learn_pass(self, *given: float) -> None:
        self.calls.append(("pass", *given))


def told_of(*tokens: tuple[float, int], **traits: Any) -> list[tuple[Any, ...]]:
    """What is told of a draft. tokens: the seconds of each, and how many texts share its decode."""
    clock, share = FakeClock(1.0), SimpleNamespace(texts=1)
    drafter = OfTraits(clock, **traits)
    drafter.backlog = BACKLOG
    candidate = Candidate(drafter, DrafterCost())
    candidate.cost = cost = Told()  # type: ignore[assignment]
    timer = DraftTimer(candidate, DEEPEST, SLOWDOWN, clock, share)  # type: ignore[arg-type]
    drafter.backlog = 1  # it is read now
    for seconds, share.texts in tokens:
        clock.now += seconds
        timer.tick()
    return [
        tuple(pytest.approx(each) if isinstance(each, float) else each for each in call)
        for call in cost.calls
    ]


def test_the_first_token_takes_the_backlog_and_others_a_pass_each() -> None:
    shared: dict[str, Any] = {"computer": lambda: "model"}
    assert told_of((3.0, 2), (0.5, 3), (0.25, 1), **shared) == [
        ("first", 3.0, BACKLOG, SLOWDOWN, 2),
        ("further", 0.5, 3),
        ("further", 0.25, 1),
    ]
    # Drafters without a computer share nothing.
    assert told_of((3.0, 2), (0.5, 3)) == [
        ("first", 3.0, BACKLOG, SLOWDOWN, 1),
        ("further", 0.5, 1),
    ]


def test_a_decode_with_many_rows_of_others_tells_nothing() -> None:
    shared: dict[str, Any] = {"computer": lambda: "model"}
    assert told_of((3.0, 0), (0.5, 2), (0.5, 0), **shared) == [("further", 0.5, 2)]


def test_one_pass_has_a_row_for_each_token_of_the_deepest_draft() -> None:
    traits: dict[str, Any] = {"parallel": True, "computer": lambda: "model"}
    assert told_of((3.0, 2), (0.5, 2), **traits) == [
        ("pass", 3.0, DEEPEST, BACKLOG, SLOWDOWN),
        ("further", 0.5, 1),
    ]


def test_ready_tokens_tell_nothing() -> None:
    found = told_of((0.0, 1), (0.0, 1), (0.5, 1), (0.25, 1), ready=lambda: 2)
    assert found == [("further", 0.5, 1), ("further", 0.25, 1)]
