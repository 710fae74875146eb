"""Acceptance rates are kept for the next run of the same pair."""

import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.lora import write_lora
from fakes.pycode import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.control.acceptance import BINS, DraftCounts, Tally
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.base_costs import WIDEST
from localspec.engine.engine import Engine
from localspec.loading import learnt_rates
from localspec.loading.acceptance_priors import BestSetting, store, stored_forecast
from localspec.loading.first_guesses import first_guesses
from localspec.utils.paths import cache_folder


@pytest.fixture
def pair(target_path: Path, drafter_path: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    # Engines that other tests have forgotten leave theirs; none is found later.
    gc.collect()
    shutil.rmtree(cache_folder("acceptance_rates"), ignore_errors=True)
    yield tuple(Path(shutil.copy(path, tmp_path)) for path in (target_path, drafter_path))  # type: ignore[misc]
    shutil.rmtree(cache_folder("acceptance_rates"), ignore_errors=True)


def policy_of(engine: Engine) -> AdaptivePolicy:
    [policy] = engine.slots.own.loaded.policies._adaptive.values()
    return policy


def find(pair: tuple[Path, Path], temperature: float = 0.8) -> float | None:
    found = learnt_rates.find(*pair, "coupled", temperature)
    return found.total.share if found else None


def counts(right: float, tried: float) -> DraftCounts:
    return DraftCounts(Tally(right, tried))


def test_the_same_temperature_has_one_record(pair: tuple[Path, Path]) -> None:
    learnt_rates.add(*pair, "coupled", 0, counts(30, 60))
    assert find(pair, 0.0) == 0.5


def test_counts_add_up_and_old_ones_fade(pair: tuple[Path, Path]) -> None:
    learnt_rates.add(*pair, "coupled", 0.8, counts(5, 7))
    assert find(pair) is None
    learnt_rates.add(*pair, "coupled", 0.8, counts(27, 33))
    assert find(pair) == 32 / 40
    assert find(pair, 0.7) is None and learnt_rates.find(*pair, "token", 0.8) is None
    learnt_rates.add(*pair, "coupled", 0.8, counts(1000, 10_000))
    learnt_rates.add(*pair, "coupled", 0.8, counts(512, 512))
    assert find(pair) == pytest.approx((1.0 + 0.1) / 2, abs=0.01)
    assert learnt_rates.find(*pair, "coupled", 0.8, way="in one pass") is None
    pair[1].write_bytes(b"another model")
    assert find(pair) is None
    pair[1].unlink()
    learnt_rates.add(*pair, "coupled", 0.8, counts(40, 40))
    assert find(pair) is None


@pytest.mark.parametrize("end", ["close", "switch"])
def test_the_next_run_starts_from_what_was_learnt(pair: tuple[Path, Path], end: str) -> None:
    target, drafter = pair
    with load(target, drafter, threads=1, context=256) as engine:
        engine.generate("def f", seed=1, temperature=0.8, max_tokens=1)
        [_, candidate] = policy_of(engine).candidates
        for right in (True, True, False, True) * 10:
            candidate.learn([5], [5 if right else 6])
        if end == "switch":
            engine.switch(draft="none")
    rate = find(pair)
    assert rate == 0.75
    with load(target, drafter, threads=1, context=256) as engine:
        engine.generate("def f", seed=1, temperature=0.8, max_tokens=1)
        [_, candidate] = policy_of(engine).candidates
        assert candidate.acceptance_rates.pooled == pytest.approx(rate)
        [expected] = candidate.acceptance_rates.chances(1)
        assert expected == pytest.approx(rate)


def test_texts_with_xtc_have_rates_of_their_own_which_are_not_kept(
    pair: tuple[Path, Path],
) -> None:
    def learn(right: bool, **options: float) -> None:
        engine.generate("def f", seed=1, temperature=0.8, max_tokens=1, **options)
        [_, candidate] = list(engine.slots.own.loaded.policies._adaptive.values())[-1].candidates
        for _ in range(40):
            candidate.learn([5], [5 if right else 6])

    with load(*pair, threads=1, context=256) as engine:
        learn(True)
        learn(False, xtc_probability=0.5, xtc_threshold=0.1)
        assert len(engine.slots.own.loaded.policies._adaptive) == 2
        engine.generate("def f", seed=1, max_tokens=1, xtc_probability=0.5, xtc_threshold=0.6)
        assert len(engine.slots.own.loaded.policies._adaptive) == 2  # above 0.5, XTC is off
    assert find(pair) == 1.0


@pytest.mark.parametrize("change", ["rope_scale", "lora"])
def test_nothing_is_kept_of_texts_with_other_rotations_or_adapters(
    change: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    values = {"rope_scale": 2, "lora": write_lora(tmp_path / "a.gguf", pair[0])}
    with load(*pair, threads=1, context=256, **{change: values[change]}) as engine:
        engine.generate("def f", seed=1, temperature=0.8, max_tokens=1)
        [_, candidate] = policy_of(engine).candidates
        for _ in range(40):
            candidate.learn([5], [6])
    assert find(pair) is None


shares = st.floats(0, 1).flatmap(
    lambda share: st.floats(0, 400).map(lambda tried: Tally(share * tried, tried))
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    total=st.floats(32, 400).map(lambda tried: Tally(0.5 * tried, tried)),
    positions=st.lists(shares, max_size=WIDEST),
    margins=st.lists(shares, min_size=BINS, max_size=BINS),
)
def test_what_is_kept_is_what_is_read(
    pair: tuple[Path, Path], total: Tally, positions: list[Tally], margins: list[Tally]
) -> None:
    run = DraftCounts(total, positions, margins)
    learnt_rates.forget(*pair, 0.8)
    learnt_rates.add(*pair, "coupled", 0.8, run)
    assert learnt_rates.find(*pair, "coupled", 0.8) == run


def test_earlier_runs_count_no_more_than_so_many_tokens(pair: tuple[Path, Path]) -> None:
    run = DraftCounts()
    for number in range(2000):
        run.add(number % 31, number % 3 > 0, number % 7)
    for _ in range(20):
        learnt_rates.add(*pair, "coupled", 0.8, run)
    found = learnt_rates.find(*pair, "coupled", 0.8)
    assert found and found.total.tried == pytest.approx(2000 + 512)
    [file] = cache_folder("acceptance_rates").iterdir()
    assert file.stat().st_size < 4096


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"right": 90, "tried": 40}',
        '{"right": 40, "tried": 90}',
        '{"right": 40, "tried": Infinity}',
        '{"right": 40, "tried": 90, "positions": [[1]], "margins": []}',
        '{"right": 40, "tried": 90, "positions": [], "margins": [[1, 2]]}',
        json.dumps({"right": 4, "tried": 90, "positions": [[1, 2]] * 99, "margins": [[0, 0]] * 10}),
        json.dumps({"right": 4, "tried": 90, "positions": [[2, -1]], "margins": [[0, 0]] * 10}),
    ],
)
def test_a_damaged_file_is_ignored_with_a_line_and_replaced(
    pair: tuple[Path, Path], content: str, caplog: pytest.LogCaptureFixture
) -> None:
    learnt_rates.add(*pair, "coupled", 0.8, counts(30, 60))
    [file] = cache_folder("acceptance_rates").iterdir()
    file.write_text(content)
    with caplog.at_level("INFO"):
        assert find(pair) is None
    [line] = caplog.messages
    assert "ignored" in line and file.name in line
    learnt_rates.add(*pair, "coupled", 0.8, counts(30, 60))
    assert find(pair) == 0.5


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
        learnt_rates.add(target, drafter, "coupled", 0.8, counts(30, 60))
        assert guess() == 0.5
        learnt_rates.forget(target, drafter, 0.8)
        assert guess() == 0.25
