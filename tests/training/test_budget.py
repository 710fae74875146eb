"""Budget: the time that is asked for is spent, and on what is worth it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.shards import noted_reading, shard_of

from localspec.distillation.row_cache import RowCache
from localspec.distillation.texts import Text
from localspec.distillation.work_folder import WorkFolder
from localspec.training.budget import (
    ROUNDS,
    Budget,
    Speeds,
    Waves,
    budget_for_seconds,
    budget_for_tokens,
    forecast,
    reading_seconds,
    rounds_seconds,
    training_seconds,
)

SIZES = Waves(tokens=9000, answers=8000, held_out=4000)
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
    assert budget.rounds == 4


def test_slow_writing_has_more_rounds() -> None:
    rounds = [budget_for_seconds(36000, each, SIZES).rounds for each in (QUICK, SLOW_TARGET)]
    assert rounds[0] < rounds[1]


def test_tokens_decide_by_themselves() -> None:
    assert budget_for_tokens(20_000, SIZES) == Budget(3, ROUNDS)
    assert budget_for_tokens(1, SIZES) == Budget(1, ROUNDS)


@pytest.mark.parametrize("room", [9.5, 7.2, 5, 3, 1.9, 0.5])
def test_a_small_disk_costs_reading_and_loading_in_each_round(
    room: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as a cache of rows really asks for, over several orders."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    budget, (reading, asked), turns, trainings = Budget(10, 6), noted_reading(), 0, 6
    waves = [[Text((number, 1, 2), 1)] for number in range(budget.waves)]
    most = int(room * len(shard_of(waves[0]).to_bytes()))

    for training in range(trainings):
        cache = RowCache(WorkFolder([training]), waves, reading, most)
        for number in range(budget.rounds):
            order = np.random.default_rng([training, number]).permutation(budget.waves).tolist()
            for place, wave in enumerate(order):
                if cache.kept(wave) is None:
                    turns += 1
                    cache.read(order[place:])
    sizes = Waves(9000, 8000, 4000, most_waves=room)
    reads, loads = (
        reading_seconds(budget, each, sizes)
        for each in (Speeds(0, 1 / 9000, 0), Speeds(0, 0, 0, load=1))
    )
    assert 0.95 * len(asked) / trainings <= reads <= 1.35 * len(asked) / trainings
    assert 0.95 * turns / trainings <= loads <= 1.7 * turns / trainings
    whole = Speeds(1e-3, 1 / 9000, 2e-3, 20, 1)
    spared = forecast(budget, whole, sizes) - forecast(budget, whole, SIZES)
    assert spared == pytest.approx(reads + loads - budget.waves)
    assert reading_seconds(budget, whole, SIZES) == 0
    within = rounds_seconds(budget, whole, sizes) - training_seconds(budget, whole, sizes)
    assert within == pytest.approx(reads + loads)


def test_texts_that_are_here_take_no_time() -> None:
    here = replace(SIZES, written=7)
    saved = forecast(Budget(10, 5), QUICK, SIZES) - forecast(Budget(10, 5), QUICK, here)
    assert saved == pytest.approx(7 * 8000 * QUICK.write)
    assert forecast(Budget(2, 5), QUICK, here) < forecast(Budget(2, 5), QUICK, SIZES)
    # The time that they save goes into more of them.
    more = [budget_for_seconds(3600, SLOW_TARGET, each).waves for each in (SIZES, here)]
    assert more[1] > more[0]
