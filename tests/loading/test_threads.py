"""A busy machine: fewer threads are tried out, and used where they are quicker."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from fakes import eagle3, mtp
from fakes.matrix_heads import write_medusa
from fakes.pycode import load

from localspec.cli.demo_comparison import DemoComparison
from localspec.control.candidate import Candidate
from localspec.control.cost_profile import CostProfile
from localspec.conversation.events import Notice
from localspec.conversation.session import Session
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.errors import ModelLoadError
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.loading import calibration, config, equal_digits, threads
from localspec.loading.calibration import remembered
from localspec.loading.config import RuntimeConfig
from localspec.loading.matrix_heads import LoadedMatrixHead
from localspec.loading.threads import ThreadWatch, fit_threads

Make = Callable[..., KVSequence]


class Trials:
    """Stands for the machine: how busy it is, and the seconds of a token by threads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.busy, self.usual = 1.0, 4
        self.seconds = {1: 4e-3, 2: 3e-3, 3: 2e-3, 4: 5e-3}
        # Seconds of the first pass of all, if it is another than those after it.
        self.cold: float | None = None
        self.tried: list[int] = []
        # How often a load looked at the machine before it settled on a number.
        self.looks = 0
        patch.setattr(threads, "busy_cores", self._look)
        patch.setattr(calibration, "busy_cores", lambda: self.busy)
        patch.setattr(threads, "_SECONDS", 0.0)
        patch.setattr(threads, "seconds_of_pass", self._seconds)
        for module in (threads, config):
            patch.setattr(module, "threads_for", lambda _size: self.usual)

    def _look(self) -> float:
        self.looks += 1
        return self.busy

    def _seconds(self, target: KVSequence, _rows: int) -> float:
        count = threads_of(target.context)
        self.tried.append(count)
        return self.cold if self.cold and len(self.tried) == 1 else self.seconds[count]


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trials:
    """None of them is remembered from another test."""
    file = threads.cache_file
    monkeypatch.setattr(threads, "cache_file", lambda of, key: file(of, [str(tmp_path), *key]))
    return Trials(monkeypatch)


def test_fewer_threads_where_they_are_quicker(
    trials: Trials, make_context: Make, target_model: Model
) -> None:
    target = make_context(target_model, threads=4)
    target.extend([1, 2, 3])
    runtime, note = fit_threads(target, RuntimeConfig())
    assert trials.tried == [4, 3, *(4, 3), *(3, 4)]
    assert runtime == RuntimeConfig(most_threads=3)
    assert runtime.threads_of(target_model) == 3
    assert llama_cpp.llama_n_threads(target.context.handle) == 3
    assert target.tokens == []
    assert note == (
        "threads: 3, not 4: other programs keep 1.0 cores busy, and a token takes 2.0 ms with 3 "
        "and 5.0 ms with 4; threads sets the number"
    )


@pytest.mark.parametrize(("busy", "fewer"), [(0.5, 3), (1.3, 3), (1.5, 2), (9.0, 1)])
def test_a_thread_less_for_each_busy_core(
    trials: Trials, make_context: Make, target_model: Model, busy: float, fewer: int
) -> None:
    trials.busy = busy
    fit_threads(make_context(target_model), RuntimeConfig())
    assert set(trials.tried) == {4, fewer}


