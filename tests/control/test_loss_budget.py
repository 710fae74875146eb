"""The loss budget by itself: 2 % and 28 plain steps, whatever drafts bring (docs/speed.md)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.loss_budget import LossBudget


def losing_steps(budget: LossBudget, plain: float, extra: float) -> int:
    """How many steps in a row may take so much longer than a plain one, for one token each."""
    count = 0
    while budget.available(plain) >= extra and count < 1000:
        budget.add_step(plain + extra, plain + extra, 1, plain)
        count += 1
    return count


@pytest.mark.parametrize("plain", [1.0, 0.01])
def test_what_may_be_lost_at_first_and_after_long_gains(plain: float) -> None:
    # Each of these steps loses a plain one but for 2 %; the last one begins within the overdraft.
    budget = LossBudget()
    assert losing_steps(budget, plain, plain) == 8
    for _ in range(500):
        budget.add_step(plain, plain, 3, plain)
    assert losing_steps(budget, plain, plain) == 28
    budget = LossBudget(overdraft=4.0)
    assert losing_steps(budget, plain, plain) == 4


@given(
    st.lists(
        st.tuples(st.floats(0, 12), st.integers(1, 9), st.booleans()), min_size=1, max_size=120
    )
)
def test_no_stretch_takes_longer_than_2_percent_and_28_plain_steps(
    steps: Sequence[tuple[float, int, bool]],
) -> None:
    """Drafts take so much longer than a plain step, if they may, and bring one token or more."""
    budget, balance, lowest = LossBudget(), 0.0, 0.0
    for extra, tokens, wrong in steps:
        drafts = extra <= budget.available(1.0)
        seconds, done = (1.0 + extra, 1 if wrong else tokens) if drafts else (1.0, 1)
        budget.add_step(seconds, seconds, done, 1.0)
        balance += seconds - 1.02 * done
        assert balance - lowest <= 28 + 1e-9
        lowest = min(lowest, balance)


def test_a_step_is_charged_its_time_up_to_twice_what_was_expected() -> None:
    def charged(seconds: float, expected: float) -> float:
        budget = LossBudget()
        budget.add_step(seconds, expected, 0, 1.0)
        return 8.0 - budget.available(1.0)

    assert charged(1.5, 2.0) == pytest.approx(1.5)
    assert charged(3.5, 2.0) == pytest.approx(3.5)
    assert charged(100.0, 2.0) == pytest.approx(4.0)


def test_of_several_texts_as_much_is_kept_as_their_steps_take() -> None:
    """plain: of each text; four of them are one decode."""
    budget = LossBudget(overdraft=0.0)
    for _ in range(1000):
        budget.add_step(0.0, 0.0, 1, 1.0, texts=4)
    assert budget.available(4.0) == pytest.approx(4 * 20.0)


def test_debts_beyond_the_most_are_forgiven() -> None:
    budget = LossBudget(overdraft=1.0, most=10.0)
    for _ in range(50):
        budget.add_step(3.0, 3.0, 0, 2.0)
    assert budget.available(2.0) == pytest.approx((1.0 - 10.0) * 2.0)
