"""Stored forecasts are found for the same files, and for no others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.pycode import load

from localspec.control.acceptance import AcceptancePrior
from localspec.loading import acceptance_priors
from localspec.loading.acceptance_priors import BestSetting, StoredForecast
from localspec.utils.paths import cache_folder

RATES = {"small": 0.9, "suffix": 0.25}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "cache"))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "target.gguf", tmp_path / "small.gguf"
    for path in paths:
        path.write_bytes(path.name.encode())
    return paths


def stored(target: Path, *drafters: Path, temperature: float = 0.8) -> tuple[StoredForecast, Path]:
    plan = acceptance_priors.stored_forecast(
        target, drafters, temperature, RATES, BestSetting("small", "coupled", 3, 1.5)
    )
    return plan, acceptance_priors.store(target, drafters, plan)


def test_round_trip(pair: tuple[Path, Path]) -> None:
    plan, file = stored(*pair)
    assert file.parent == cache_folder("plans")
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    found = acceptance_priors.find(pair[0], pair[1:], 0.8)
    assert dict(found.rates) == RATES and found.ignored is None
    assert json.loads(file.read_text())["best"] == {
        "drafter": "small",
        "rule": "coupled",
        "depth": 3,
        "speed_up": 1.5,
    }
    assert plan.fingerprints[0] != plan.fingerprints[1]


def test_without_a_stored_forecast_nothing_is_reported(pair: tuple[Path, Path]) -> None:
    stored(*pair)
    target, drafter = pair
    others = (target, [], 0.8), (drafter, [target], 0.8), (target, [drafter], 0.0)
    for other in others:
        assert acceptance_priors.find(*other) == AcceptancePrior()


def touched(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def touch(file: Path) -> None:
        record = json.loads(file.read_text())
        change(record)
        file.write_text(json.dumps(record))

    return touch


@pytest.mark.parametrize(
    ("touch", "message"),
    [
        (lambda file: file.write_text("{"), "it cannot be read"),
        (lambda file: file.write_text("[]"), "it cannot be read"),
        (lambda file: file.write_bytes(b"\xff"), "it cannot be read"),
        (touched(lambda record: record.update(format=2)), "it cannot be read"),
        (touched(lambda record: record["rates"].update(small=2)), "it cannot be read"),
        (touched(lambda record: record["rates"].update(small="x")), "it cannot be read"),
        (touched(lambda record: record.pop("rates")), "it cannot be read"),
        (touched(lambda record: record["versions"].update(localspec="0.0")), "another version"),
    ],
)
def test_a_damaged_forecast_is_ignored_and_reported(
    pair: tuple[Path, Path], touch: Callable[[Path], None], message: str
) -> None:
    _, file = stored(*pair)
    touch(file)
    found = acceptance_priors.find(pair[0], pair[1:], 0.8)
    assert not found.rates
    assert found.ignored and message in found.ignored and "localspec plan" in found.ignored


@pytest.mark.parametrize("which", [0, 1])
def test_a_file_that_has_changed(pair: tuple[Path, Path], which: int) -> None:
    stored(*pair)
    pair[which].write_bytes(b"other")
    assert "a model file has changed" in str(acceptance_priors.find(pair[0], pair[1:], 0.8).ignored)


def test_auto_starts_from_it(target_path: Path, drafter_path: Path, tmp_path: Path) -> None:
    target = tmp_path / target_path.name
    shutil.copy(target_path, target)
    plan = acceptance_priors.stored_forecast(
        target, [drafter_path], 0.8, {drafter_path.stem: 0.125}, BestSetting("plain", None, None, 1)
    )
    acceptance_priors.store(target, [drafter_path], plan)
    options: dict[str, Any] = {"max_tokens": 1, "seed": 0}
    with load(target, drafter_path, threads=1, context=256) as engine:
        engine.generate("def f", temperature=0, **options)
        engine.generate("def f", temperature=0.8, depth=2, **options)
        engine.generate("def f", temperature=0.8, **options)
        assert engine.plan_ignored is None
        greedy, sampled = engine.slots.own.loaded.policies._adaptive.values()
    [[_, plain], [_, informed]] = greedy.candidates, sampled.candidates
    assert informed.acceptance_rates.pooled == 0.125 < plain.acceptance_rates.pooled