def test_a_trial_counts_for_loads_within_minutes(
    trials: Trials, make_context: Make, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(busy: float, kv_type: str = "f16") -> str:
        trials.busy, trials.tried = busy, []
        runtime = RuntimeConfig(kv_type=kv_type)
        target = make_context(target_model, threads=4)
        found, note = fit_threads(target, runtime)
        assert llama_cpp.llama_n_threads(target.context.handle) == (found.most_threads or 4)
        assert found == replace(runtime, most_threads=3 if note else None)
        return note or ""

    first = fitted(1.0)
    assert trials.tried and "measured" not in first
    again = fitted(1.2)
    took = "a token takes 2.0 ms with 3 and 5.0 ms with 4 (measured just now); threads sets"
    assert trials.tried == [] and took in again
    # What is busy at this moment only, where a thread less was quicker beside more.
    trials.seconds[3] = 6e-3
    assert not fitted(0.5) and trials.tried
    trials.seconds[3] = 2e-3
    assert fitted(1.2) and trials.tried
    # Beside more busy cores, with other options, and once it is old, passes are timed again.
    trials.seconds[2] = 5e-3
    assert not fitted(1.7) and set(trials.tried) == {2, 4}
    assert not fitted(1.7) and trials.tried == []
    assert fitted(1.0, kv_type="q8_0") and trials.tried
    now = time.time()
    for moment in (now + 601, now - 3600):  # a clock may be set back
        monkeypatch.setattr(threads.time, "time", lambda moment=moment: moment)
        assert fitted(1.0) and trials.tried


def test_the_usual_number_where_fewer_are_no_quicker(
    trials: Trials, make_context: Make, target_model: Model
) -> None:
    trials.seconds[3] = 4.9e-3
    target = make_context(target_model)
    assert fit_threads(target, RuntimeConfig()) == (RuntimeConfig(), None)
    assert llama_cpp.llama_n_threads(target.context.handle) == 4


def test_a_cold_first_pass_decides_nothing(
    trials: Trials, make_context: Make, target_model: Model
) -> None:
    trials.cold, trials.seconds = 1.0, {3: 1e-3, 4: 1e-3}
    assert fit_threads(make_context(target_model), RuntimeConfig()) == (RuntimeConfig(), None)


def test_a_clear_difference_ends_the_trial_after_the_fewest_rounds(
    trials: Trials, make_context: Make, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_SECONDS", 1e9)
    trials.seconds = {3: 1e-3, 4: 1.0}
    _, note = fit_threads(make_context(target_model), RuntimeConfig())
    assert note and len(trials.tried) == 6


@pytest.mark.parametrize(
    "runtime", [RuntimeConfig(threads=4), RuntimeConfig(most_threads=2), RuntimeConfig()]
)
def test_nothing_is_tried_out_when_told_or_idle(
    trials: Trials, make_context: Make, target_model: Model, runtime: RuntimeConfig
) -> None:
    if runtime == RuntimeConfig():
        trials.busy = 0.2
    assert fit_threads(make_context(target_model), runtime) == (runtime, None)
    assert trials.tried == []


def test_a_limit_that_changes_nothing_is_none(
    trials: Trials, make_context: Make, target_model: Model
) -> None:
    """So that costs measured without it are found."""
    limited = RuntimeConfig(most_threads=4)
    assert fit_threads(make_context(target_model), limited) == (RuntimeConfig(), None)


def test_all_models_of_an_engine_get_fewer_and_the_user_is_told(
    trials: Trials, target_path: Path, drafter_path: Path
) -> None:
    trials.usual = 2
    trials.seconds = {1: 1e-3, 2: 1.0}
    with load(target_path, drafter_path) as engine:
        assert engine.threads == 1
        (note,) = (each for each in engine.notes if each.startswith("threads"))
        assert note.startswith("threads: 1, not 2")
        contexts = [engine.slots.own.target, *engine.drafter_set.sequences.values()]
        counts = [llama_cpp.llama_n_threads(each.context.handle) for each in contexts]
        assert counts == [1, 1]
        # A larger cache for another text is computed with as many.
        engine.slots.own.target.context.resize(2)
        assert llama_cpp.llama_n_threads(engine.slots.own.target.context.handle) == 1


def test_the_next_load_computes_nothing_with_more(
    trials: Trials, target_path: Path, drafter_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caches are tried with passes, too, which take as long as those of the trial."""
    init, made = llama_cpp.llama_init_from_model, list[int]()

    def noted(model: Any, params: Any) -> Any:
        made.append(params.n_threads)
        return init(model, params)

    monkeypatch.setattr(llama_cpp, "llama_init_from_model", noted)
    trials.usual = 2
    trials.seconds = {1: 1e-3, 2: 1.0}
    for _ in range(2):
        made.clear()
        trials.tried.clear()
        trials.looks = 0
        with load(target_path, drafter_path) as engine:
            assert engine.threads == 1
        assert trials.looks == 1
    assert trials.tried == [] and set(made) == {1}


def test_what_is_compared_has_equally_many(
    trials: Trials, target_path: Path, drafter_path: Path
) -> None:
    trials.usual = 2
    trials.seconds[1] = 1e-3
    with DemoComparison(target_path, drafter_path) as comparison:
        assert [each.engine.threads for each in comparison.decodings] == [1, 1]
    assert trials.tried == [2, 1, *(2, 1), *(1, 2)]


# What becomes of the number of threads after the load.


class Looks:
    """Stands for BusyCores: each call is a look at a machine that is so busy."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.busy: float | None = 0.0
        self.pauses: list[float] = []
        patch.setattr(threads, "BusyCores", lambda: self)

    def mean(self, least_seconds: float) -> float | None:
        self.pauses.append(least_seconds)
        return self.busy


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_a_load_that_lasts_is_noticed_once(looks: Looks) -> None:
    watch = ThreadWatch(usual=4, present=4)

    def look(busy: float | None) -> float | None:
        looks.busy = busy
        return watch.look()

    assert [look(each) for each in (0.1, 1.0, 0.2, 1.0)] == [None] * 4
    assert look(1.1) == 1.1
    assert [look(each) for each in (1.0, 1.2, 0.9)] == [None] * 3
    # Another load asks for another number.
    assert [look(each) for each in (2.0, None, 2.1, 2.0)] == [None, None, 2.1, None]
    assert [look(each) for each in (0.0, 0.1, 0.0)] == [None, 0.1, None]
    # A decision is not revised at once.
    assert looks.pauses.count(threads._AFTER_DECISION) == 3
    assert looks.pauses[5] == threads._AFTER_DECISION > 5 * looks.pauses[4]


def threads_of(context: Context) -> int:
    """The threads that a context was told to use."""
    return context.params.threads


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts compute with one thread, whatever they are told: two may be very slow here."""

    init = llama_cpp.llama_init_from_model

    def with_one(model: Any, params: Any) -> Any:
        params.n_threads = params.n_threads_batch = 1
        return init(model, params)

    monkeypatch.setattr(llama_cpp, "llama_init_from_model", with_one)
    monkeypatch.setattr(llama_cpp, "llama_set_n_threads", lambda *_args: None)


@pytest.fixture
def quiet(
    one_thread: None,
    trials: Trials,
    looks: Looks,
    target_path: Path,
    drafter_path: Path,
) -> Iterator[Engine]:
    """An engine that was loaded with two threads, on a machine where one is quicker when busy."""
    trials.busy, trials.usual, trials.seconds = 0.0, 2, {1: 2e-3, 2: 7e-3}
    with load(target_path, drafter_path, context=256) as engine:
        assert (engine.threads, engine.notes) == (2, ())
        looks.busy = 1.0
        yield engine


def counts(engine: Engine) -> set[int]:
    """The threads of all contexts."""
    slots = engine.slots.all
    contexts = [
        each.context
        for slot in slots
        for each in (slot.target, *slot.loaded.drafter_set.sequences.values())
    ]
    return {threads_of(each) for each in contexts}


def write(engine: Engine) -> Result:
    return engine.generate("def f(x):", max_tokens=8, temperature=0, ignore_eos=True)


def test_fewer_threads_between_texts(quiet: Engine) -> None:
    first = write(quiet)
    assert quiet.threads == 2
    second = write(quiet)
    assert (quiet.threads, counts(quiet)) == (1, {1})
    assert second.token_ids == first.token_ids
    # Caches stay as they are: only the last token of the prompt is evaluated.
    assert second.stats.prompt_evaluated == 1
    (note,) = quiet.notes
    assert note.startswith("threads: 1, not 2: other programs keep 1.0 cores busy, and a token")


def test_the_usual_number_again_when_others_have_ended(quiet: Engine, looks: Looks) -> None:
    write(quiet), write(quiet)
    assert quiet.threads == 1
    looks.busy = 0.1
    write(quiet), write(quiet)
    assert (quiet.threads, counts(quiet)) == (2, {2})
    assert quiet.notes == (
        "threads: 2 again, the usual number: other programs keep 0.1 cores busy",
    )


def test_costs_of_the_old_number_are_forgotten_and_acceptance_is_not(
    quiet: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine may find that drafting lost time, and a further text starts anew then.
    monkeypatch.setattr(Candidate, "begin_text", lambda _candidate: None)
    write(quiet)
    loaded, costs = quiet.slots.own.loaded, quiet.pass_costs
    (policy,) = loaded.policies._adaptive.values()
    rates, budget = [each.acceptance_rates for each in policy.candidates], policy.loss_budget
    write(quiet)
    now = quiet.slots.own.loaded
    assert now.policies is loaded.policies and quiet.pass_costs is not costs
    assert policy._passes is quiet.pass_costs and policy.loss_budget is not budget
    assert [each.acceptance_rates for each in policy.candidates] == rates
    assert now.policies.costs
    for each in policy.candidates:
        assert each.cost is now.policies.costs.drafter(each.drafter.name)
    # Both are stored, each under its own number of threads.
    paths = {name: each.model.path for name, each in now.drafter_set.sequences.items()}
    stored = [remembered(quiet.model.path, paths, each.runtime) for each in (loaded, now)]
    assert stored == [loaded.costs, now.costs]
    assert loaded.runtime != now.runtime
    assert now.digits and now.digits == equal_digits.remembered(quiet.model.path, now.runtime)


@pytest.fixture(params=["eagle3", "medusa", "mtp"])
def with_head(
    request: pytest.FixtureRequest, one_thread: None, trials: Trials, looks: Looks, tmp_path: Path
) -> Iterator[Engine]:
    """As `quiet`, with a head that reads its target."""
    trials.busy, trials.usual, trials.seconds = 0.0, 2, {1: 2e-3, 2: 7e-3}
    folder, draft = tmp_path / "models", "mtp"
    folder.mkdir()
    if request.param == "mtp":
        target = mtp.write_target(folder / "target.gguf")
    else:
        target = eagle3.write_target(folder / "target.gguf")
        write = eagle3.write_head if request.param == "eagle3" else write_medusa
        draft = str(write(folder / "head.gguf"))
    with load(target, draft, context=256, gpu_layers=0) as engine:
        looks.busy = 1.0
        yield engine


def matrices_of(engine: Engine) -> list[LoadedMatrixHead]:
    return [each.matrices for each in engine.slots.own.loaded.drafters.drafters if each.matrices]


def test_a_head_is_measured_and_computed_with_the_new_number(
    with_head: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A head as small as its target may take as long, and is then not read again.
    monkeypatch.setattr(CostProfile, "is_plausible", True)
    prompt, options = [1, 5, 9], {"max_tokens": 8, "seed": 1, "ignore_eos": True}
    first = with_head.generate(prompt, **options)
    before = with_head.slots.own.loaded.costs
    second = with_head.generate(prompt, **options)
    now = with_head.slots.own.loaded
    assert (with_head.threads, counts(with_head)) == (1, {1})
    assert before and now.costs and now.policies.costs
    [name] = with_head.drafter_set.names
    assert now.costs.drafters.keys() == before.drafters.keys() == {name}
    assert now.policies.costs.drafter(name).first > 0
    # The trial was made with the snapshots of the texts, and stored under them.
    kept = with_head.slots.own.target.context.params.snapshots
    paths = {name: with_head.drafter_set.model_paths[0]}
    used = kept if with_head.slots.own.target.rollback is Rollback.BOUNDED else 0
    found = remembered(with_head.model.path, paths, now.runtime, snapshots=used)
    assert found == now.costs
    assert all(
        matrix.threads == each.threads == 1
        for each in matrices_of(with_head)
        for matrix in each._matrices.values()
    )
    assert second.token_ids == first.token_ids


def test_a_trial_without_a_change_leaves_a_head_s_threads(
    with_head: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise ModelLoadError("there is no memory left")

    monkeypatch.setattr(equal_digits, "measured", refuse)
    for _ in range(3):
        with_head.generate([1, 5, 9], max_tokens=2)
    assert (with_head.threads, counts(with_head)) == (2, {2})
    assert all(each.threads == 2 for each in matrices_of(with_head))


def test_never_in_a_text(quiet: Engine, looks: Looks) -> None:
    running = quiet.stream("def f(x):", max_tokens=4)
    next(running)
    seen = len(looks.pauses)
    write(quiet), write(quiet), write(quiet)
    assert quiet.threads == 2 and len(looks.pauses) == seen
    running.close()
    write(quiet), write(quiet)
    assert quiet.threads == 1


def test_never_in_an_answer_which_says_so(quiet: Engine, looks: Looks) -> None:
    with Session(quiet, max_tokens=8) as session, Session(quiet, max_tokens=8) as other:
        looks.busy = 0.0
        answer = session.send("def f(x):")
        looks.busy = 1.0
        next(answer)
        for _ in range(3):
            other.send("import os").result()
        assert quiet.threads == 2
        answer.result()
        other.send("import os").result()
        events = list(session.send("def g(x):"))
        assert quiet.threads == 1 and counts(quiet) == {1}
        lines = [each.line for each in events if isinstance(each, Notice)]
        assert [line[:17] for line in lines] == ["threads: 1, not 2"]
        assert not any(isinstance(each, Notice) for each in session.send("def h(x):"))
        # The other session has not said it yet.
        assert any(isinstance(each, Notice) for each in other.send("import re"))


def test_no_change_where_fewer_are_no_quicker(quiet: Engine, trials: Trials) -> None:
    trials.seconds = {1: 7e-3, 2: 2e-3}
    for _ in range(5):
        write(quiet)
    assert (quiet.threads, quiet.notes) == (2, ())
    assert trials.tried == [2, 1, *(2, 1), *(1, 2)]


def test_no_change_without_memory_for_a_trial(
    quiet: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise ModelLoadError("there is no memory left")

    monkeypatch.setattr(config, "_require_room", refuse)
    for _ in range(3):
        assert write(quiet).stop_reason == "length"
    assert (quiet.threads, counts(quiet)) == (2, {2})


def test_what_is_compared_keeps_its_number(quiet: Engine, looks: Looks) -> None:
    quiet.slots.threads_are_fixed = True
    seen = len(looks.pauses)
    for _ in range(3):
        write(quiet)
    assert quiet.threads == 2 and len(looks.pauses) == seen


@pytest.mark.parametrize("options", [{"threads": 2}, {"most_threads": 2}, {"reproducible": True}])
def test_a_number_that_was_named_or_that_digits_need_stays(
    one_thread: None, trials: Trials, looks: Looks, target_path: Path, options: dict[str, Any]
) -> None:
    trials.busy, trials.usual = 0.0, 2
    with load(target_path, "none", context=256, **options) as engine:
        looks.busy = 1.0
        for _ in range(3):
            write(engine)
        assert engine.threads == 2
        assert looks.pauses == []


def test_a_switch_starts_anew(quiet: Engine, drafter_path: Path) -> None:
    write(quiet), write(quiet)
    assert quiet.threads == 1
    quiet.switch(draft="suffix")
    assert quiet.threads == 1 and quiet.notes
    quiet.switch(drafter_path)
    assert (quiet.threads, quiet.notes) == (2, ())
