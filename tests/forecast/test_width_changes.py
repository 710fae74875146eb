"""On a GPU a change of the rows makes two passes longer; forecasts measure it and know of it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.pycode import load
from fakes.slow_changes import SlowChanges

from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.drafter_cost import DrafterCost
from localspec.control.width_changes import UNSETTLED
from localspec.forecast import forecast, timing
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.simulation import Decodes, cost_model
from localspec.forecast.timing import StepCosts, measure_costs
from localspec.llama.model import Model

STEADY = {1: 1.0, 2: 1.1, 4: 1.4, 8: 2.0}


def test_the_second_pass_behind_a_change_takes_longest() -> None:
    on_gpu = Decodes(StepCosts(STEADY, 2.0, 0.0, {}, UNSETTLED))
    assert [on_gpu.seconds(rows) for rows in (4, 4, 4, 1, 4, 4, 4)] == pytest.approx(
        [1.9, 2.9, 1.4, 1.5, 1.9, 2.9, 1.4]
    )
    on_cpu = Decodes(StepCosts(STEADY, 0.3, 0.0, {}))
    assert [on_cpu.seconds(rows) for rows in (4, 4, 1, 1)] == pytest.approx([1.7, 1.4, 1.3, 1.0])


def test_policies_know_of_changes_on_a_gpu_only() -> None:
    assert cost_model(StepCosts(STEADY, 2.0, 0.0, {}, UNSETTLED)).passes.keeps_width
    assert not cost_model(StepCosts(STEADY, 0.3, 0.0, {})).passes.keeps_width
    drafters = {"drafter": DrafterCost(0.1, 0.1, 0.01, change=3.0)}
    known = cost_model(StepCosts(STEADY, 2.0, 0.0, drafters, UNSETTLED))
    assert known.drafter("drafter").catch_up_seconds(12) == pytest.approx(3.1)


def test_changes_of_drafters_are_those_measured_at_load() -> None:
    costs = StepCosts(STEADY, 2.0, 0.0, {"one": DrafterCost(0.1), "two": DrafterCost(0.2)})
    seconds = {name: DrafterSeconds(0.1, 0.1, 0.01, change=3.0) for name in ("one", "three")}
    forecast._add_changes(costs, CostProfile(STEADY, seconds))
    assert [costs.drafters[name].change for name in ("one", "two")] == [3.0, 0.0]
    forecast._add_changes(costs, None)


@pytest.mark.parametrize("offloaded", [False, True])
def test_passes_are_measured_once_they_have_settled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, offloaded: bool
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    more = (0.0004, 0.0016) if offloaded else (0.0003,)
    seconds = SlowChanges(lambda rows: 0.001 * (1 + rows / 10), more)
    monkeypatch.setattr(timing, "_pass_seconds", lambda *where: seconds(where[-1]))
    with load(draft="none", threads=1, context=256) as engine:
        monkeypatch.setattr(Model, "is_offloaded", property(lambda _self: offloaded), raising=False)
        prompt = engine.model.tokenize("def f(x):\n    return")
        result = engine.generate(prompt, max_tokens=24, ignore_eos=True, temperature=0)
        sampler = SimpleNamespace(prefix=lambda _tokens: None)
        answer = RecordedAnswer(prompt, result.token_ids, 24, sampler, result.stats)  # type: ignore[arg-type]
        found = measure_costs(engine.slots.own.target, None, (), [answer])
    assert found.unsettled == (UNSETTLED if offloaded else 1)
    assert found.passes[8] / found.passes[4] == pytest.approx(1.8 / 1.4)
    assert found.switch / found.passes[4] == pytest.approx(sum(more) / 0.0014, rel=0.01)
