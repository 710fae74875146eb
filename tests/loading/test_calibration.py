"""Costs are measured once and stored, and measured again when they may have changed."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

import pytest
from fakes.assistant import write_assistant
from fakes.assistant import write_target as write_gemma4
from fakes.mtp import write_target
from fakes.pycode import load

from localspec.control.cost_profile import CostProfile
from localspec.control.pass_costs import PassCosts
from localspec.control.recent_median import ENOUGH
from localspec.llama import pass_timing
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.rollback import SNAPSHOTS
from localspec.llama.sequence import KVSequence
from localspec.llama.shared_context import SharedContext
from localspec.loading import calibration, cost_measurement, loader
from localspec.loading.calibration import Measured, calibrate
from localspec.loading.config import RuntimeConfig
from localspec.loading.cost_measurement import (
    seconds_beside_text,
    seconds_in_one_pass,
    seconds_one_by_one,
)
from localspec.utils.busy_cores import BusyCores
from localspec.utils.paths import cache_folder

Make = Callable[..., KVSequence]


def one_by_one(cache: KVSequence) -> Measured:
    return Measured(cache.model.path, lambda: seconds_one_by_one(cache))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(BusyCores, "mean", lambda self, least=0: 0.0)
    return cache_folder("costs")


def test_it_is_measured_once(
    make_context: Make, target_model: Model, drafter_model: Model, cache: Path
) -> None:
    target, drafter = make_context(target_model), make_context(drafter_model)
    target.extend([1, 2, 3])
    first = calibrate(target, {"small": one_by_one(drafter)}, RuntimeConfig())
    assert target.tokens == [] and drafter.tokens == []
    assert {1, 2, 4, 8, 16} <= first.passes.keys()
    assert all(seconds > 0 for seconds in first.passes.values())
    *took, change = astuple(first.drafters["small"])
    assert all(seconds > 0 for seconds in took) and change == 0
    assert calibrate(target, {"small": one_by_one(drafter)}, RuntimeConfig()) == first
    assert len(list(cache.iterdir())) == 1
    # Other threads or another drafter are measured separately.
    calibrate(target, {"small": one_by_one(drafter)}, RuntimeConfig(threads=1))
    assert calibrate(target, {}, RuntimeConfig()).drafters == {}
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("busy", [0.1, 1.3])
def test_what_was_measured_on_a_busy_machine_is_measured_again_on_a_quiet_one(
    busy: float, make_context: Make, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_context(target_model)
    monkeypatch.setattr(BusyCores, "mean", lambda self, least=0: busy)
    first = calibrate(target, {}, RuntimeConfig())
    assert first.busy is (busy > 1)
    # The machine is as busy as it was.
    assert calibrate(target, {}, RuntimeConfig()) is not first
    assert calibrate(target, {}, RuntimeConfig()) == first
    monkeypatch.setattr(BusyCores, "mean", lambda self, least=0: 0.0)
    again = calibrate(target, {}, RuntimeConfig())
    assert not again.busy
    assert (again == first) is (busy < 1)
    assert calibrate(target, {}, RuntimeConfig()) == again


def test_a_pass_that_seems_slower_than_a_wider_one_is_measured_again(
    make_context: Make, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One moment of other programs would pad it for good."""
    calls: list[int] = []

    def seconds(_context: object, width: int) -> float:
        calls.append(width)
        # Slow passes are measured twice: both of width 4 meet another program.
        return width * (3.0 if width == 4 and calls.count(4) <= 2 else 1.0)

    monkeypatch.setattr(cost_measurement, "seconds_of_pass", seconds)
    passes = calibrate(make_context(target_model), {}, RuntimeConfig()).passes
    assert passes == {width: width for width in passes}
    assert calls.count(4) == 4 and calls.count(1) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"passes": {"1": "x"}}', '{"passes": {}}'])
