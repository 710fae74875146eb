"""What an engine does where its models are on a GPU; here they only say that they are."""

from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from fakes.noted_passes import NotedPass, note_passes
from fakes.prompts import PROMPTS
from fakes.pycode import PYCODE, load
from fakes.slow_changes import SlowChanges

from localspec.control.cost_profile import CostProfile
from localspec.control.pass_costs import PassCosts
from localspec.control.width_changes import UNSETTLED
from localspec.llama import pass_timing
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import Placement
from localspec.loading import cost_measurement, loaded_drafter, threads
from localspec.loading.config import RuntimeConfig, threads_for


@pytest.fixture(autouse=True)
def offloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    always = property(lambda _self: True, lambda _self, _value: None)
    monkeypatch.setattr(Model, "is_offloaded", always, raising=False)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[NotedPass]:
    return note_passes(monkeypatch)


def with_change(change: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let passes on this GPU take so many plain passes longer when their rows change."""
    costs = {1: 1e-3, 2: 1.1e-3, 4: 1.3e-3, 8: 1.8e-3, 16: 2.2e-3}
    profile = CostProfile(costs, change=1e-3 * change)
    monkeypatch.setattr(cost_measurement, "_of_gpu", lambda _target: profile)


@pytest.mark.parametrize("depth", [3, None])
def test_equal_passes_are_alike(
    passes: list[NotedPass], monkeypatch: pytest.MonkeyPatch, depth: int | None
) -> None:
    """The same rows, and the same number of them with logits: else a graph is built anew."""
    with_change(5.0, monkeypatch)
    expected = None
    for draft in ("none", "auto"):
        with load(draft=draft, threads=1, context=512) as engine:
            engine.generate(PROMPTS[0], max_tokens=2, depth=depth)
            passes.clear()
            result = engine.generate(PROMPTS[0], max_tokens=96, depth=depth, temperature=0)
            expected = expected or result.token_ids
            assert result.token_ids == expected
            seen = list(passes)
    target = [(rows, wanted) for path, rows, wanted in seen if path == PYCODE.target]
    assert all(rows == wanted for rows, wanted in target)
    if depth:
        assert any(record.rows > 1 + record.verified for record in result.stats.records)
        assert result.stats.accepted > 0


@pytest.mark.parametrize("cuda", [True, False])
def test_a_draft_model_draws_every_token_in_a_pass_of_two_rows_on_cuda(
    passes: list[NotedPass], monkeypatch: pytest.MonkeyPatch, cuda: bool
) -> None:
    monkeypatch.setattr(loaded_drafter, "captures_graphs", lambda _placement: cuda)
    with_change(0.0, monkeypatch)
    with load(draft=str(PYCODE.drafter), threads=1, context=512) as engine:
        engine.generate(PROMPTS[0], max_tokens=2, depth=3)
        passes.clear()
        result = engine.generate(PROMPTS[0], max_tokens=64, depth=3, temperature=0)
    drawn = Counter(
        (rows, wanted) for path, rows, wanted in passes if path == PYCODE.drafter and rows < 4
    )
    assert result.stats.drafted > 30
    assert set(drawn) == {(2, 1)} if cuda else drawn[1, 1] > 30


def test_each_text_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt before it was another pass, and so were those of other texts."""
    with_change(2.0, monkeypatch)
    begun = list[PassCosts]()
    monkeypatch.setattr(PassCosts, "begin_text", lambda self: begun.append(self))
    with load(draft="auto", threads=1, context=256) as engine:
        for depth in (None, 3, 0):
            engine.generate(PROMPTS[0], max_tokens=4, depth=depth)
        assert begun == [engine.pass_costs] * 3


def test_passes_are_measured_behind_others_as_wide(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = SlowChanges(lambda rows: 0.001 * (1 + rows / 10), (0.0004, 0.0016))
    monkeypatch.setattr(cost_measurement, "seconds_of_pass", lambda _context, rows: seconds(rows))
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        found = cost_measurement.costs_of_target(context)
        assert found.passes[1] == pytest.approx(0.0011)
        assert found.passes[8] == pytest.approx(0.0018)
        assert found.change == pytest.approx(0.002)
        assert len(found.passes) == len(cost_measurement._WIDTHS)
        monkeypatch.setattr(
            cost_measurement, "seconds_of_pass", lambda _context, rows: 0.001 * rows
        )
        assert cost_measurement.costs_of_target(context).change == 0.0


def test_a_draft_model_pays_for_longer_backlogs(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = SlowChanges(lambda _rows: 0.001, (0.003, 0.005))
    monkeypatch.setattr(cost_measurement, "seconds_of_pass", lambda _context, rows: seconds(rows))
    monkeypatch.setattr(cost_measurement, "_reading", lambda _context: 0.0001)
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        found = cost_measurement.seconds_one_by_one(context)
    assert (found.further, found.change) == (pytest.approx(0.001), pytest.approx(0.01))
    cost = found.cost({1: 0.01, 4: 0.02})
    assert [cost.catch_up_seconds(backlog) for backlog in (1, 2)] == [0.0, 0.0]
    assert cost.catch_up_seconds(6) == pytest.approx(0.01 + 4 * 0.0001)
    # What was learnt of reading has no change in it.
    cost.learn_first(cost.first + 0.01 + 30 * 0.0002, 32)
    assert cost.catch_up_seconds(32) == pytest.approx(0.01 + 30 * 0.0001)
    for _ in range(9):
        cost.learn_first(cost.first + 0.01 + 30 * 0.0002, 32)
    assert cost.catch_up_seconds(32) == pytest.approx(0.01 + 30 * 0.0002)


def test_a_slow_target_is_measured_at_a_few_widths(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_measurement, "_BUDGET", 0.0)
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        assert set(cost_measurement.costs_of_target(context).passes) == {1, 2, 4, 8}


def test_changes_are_not_measured_where_passes_take_long(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where most layers are on the processor: that would take minutes."""
    taken = []

    def seconds(_context: object, rows: int) -> float:
        taken.append(rows)
        return 0.2 * rows

    for module in (pass_timing, cost_measurement):
        monkeypatch.setattr(module, "seconds_of_pass", seconds)
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        found = cost_measurement.costs_of_target(context)
    assert found.change == 0.0 and found.passes[1] == 0.2
    assert len(taken) < 4 * len(found.passes) + UNSETTLED + 2


def test_compiling_kernels_is_no_part_of_a_pass(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a slow GPU neither; Vulkan does that in the first pass of each width."""
    now, compiled = [0.0], set[int]()

    def seconds(_context: object, rows: int) -> float:
        took = 0.1 * (1 + rows / 10) + (0.0 if rows in compiled else 1.0)
        compiled.add(rows)
        now[0] += took
        return took

    monkeypatch.setattr(cost_measurement, "perf_counter", lambda: now[0])
    for module in (pass_timing, cost_measurement):
        monkeypatch.setattr(module, "seconds_of_pass", seconds)
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        found = cost_measurement.costs_of_target(context).passes
    assert found == pytest.approx({rows: 0.1 * (1 + rows / 10) for rows in (1, 2, 4, 8)})


def test_a_gpu_that_is_slow_at_first_is_measured_again(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, taken = SlowChanges(lambda rows: 0.001 * (1 + rows / 10), (0.0004, 0.0016)), count()
    monkeypatch.setattr(
        cost_measurement,
        "seconds_of_pass",
        lambda _context, rows: seconds(rows) * (3 if next(taken) < 25 else 1),
    )
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        found = cost_measurement.costs_of_target(context)
    assert found.change == pytest.approx(0.002)
    assert all(
        took == pytest.approx(0.001 * (1 + rows / 10)) for rows, took in found.passes.items()
    )


def test_what_a_change_costs_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    with_change(2.0, monkeypatch)
    with load(draft="auto", threads=1, context=256) as engine:
        assert engine.pass_costs and engine.pass_costs.keeps_width
    monkeypatch.setattr(cost_measurement, "_of_gpu", lambda _target: pytest.fail("measured again"))
    with load(draft="auto", threads=1, context=256) as engine:
        assert engine.pass_costs and engine.pass_costs.keeps_width


@pytest.mark.parametrize(
    "placement, threads, expected",
    [
        (Placement(), None, 1),
        (Placement(gpu_layers=-1), None, 1),
        (Placement(), 3, 3),
        (Placement(gpu_layers=2), None, threads_for(1 << 40)),
        (Placement(cpu_moe=1), None, threads_for(1 << 40)),
    ],
)
def test_one_thread_is_enough_where_all_layers_are_on_a_gpu(
    target_model: Model,
    monkeypatch: pytest.MonkeyPatch,
    placement: Placement,
    threads: int | None,
    expected: int,
) -> None:
    monkeypatch.setattr(target_model, "placement", placement)
    monkeypatch.setattr(target_model, "size", 1 << 40)
    assert RuntimeConfig(placement=placement, threads=threads).threads_of(target_model) == expected


def test_other_programs_do_not_change_the_one_thread(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_model, "size", 1 << 40)
    monkeypatch.setattr(threads, "threads_for", lambda _size: 16)
    monkeypatch.setattr(threads, "busy_cores", lambda: pytest.fail("looked at"))
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        runtime = RuntimeConfig()
        assert threads.fit_threads(context, runtime) == (runtime, None)
