"""Acceptance rates are kept for the next run of the same pair."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.pycode import load

from localspec.control.acceptance import Tally
from localspec.control.adaptive import AdaptivePolicy
from localspec.engine.engine import Engine
from localspec.loading import learnt_rates
from localspec.loading.acceptance_priors import BestSetting, store, stored_forecast
from localspec.loading.first_guesses import first_guesses
from localspec.utils.paths import cache_folder


@pytest.fixture
def pair(target_path: Path, drafter_path: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    yield tuple(Path(shutil.copy(path, tmp_path)) for path in (target_path, drafter_path))  # type: ignore[misc]
    shutil.rmtree(cache_folder("acceptance_rates"), ignore_errors=True)


def policy_of(engine: Engine) -> AdaptivePolicy:
    [policy] = engine.slot.loaded.policies._adaptive.values()
    return policy


def find(pair: tuple[Path, Path], temperature: float = 0.8) -> float | None:
    return learnt_rates.find(*pair, "coupled", temperature)


def test_counts_add_up_and_old_ones_fade(pair: tuple[Path, Path]) -> None:
    learnt_rates.add(*pair, "coupled", 0.8, Tally(12, 16))
    assert find(pair) is None
    learnt_rates.add(*pair, "coupled", 0.8, Tally(20, 24))
    assert find(pair) == 32 / 40
    assert find(pair, 0.7) is None and learnt_rates.find(*pair, "token", 0.8) is None
    learnt_rates.add(*pair, "coupled", 0.8, Tally(1000, 10_000))
    learnt_rates.add(*pair, "coupled", 0.8, Tally(512, 512))
    assert find(pair) == pytest.approx((1.0 + 0.1) / 2, abs=0.01)
    pair[1].write_bytes(b"another model")
    assert find(pair) is None
    pair[1].unlink()
    learnt_rates.add(*pair, "coupled", 0.8, Tally(40, 40))
    assert find(pair) is None


@pytest.mark.parametrize("end", ["close", "switch"])
def test_the_next_run_starts_from_what_was_learnt(pair: tuple[Path, Path], end: str) -> None:
    target, drafter = pair
    with load(target, drafter, threads=1, context=256) as engine:
        engine.generate("def f", seed=1, temperature=0.8, max_tokens=1)
        [candidate] = policy_of(engine).candidates
        for right in (True, True, False, True) * 10:
            candidate.learn([5], [5 if right else 6])
        if end == "switch":
            engine.switch(draft="none")
    rate = find(pair)
    assert rate == 0.75
    with load(target, drafter, threads=1, context=256) as engine:
        engine.generate("def f", seed=1, temperature=0.8, max_tokens=1)
        [candidate] = policy_of(engine).candidates
        assert candidate.acceptance_rates.pooled == pytest.approx(rate)


def test_of_several_guesses_the_best_founded_counts(pair: tuple[Path, Path]) -> None:
    target, drafter = pair
    with load(target, drafter, threads=1, context=256) as engine:
        drafter_set = engine.drafter_set

        def guess() -> float:
            return first_guesses(target, drafter_set, "coupled", 0.8).rates[drafter.stem]

        assert guess() == pytest.approx(0.7)  # what is usual for draft models
        plan = stored_forecast(
            target, [drafter], 0.8, {drafter.stem: 0.25}, BestSetting("plain", None, None, 1)
        )
        store(target, [drafter], plan)
        assert guess() == 0.25
        learnt_rates.add(target, drafter, "coupled", 0.8, Tally(30, 60))
        assert guess() == 0.5
        learnt_rates.forget(target, [drafter], 0.8)
        assert guess() == 0.25