def test_a_damaged_profile_is_measured_again(
    content: str, make_context: Make, target_model: Model, cache: Path
) -> None:
    target = make_context(target_model)
    calibrate(target, {}, RuntimeConfig())
    [file] = cache.iterdir()
    file.write_text(content)
    again = calibrate(target, {}, RuntimeConfig())
    assert 1 in again.passes
    assert json.loads(file.read_text())["passes"].keys() == {str(n) for n in again.passes}


def test_a_cache_that_cannot_be_written_is_no_error(
    make_context: Make, target_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    assert isinstance(calibrate(make_context(target_model), {}, RuntimeConfig()), CostProfile)


def test_measuring_stops_at_its_budget(
    make_context: Make, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_measurement, "_BUDGET", 0.0)
    assert calibrate(make_context(target_model), {}, RuntimeConfig()).passes.keys() == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("of_row", "widths"),
    [(0.03, [1, 4, 2, 8, 1, 4, 2, 8]), (0.08, [1, 4, 2, 8, 1, 4]), (1, [1, 4, 2, 8, 1])],
)
def test_the_wide_passes_of_a_slow_target_are_measured_once(
    of_row: float,
    widths: list[int],
    make_context: Make,
    target_model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, calls = [0.0], list[int]()

    def seconds(_context: object, width: int) -> float:
        calls.append(width)
        # The first pass after the load is slow.
        took = of_row * (2 + width / 4) * (3 if len(calls) == 1 else 1)
        now[0] += took
        return took

    target = make_context(target_model)
    monkeypatch.setattr(cost_measurement, "perf_counter", lambda: now[0])
    monkeypatch.setattr(cost_measurement, "seconds_of_pass", seconds)
    passes = calibrate(target, {}, RuntimeConfig()).passes
    assert calls == widths
    assert passes == pytest.approx({width: of_row * (2 + width / 4) for width in (1, 2, 4, 8)})


def test_a_small_context_is_measured_as_far_as_it_reaches(
    make_context: Make, target_model: Model
) -> None:
    target = make_context(target_model, n_ctx=6)
    assert max(calibrate(target, {}, RuntimeConfig()).passes) <= target.n_ctx


@pytest.mark.parametrize(("usual", "times"), [(0.001, 5), (0.1, 2)])
def test_a_first_pass_that_was_slow_does_not_count(usual: float, times: int) -> None:
    took = iter([3.0, *[usual] * 9])
    assert pass_timing.least_seconds(lambda: next(took)) == usual
    assert len([*took]) == 10 - times


@pytest.mark.parametrize(
    ("costs", "expected"), [((0.004, 0.0), 0.004 / 512), ((0.0, 0.001), 0.001)]
)
def test_reading_is_measured_with_many_tokens_where_few_are_quick(
    costs: tuple[float, float],
    expected: float,
    make_context: Make,
    drafter_model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU takes as long for few tokens as for many; on a CPU each token takes time."""
    of_pass, of_token = costs
    monkeypatch.setattr(
        cost_measurement, "_seconds_of_reading", lambda _context, count: of_pass + count * of_token
    )
    measured = seconds_one_by_one(make_context(drafter_model, n_ctx=600))
    assert measured.reading == pytest.approx(expected)


def test_a_drafter_slower_than_its_target_is_measured_again(
    make_context: Make, target_model: Model, drafter_model: Model, cache: Path
) -> None:
    """It would never draft, so the wrong cost would never be corrected."""
    target, drafter = make_context(target_model), make_context(drafter_model)
    calibrate(target, {"small": one_by_one(drafter)}, RuntimeConfig())
    [file] = cache.iterdir()
    record = json.loads(file.read_text())
    file.write_text(
        json.dumps(record | {"drafters": {"small": {"first": 9.0, "further": 9.0, "reading": 0.1}}})
    )
    assert (
        calibrate(target, {"small": one_by_one(drafter)}, RuntimeConfig()).drafters["small"].further
        < 1
    )


def test_a_wrong_profile_is_measured_again(cache: Path) -> None:
    with load(draft="suffix", threads=1):
        # A text might find it wrong, on a busy machine.
        [file] = cache.iterdir()
    record = json.loads(file.read_text())
    record["passes"] = {width: 100.0 * float(width) for width in record["passes"]}
    file.write_text(json.dumps(record))
    with load(draft="suffix", threads=1) as engine:
        engine.generate("def f(", max_tokens=20, temperature=0.0)
    assert not list(cache.iterdir())


DEAR = {1: 1.0, 4: 5.0, 40: 70.0}


def learn(passes: PassCosts | None) -> None:
    """Passes of four rows take as long as five plain ones; several texts share one of 40 rows."""
    assert passes
    for width in (1, 4, 1, 40, 1):
        for _ in range(ENOUGH):
            passes.learn(width, DEAR[width] * passes.seconds(1))
    assert passes.unpadded(4) == pytest.approx(5 * passes.seconds(1))


def run(end: str = "close", further: int = 0) -> None:
    """A run with passes that are dearer than in the profile. further: texts in other slots."""
    with load(draft="suffix", threads=1, context=64) as engine:
        engine.generate("def f(", max_tokens=1, temperature=0.0)
        slots = [engine.slots.open() for _ in range(further + 1)]
        for slot in slots[1:]:
            slot.target.extend(range(20, 30))
        learn(engine.pass_costs)
        if end == "switch":
            engine.switch(draft="none")
        engine.close()


def learnt_in(cache: Path) -> dict[int, float]:
    [file] = cache.iterdir()
    record = json.loads(file.read_text())
    return {int(rows): each / record["passes"]["1"] for rows, each in record["learnt"].items()}


@pytest.mark.parametrize("end", ["close", "switch"])
def test_the_next_run_starts_from_what_passes_took(end: str, cache: Path) -> None:
    run(end)
    [file] = cache.iterdir()
    before = file.read_text()
    assert learnt_in(cache)[4] == pytest.approx(5)
    with load(draft="suffix", threads=1, context=64) as engine:
        passes = engine.pass_costs
        assert passes and passes.unpadded(4) == pytest.approx(5 * passes.seconds(1))
    # Nothing was measured anew, and a run without a text changes nothing.
    assert file.read_text() == before


def test_other_drafters_of_a_target_start_from_it_too(drafter_path: Path) -> None:
    with load(draft="suffix", threads=1, context=64) as engine:
        engine.generate("def f(", max_tokens=1, temperature=0.0)
        learn(engine.pass_costs)
        engine.switch(draft=drafter_path)
        passes = engine.pass_costs
        assert passes and passes.unpadded(4) == pytest.approx(5 * passes.seconds(1))


def test_a_run_counts_once(cache: Path) -> None:
    """Also one whose engine is closed twice."""
    run()
    run()
    [file] = cache.iterdir()
    unseen = json.loads(file.read_text())["unseen"]
    assert unseen["4"] == 0 and unseen["8"] == 2


def test_nothing_is_kept_of_a_busy_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(draft="suffix", threads=1, context=64):
        pass
    monkeypatch.setattr(BusyCores, "mean", lambda self, least=0: 1.0)
    run()
    assert learnt_in(cache) == {}


def test_what_other_programs_used_before_a_text_hinders_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(draft="suffix", threads=1, context=64) as engine:
        used = [1.0]
        monkeypatch.setattr(
            engine.slots.own.loaded.cores, "mean", lambda: used.pop() if used else 0.0
        )
        engine.generate("def f(", max_tokens=1, temperature=0.0)
        learn(engine.pass_costs)
    assert learnt_in(cache)


@pytest.mark.parametrize(
    ("most", "further", "kept"), [(3, 0, False), (4, 0, True), (9, 1, False), (10, 1, True)]
)
def test_nothing_is_kept_of_long_texts(
    most: int, further: int, kept: bool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_LONG_TEXT", most)
    run(further=further)
    assert bool(learnt_in(cache)) is kept


def test_what_cannot_be_kept_hinders_no_close(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise OSError(24, "Too many open files")

    engine = load(draft="suffix", threads=1, context=64)
    model = engine.model
    monkeypatch.setattr(BusyCores, "mean", fail)
    engine.close()
    assert model._handle is None


@pytest.mark.parametrize(
    "part",
    [
        {"learnt": {"1": 0.0}},
        {"learnt": {"4": -1.0}},
        {"learnt": {"1": 1.0, "99": 2.0}},
        {"learnt": 3},
        {"unseen": {"4": "x"}},
        {"unseen": [4]},
    ],
)
def test_damaged_learnt_costs_are_measured_again(
    part: dict[str, object], make_context: Make, target_model: Model, cache: Path
) -> None:
    target = make_context(target_model)
    calibrate(target, {}, RuntimeConfig())
    [file] = cache.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | part))
    assert calibrate(target, {}, RuntimeConfig()).learnt == {}
    assert json.loads(file.read_text())["learnt"] == {}


def test_one_file_that_drafts_in_two_ways_is_measured_twice(
    make_context: Make, target_model: Model, drafter_model: Model, cache: Path
) -> None:
    target, drafter = make_context(target_model), make_context(drafter_model)
    in_one_pass = Measured(
        drafter.model.path, lambda: seconds_in_one_pass(drafter), way="in one pass"
    )
    usual = calibrate(target, {"small": one_by_one(drafter)}, RuntimeConfig())
    other = calibrate(target, {"small": in_one_pass}, RuntimeConfig())
    assert drafter.tokens == []
    assert len(list(cache.iterdir())) == 2
    # A further token is a row, not a pass.
    assert 0 <= other.drafters["small"].further < usual.drafters["small"].further
    assert other.drafters["small"].first > 0
    calibration.forget(target, {"small": in_one_pass}, RuntimeConfig())
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("kept", [0, SNAPSHOTS])
def test_passes_with_snapshots_are_measured_separately(
    tmp_path: Path, cache: Path, kept: int
) -> None:
    path, other = write_target(tmp_path / "hybrid.gguf", heads=0), SNAPSHOTS - kept
    with Model(path, ON_PROCESSOR) as model, cache_of(model, snapshots=kept) as target:
        found = calibrate(target, {}, RuntimeConfig())
        for snapshots, expected in {kept: found, None: found, other: None}.items():
            stored = calibration.remembered(path, {}, RuntimeConfig(), snapshots=snapshots)
            assert stored == expected
        calibration.forget(target, {}, RuntimeConfig())
    assert not list(cache.iterdir())


def test_attention_has_one_profile_whatever_snapshots_were_asked_for(
    target_model: Model, cache: Path
) -> None:
    for snapshots in (0, SNAPSHOTS):
        with cache_of(target_model, snapshots=snapshots) as target:
            calibrate(target, {}, RuntimeConfig())
    assert len(list(cache.iterdir())) == 1


def cache_of(model: Model, *, snapshots: int) -> closing[KVSequence]:
    return closing(single_sequence(model, ContextParams(n_ctx=128, threads=1, snapshots=snapshots)))


@pytest.mark.parametrize("text", [[], [1, 30, 40]], ids=["empty", "some"])
def test_a_head_that_reads_its_targets_cache_leaves_the_text(
    tmp_path: Path, text: list[int]
) -> None:
    path = write_gemma4(tmp_path / "target.gguf"), write_assistant(tmp_path / "assistant.gguf")
    with (
        Model(path[0], ON_PROCESSOR) as model,
        Model(path[1], ON_PROCESSOR, mtp=True) as head,
        cache_of(model, snapshots=0) as target,
    ):
        shared = SharedContext(head, target=target.context, threads=1)
        place = shared.sequence_beside(target)
        target.set_tokens(text)
        found = seconds_beside_text(place)
        assert (target.tokens, place.tokens) == (text, [])
        assert target.memory.length == place.cells == len(text)
    # Nothing is read, and every token takes one pass.
    assert found.first == found.further > 0 == found.reading
