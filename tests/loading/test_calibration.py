"""What passes take is measured once, remembered, and measured again when it may be otherwise."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.engine.engine import load
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.loading import calibration as pace_module
from localspec.loading.calibration import CostProfile, pace
from localspec.loading.config import RuntimeConfig
from localspec.utils.paths import cache_folder

Make = Callable[..., Context]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return cache_folder("pace")


def test_it_is_measured_once(
    make_context: Make, target_model: Model, drafter_model: Model, cache: Path
) -> None:
    target, drafter = make_context(target_model), make_context(drafter_model)
    target.extend([1, 2, 3])
    first = pace(target, drafter, RuntimeConfig())
    assert target.tokens == [] and drafter.tokens == []
    assert {1, 2, 4, 8, 16} <= first.target.keys()
    assert all(seconds > 0 for seconds in first.target.values())
    assert first.drafter and all(seconds > 0 for seconds in first.drafter)
    assert pace(target, drafter, RuntimeConfig()) == first
    assert len(list(cache.iterdir())) == 1
    # Other threads, or another drafter, are another matter.
    pace(target, drafter, RuntimeConfig(threads=1))
    assert pace(target, None, RuntimeConfig()).drafter is None
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", '{"target": {"1": "x"}}', '{"target": {}}'])
def test_what_cannot_be_read_is_measured_again(
    content: str, make_context: Make, target_model: Model, cache: Path
) -> None:
    target = make_context(target_model)
    pace(target, None, RuntimeConfig())
    [file] = cache.iterdir()
    file.write_text(content)
    again = pace(target, None, RuntimeConfig())
    assert 1 in again.target
    assert json.loads(file.read_text())["target"].keys() == {str(n) for n in again.target}


def test_a_cache_that_cannot_be_written_is_no_error(
    make_context: Make, target_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    assert isinstance(pace(make_context(target_model), None, RuntimeConfig()), CostProfile)


def test_measuring_stops_at_its_budget(
    make_context: Make, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace_module, "_BUDGET", 0.0)
    assert pace(make_context(target_model), None, RuntimeConfig()).target.keys() == {1, 4}


def test_a_small_context_is_measured_as_far_as_it_reaches(
    make_context: Make, target_model: Model
) -> None:
    target = make_context(target_model, n_ctx=6)
    assert max(pace(target, None, RuntimeConfig()).target) <= target.n_ctx


@pytest.mark.parametrize(("usual", "times"), [(0.001, 5), (0.1, 2)])
def test_a_first_pass_that_was_slow_does_not_count(usual: float, times: int) -> None:
    took = iter([3.0, *[usual] * 9])
    assert pace_module._typical(lambda: next(took)) == usual
    assert len([*took]) == 10 - times


@pytest.mark.parametrize(
    ("costs", "expected"), [((0.004, 0.0), 0.004 / 512), ((0.0, 0.001), 0.001)]
)
def test_reading_is_priced_by_the_most_that_is_read_at_once(
    costs: tuple[float, float],
    expected: float,
    make_context: Make,
    drafter_model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU takes as long for few tokens as for many; a CPU by the token."""
    of_pass, of_token = costs
    monkeypatch.setattr(
        pace_module, "_seconds_of_reading", lambda _context, count: of_pass + count * of_token
    )
    _, _, reading = pace_module._drafter(make_context(drafter_model, n_ctx=600))
    assert reading == pytest.approx(expected)


def test_a_drafter_dearer_than_its_target_is_measured_again(
    make_context: Make, target_model: Model, drafter_model: Model, cache: Path
) -> None:
    """It would never draft, so that nobody would find out that it is not so."""
    target, drafter = make_context(target_model), make_context(drafter_model)
    pace(target, drafter, RuntimeConfig())
    [file] = cache.iterdir()
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"drafter": [9.0, 9.0, 0.1]}))
    assert pace(target, drafter, RuntimeConfig()).drafter_cost().further < 1


def test_what_proved_wrong_is_measured_again(cache: Path) -> None:
    with load(draft="suffix", threads=1) as engine:
        engine.generate("def f(", max_tokens=20)
    [file] = cache.iterdir()
    record = json.loads(file.read_text())
    record["target"] = {width: 100.0 * float(width) for width in record["target"]}
    file.write_text(json.dumps(record))
    with load(draft="suffix", threads=1) as engine:
        engine.generate("def f(", max_tokens=20)
    assert not list(cache.iterdir())
