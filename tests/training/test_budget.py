"""Budget: the time that is asked for is spent, and on what is worth it."""

from dataclasses import replace

import pytest

from localspec.training.budget import (
    ROUNDS,
    Budget,
    Sizes,
    Speeds,
    budget_for_seconds,
    budget_for_tokens,
    forecast,
    rounds_seconds,
)

SIZES = Sizes(tokens=9000, answers=8000, held_out=4000)
QUICK = Speeds(write=1e-3, read=2e-4, train=3e-4, trial=20)
SLOW_TARGET = Speeds(write=0.05, read=0.01, train=1e-3, trial=60)


@pytest.mark.parametrize("speeds", [QUICK, SLOW_TARGET])
@pytest.mark.parametrize("seconds", [900, 3600, 36000])
def test_the_time_is_spent(speeds: Speeds, seconds: float) -> None:
    budget = budget_for_seconds(seconds, speeds, SIZES)
    expected = forecast(budget, speeds, SIZES)
    one_more = forecast(Budget(budget.waves + 1, budget.rounds), speeds, SIZES)
    assert (expected <= seconds or budget.waves == 1) and one_more > seconds


def test_time_that_is_too_short_for_another_wave_goes_into_rounds() -> None:
    speeds = Speeds(write=0.01, read=1e-3, train=3e-3, trial=20)
    budget = budget_for_seconds(400, speeds, SIZES)
    longer = Budget(budget.waves, budget.rounds + 1)
    assert budget.waves < 4 and budget.rounds > 4
    assert forecast(budget, speeds, SIZES) <= 400 < forecast(longer, speeds, SIZES)


@pytest.mark.parametrize("seconds", [-100, 0, 5])
def test_no_time_at_all_is_the_shortest_training(seconds: float) -> None:
    budget = budget_for_seconds(seconds, SLOW_TARGET, SIZES)
    assert budget.waves == 1
    assert budget.rounds == min(budget_for_seconds(60, SLOW_TARGET, SIZES).rounds, 4)


def test_slow_writing_has_more_rounds() -> None:
    rounds = [budget_for_seconds(36000, each, SIZES).rounds for each in (QUICK, SLOW_TARGET)]
    assert rounds[0] < rounds[1]


def test_tokens_decide_by_themselves() -> None:
    assert budget_for_tokens(20_000, SIZES) == Budget(3, ROUNDS)
    assert budget_for_tokens(1, SIZES) == Budget(1, ROUNDS)


def test_a_small_disk_costs_reading_in_each_round() -> None:
    budget = Budget(10, 5)
    small = Sizes(9000, 8000, 4000, most_waves=9)
    more = forecast(budget, QUICK, small) - forecast(budget, QUICK, SIZES)
    assert more == pytest.approx(4 * 10 * 9000 * QUICK.read)


def test_a_target_that_is_loaded_again_takes_time_too() -> None:
    budget, speeds = Budget(10, 5), replace(QUICK, load=3.0)
    for most, loads in ((9, 2), (3, 4), (0.5, 10), (10, 0)):
        sizes = Sizes(9000, 8000, 4000, most_waves=most)
        more = forecast(budget, speeds, sizes) - forecast(budget, QUICK, sizes)
        assert more == pytest.approx(5 * loads * 3.0)
        within = rounds_seconds(budget, speeds, sizes) - rounds_seconds(budget, QUICK, SIZES)
        assert within == pytest.approx(more + 5 * 10 * 9000 * QUICK.read * (most < 10))


def test_texts_that_are_here_take_no_time() -> None:
    here = replace(SIZES, written=7)
    saved = forecast(Budget(10, 5), QUICK, SIZES) - forecast(Budget(10, 5), QUICK, here)
    assert saved == pytest.approx(7 * 8000 * QUICK.write)
    assert forecast(Budget(2, 5), QUICK, here) < forecast(Budget(2, 5), QUICK, SIZES)
    # The time that they save goes into more of them.
    more = [budget_for_seconds(3600, SLOW_TARGET, each).waves for each in (SIZES, here)]
    assert more[1] > more[0]
