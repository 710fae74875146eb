"""Drawing ahead with real models and real threads: the text is that of plain decoding."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import llama_cpp
import pytest
from fakes import pycode
from fakes.ahead import give_each_model_a_device

import localspec
from localspec.cli.generate_output import decision_line, stats_line
from localspec.control.explanation import Explanation
from localspec.conversation.session import Session
from localspec.engine import meanwhile
from localspec.errors import LocalspecError, WorkerError
from localspec.llama import devices as devices_here
from localspec.llama.compute_thread import OwnThread
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.placement import Placement
from localspec.loading.drawing_ahead import devices_of
from localspec.models.registry import bundled

CHAT = [{"role": "user", "content": "How do I list files by size?"}]
CODE = "def read_lines(path):\n    with open(path) as file:\n"
LENGTH = 32
Load = Callable[..., localspec.Engine]


def chat_engine(**options: Any) -> localspec.Engine:
    return localspec.load(reproducible=True, **options)


def code_engine(**options: Any) -> localspec.Engine:
    return pycode.load(reproducible=True, **options)


# By name: how the pair is loaded, its drafter, and a prompt.
PAIRS: dict[str, tuple[Load, str, Any]] = {
    "bundled": (chat_engine, str(bundled().drafter), CHAT),
    "pycode": (code_engine, str(pycode.PYCODE.drafter), CODE),
}


@pytest.fixture
def own_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    give_each_model_a_device(monkeypatch)


@pytest.fixture
def engine(own_devices: None) -> Iterator[localspec.Engine]:
    load, drafter, _ = PAIRS["pycode"]
    with load(draft=drafter) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    """The texts of pycode by seed."""
    with code_engine(draft="none") as engine:
        return [written(engine, CODE, seed) for seed in range(4)]


def written(engine: localspec.Engine, prompt: Any, seed: int, **options: Any) -> list[int]:
    return list(result(engine, prompt, seed, **options).token_ids)


def result(engine: localspec.Engine, prompt: Any, seed: int, **options: Any) -> Any:
    return engine.generate(prompt, max_tokens=LENGTH, seed=seed, ignore_eos=True, **options)


def drafter_of(engine: localspec.Engine) -> Model:
    member = engine.drafter_set.members[-1]
    assert member.sequence
    return member.sequence.model


def thread_of(engine: localspec.Engine) -> OwnThread:
    thread = drafter_of(engine).thread
    assert thread
    return thread


@pytest.mark.usefixtures("own_devices")
@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_text_is_that_of_plain_decoding(pair: str, temperature: float) -> None:
    load, drafter, prompt = PAIRS[pair]
    with load(draft="none") as engine:
        texts = [written(engine, prompt, seed, temperature=temperature) for seed in range(3)]
    drawn = used = accepted = drafted = 0
    with load(draft=drafter) as engine:
        for depth in (2, 5, None):
            for seed, text in enumerate(texts):
                found = result(engine, prompt, seed, temperature=temperature, depth=depth)
                assert found.token_ids == text
                drawn += found.stats.drafted_ahead
                used += found.stats.used_ahead
                accepted += found.stats.accepted
                drafted += found.stats.drafted
    assert 0 < used < drawn
    assert 0 < accepted < drafted


def test_a_text_may_be_closed_at_any_token(
    engine: localspec.Engine, plain: list[list[int]]
) -> None:
    for stop in range(1, 12):
        seed = stop % 4
        with engine.stream(CODE, max_tokens=LENGTH, seed=seed, ignore_eos=True, depth=3) as running:
            found = [next(running).id for _ in range(stop)]
        assert found == plain[seed][:stop]
    assert written(engine, CODE, 0, depth=3) == plain[0]


@pytest.mark.parametrize("where", ["target", "drafter"])
def test_an_interrupt_waits_for_the_thread(
    engine: localspec.Engine, plain: list[list[int]], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Ctrl-C reaches the calling thread while the library computes, in the target or in both."""
    decode, thread = llama_cpp.llama_decode, thread_of(engine)
    computing: list[int] = []
    for passes in (1, 2, 5):
        left = [passes]

        def interrupted(handle: Any, batch: Any, left: list[int] = left) -> int:
            here = threading.get_ident()
            computing.append(here)
            try:
                status = int(decode(handle, batch))
            finally:
                computing.remove(here)
            concerned = thread.is_current == (where == "drafter")
            left[0] -= concerned
            if concerned and not left[0]:
                raise KeyboardInterrupt
            return status

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(llama_cpp, "llama_decode", interrupted)
            result(engine, CODE, 1, depth=3)
        assert not computing
        assert written(engine, CODE, 1, depth=3) == plain[1]


