"""Where a profile is wrong about wide passes: neither is drafting slow, nor is its gain missed."""

from collections.abc import Mapping

import pytest

from localspec.bench.experiments.simulated_drafter import COSTS, User
from localspec.bench.experiments.simulated_users import MakePolicy, SimulatedUsers, auto, plain

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
# What is believed: each row takes as long as a pass, or next to nothing.
DEAR = {rows: float(rows) for rows in WIDTHS}
CHEAP = {rows: 1 + 0.02 * (rows - 1) for rows in WIDTHS}


def seconds(
    machine: str,
    user: User,
    make: MakePolicy,
    believed: Mapping[int, float] | None = None,
    *,
    users: int = 1,
) -> float:
    """Of so many users, who each write 600 tokens on average."""
    simulated = SimulatedUsers(COSTS[machine], [user] * users, make, believed=believed)
    return simulated.run(600).seconds


@pytest.mark.parametrize("copies", [False, True], ids=["model", "copies"])
@pytest.mark.parametrize("machine", ["GPU", "F16 A"])
def test_the_gain_of_passes_that_are_believed_dear_is_found(machine: str, copies: bool) -> None:
    user = User(0.9, copies=copies)
    known, wrong = seconds(machine, user, auto), seconds(machine, user, auto, DEAR)
    assert wrong < 1.25 * known
    assert wrong < 0.6 * seconds(machine, user, plain)


@pytest.mark.parametrize("copies", [False, True], ids=["model", "copies"])
def test_looking_for_it_costs_little_where_they_are_dear(copies: bool) -> None:
    user = User(0.5, copies=copies)
    assert seconds("Q4_0 B", user, auto, DEAR) < 1.01 * seconds("Q4_0 B", user, plain)


@pytest.mark.parametrize("copies", [False, True], ids=["model", "copies"])
@pytest.mark.parametrize("machine", ["Q4_0 A", "Q4_0 B"])
@pytest.mark.parametrize("users", [1, 4])
def test_passes_that_are_believed_cheap_are_soon_known(
    machine: str, copies: bool, users: int
) -> None:
    """Four users who all draft see no plain decode of their own accord."""
    user = User(0.5, copies=copies)
    drafting = seconds(machine, user, auto, CHEAP, users=users)
    assert drafting < 1.045 * seconds(machine, user, plain, users=users)