def test_a_drafter_that_goes_away_meanwhile_is_lost(
    engine: localspec.Engine, plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, thread = drafter_of(engine), thread_of(engine)
    asked: list[bool] = []

    def check(model: Model) -> None:
        if model is gone and beside:
            asked.append(thread.is_current)
            raise WorkerError("the worker is gone")

    # Only what is computed beside the target fails.
    beside: list[bool] = []
    compute_until = meanwhile._compute_until

    def noted(*given: Any) -> None:
        beside.append(True)
        try:
            compute_until(*given)
        finally:
            beside.pop()

    monkeypatch.setattr(meanwhile, "_compute_until", noted)
    monkeypatch.setattr(Model, "require_workers", check)
    assert written(engine, CODE, 2, depth=3) == plain[2]
    assert asked == [True], "it was asked once, in its own thread"


def test_another_error_is_raised_where_the_text_is_read(
    engine: localspec.Engine, plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = meanwhile.direct

    def fails(requested: Any) -> Any:
        if thread_of(engine).is_current:
            raise LocalspecError("no more")
        return direct(requested)

    with monkeypatch.context() as patch, pytest.raises(LocalspecError, match="no more"):
        patch.setattr(meanwhile, "direct", fails)
        result(engine, CODE, 3, depth=3)
    assert written(engine, CODE, 3, depth=3) == plain[3]


def test_a_model_has_one_thread_for_all_its_passes(
    engine: localspec.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, threads = Context._run_batch, dict[str, set[int]]()

    def noted(context: Context) -> int:
        threads.setdefault(context.model.path.name, set()).add(threading.get_ident())
        return run(context)

    monkeypatch.setattr(Context, "_run_batch", noted)
    assert result(engine, CODE, 0, depth=3).stats.drafted_ahead
    drafter, target = (threads[each.path.name] for each in (drafter_of(engine), engine.model))
    assert len(drafter) == len(target) == 1
    assert drafter != target


def test_beside_another_text_nothing_is_drawn_ahead(
    engine: localspec.Engine, plain: list[list[int]]
) -> None:
    with Session(engine):
        found = result(engine, CODE, 0, depth=3)
    assert found.token_ids == plain[0]
    assert found.stats.drafted_ahead == 0


def test_on_one_device_nothing_is_drawn_ahead() -> None:
    load, drafter, prompt = PAIRS["pycode"]
    with load(draft=drafter) as engine:
        assert drafter_of(engine).thread is None
        assert result(engine, prompt, 0, depth=3).stats.drafted_ahead == 0


def test_what_was_drawn_ahead_is_said(engine: localspec.Engine) -> None:
    options: dict[str, Any] = {"max_tokens": LENGTH, "depth": 3, "ignore_eos": True}
    with engine.stream(CODE, **options) as running:
        counts = running.result().to_dict()["stats"]
        line = stats_line(running)
    assert counts["drafted_ahead"] > counts["used_ahead"]
    assert f"{counts['drafted_ahead']} drawn ahead, {counts['used_ahead']} used" in line
    decision = Explanation("small", 4, 2.5, 9.0, 5.0, "promises most", ready=2)
    assert decision_line(decision).startswith("small, depth 4, 2 drawn ahead (promises most: ")
    assert "ahead" not in decision_line(replace(decision, ready=0))


class Placed:
    """A model by its placement."""

    def __init__(self, placement: Placement, *, offloaded: bool = True) -> None:
        self.placement, self.is_offloaded = placement, offloaded


@pytest.mark.parametrize(
    ("placement", "devices"),
    [
        (Placement(devices=("CUDA0",)), {"cuda0"}),
        (Placement(devices=("cuda0",)), {"cuda0"}),
        (Placement(devices=("CUDA0",), gpu_layers=7), {"cuda0", "processor"}),
        (Placement(devices=("CUDA0",), cpu_moe=2), {"cuda0", "processor"}),
        (Placement(), {"cuda0", "cuda1"}),
        (Placement(devices=(), rpc=("host:50052",)), {"host:50052"}),
        (Placement(devices=("CUDA1", "host:50052")), {"cuda1", "host:50052"}),
        (Placement(rpc=("host",)), {"host:50052", "cuda0", "cuda1"}),
        (Placement(devices=("CUDA0", "CUDA1"), tensor_split=(3, 1)), {"cuda0", "cuda1"}),
        # A head on a GPU, which its target's devices come along with.
        (Placement(devices=("CUDA1", "CUDA0"), tensor_split=(1, 0)), {"cuda1"}),
        (Placement(devices=("CUDA1", "host"), rpc=("host",), tensor_split=(0, 1, 0)), {"cuda1"}),
        # With one device there is nothing to share.
        (Placement(devices=("CUDA1",), tensor_split=(0.5,)), {"cuda1"}),
    ],
)
def test_the_devices_of_a_model(
    monkeypatch: pytest.MonkeyPatch, placement: Placement, devices: set[str]
) -> None:
    monkeypatch.setattr(devices_here, "usual_gpus", lambda: ["CUDA0", "CUDA1"])
    assert devices_of(Placed(placement)) == devices  # type: ignore[arg-type]
    assert devices_of(Placed(placement, offloaded=False)) == {"processor"}  # type: ignore[arg-type]
