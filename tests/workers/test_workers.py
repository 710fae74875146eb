"""Models on real workers: the text of this machine alone, and what happens when one is gone."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.served import serving
from fakes.workers import Proxy, real_worker, require_rpc

import localspec
from localspec.errors import ModelLoadError, WorkerError
from localspec.gguf.facts import facts_of
from localspec.llama import rpc, rpc_build, rpc_server
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import Placement
from localspec.llama.rpc_server import RpcServer
from localspec.loading.calibration import remembered
from localspec.memory.available import HOST, FreeMemory, free_memory
from localspec.memory.memory_plan import best_plan
from localspec.memory.model_memory import ModelMemory
from localspec.memory.request import MemoryRequest
from localspec.models.registry import bundled
from localspec.workers import protocol
from localspec.workers.link import TIMEOUT_VARIABLE

PROMPT = [{"role": "user", "content": "How do I list files by size?"}]
HEADS = Path(__file__).parents[1] / "trained"
OPTIONS = {"max_tokens": 40, "seed": 3, "ignore_eos": True}


@pytest.fixture(autouse=True, scope="module")
def rpc_or_skip(own_cache: None) -> None:
    require_rpc()


@pytest.fixture(scope="module")
def workers() -> Iterator[list[str]]:
    """The addresses of two workers."""
    with real_worker() as first, real_worker() as second:
        yield [str(first.address), str(second.address)]


@pytest.fixture
def worker() -> Iterator[RpcServer]:
    """A worker that may come to harm."""
    with real_worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def local() -> tuple[int, ...]:
    """The text of this machine alone."""
    with localspec.load(draft="none") as engine:
        return tuple(engine.generate(PROMPT, **OPTIONS).token_ids)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("draft", ["none", "auto"])
def test_the_text_is_that_of_one_machine(
    workers: list[str], local: tuple[int, ...], draft: str, count: int
) -> None:
    with localspec.load(draft=draft, rpc=workers[:count]) as engine:
        assert tuple(engine.generate(PROMPT, **OPTIONS).token_ids) == local
        several = engine.generate([PROMPT] * 3, **OPTIONS)
    assert {tuple(each.token_ids) for each in several} == {local}


@pytest.mark.parametrize(("target", "drafter"), [(0, None), (0, 1), (None, 1)])
@pytest.mark.parametrize("depth", [3, None])
def test_a_drafter_elsewhere_draws_ahead(
    workers: list[str],
    local: tuple[int, ...],
    depth: int | None,
    target: int | None,
    drafter: int | None,
) -> None:
    """Target and drafter are on two workers, or one of them is here."""
    rpc = [] if target is None else [workers[target]]
    place = ["none"] if drafter is None else [workers[drafter]]
    with localspec.load(draft=str(bundled().drafter), rpc=rpc, draft_device=place) as engine:
        found = engine.generate(PROMPT, **OPTIONS, depth=depth)
    assert tuple(found.token_ids) == local
    if depth:
        assert found.stats.drafted_ahead


def test_a_drafter_that_is_killed_while_it_draws_ahead(
    local: tuple[int, ...], worker: RpcServer
) -> None:
    place = [str(worker.address)]
    with localspec.load(draft=str(bundled().drafter), draft_device=place) as engine:
        found = []
        for token in engine.stream(PROMPT, **OPTIONS, depth=3):
            found.append(token.id)
            if len(found) == 9:
                worker.close()
        assert tuple(found) == local
        assert tuple(engine.generate(PROMPT, **OPTIONS).token_ids) == local


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "medusa"])
def test_heads_are_where_their_target_is(
    workers: list[str], local: tuple[int, ...], kind: str
) -> None:
    """llama.cpp ends the process for a head that uses a matrix of another machine."""
    with localspec.load(draft=str(HEADS / f"{kind}-terminal-9m-q8_0.gguf"), rpc=workers) as engine:
        found = engine.generate(PROMPT, **OPTIONS, depth=3)
    assert tuple(found.token_ids) == local
    assert found.stats.accepted


def test_the_memory_plan_knows_the_workers(workers: list[str]) -> None:
    free = free_memory(Placement(rpc=tuple(workers)))
    assert free.by_device.keys() >= {HOST, *workers}
    facts = facts_of(bundled().target)
    model = ModelMemory(facts, Placement(rpc=tuple(workers)))
    needed = model.bytes_by_device(ContextParams(512))
    model.close()
    assert all(needed[each] > facts.size / 4 for each in workers)
    placement = Placement(gpu_layers=-1, rpc=tuple(workers))
    request = MemoryRequest(
        target=facts, context=ContextParams(512), fixed_context=True, placement=placement
    )
    plan = best_plan(request, FreeMemory({**free.by_device, workers[1]: 2**20}))
    assert plan.refusal and f"on {workers[1]}, and 1.0 MB are free" in plan.refusal


def test_costs_are_those_of_these_workers(workers: list[str]) -> None:
    with localspec.load(draft="suffix", context=333, rpc=workers) as engine:
        runtime = engine.slots.own.loaded.runtime
    assert remembered(bundled().target, {}, runtime)
    for others in ((), tuple(workers[:1]), (workers[1], workers[0])):
        elsewhere = replace(runtime, placement=Placement(rpc=others))
        assert not remembered(bundled().target, {}, elsewhere)


def test_a_slow_worker_changes_nothing_but_time(worker: RpcServer, local: tuple[int, ...]) -> None:
    with (
        Proxy(worker.address, delay=0.002) as proxy,
        localspec.load(draft="none", rpc=[str(proxy.address)]) as engine,
    ):
        assert tuple(engine.generate(PROMPT, **OPTIONS).token_ids) == local


@pytest.mark.parametrize("tokens", [1, 2, 17])
@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_that_is_killed_in_mid_text(
    local: tuple[int, ...], which: int, tokens: int
) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(real_worker()) for _ in range(2)]
        names = [str(each.address) for each in both]
        engine = stack.enter_context(localspec.load(draft="none", rpc=names))
        found = []
        with pytest.raises(WorkerError, match=f"the worker {names[which]} is gone"):
            for token in engine.stream(PROMPT, **OPTIONS):
                found.append(token.id)
                if len(found) == tokens:
                    both[which].close()
        # What was written stays, and nothing wrong follows it.
        assert tuple(found) == local[: len(found)]
        assert len(found) >= tokens
        with pytest.raises(WorkerError):
            engine.generate(PROMPT, **OPTIONS)
        # The engine that lost it frees what it held; one that comes back can be used anew.
        engine.close()
        stack.enter_context(real_worker(both[which].address.port))
        with localspec.load(draft="none", rpc=names) as again:
            assert tuple(again.generate(PROMPT, **OPTIONS).token_ids) == local


def test_a_server_whose_target_lost_a_worker_says_so(worker: RpcServer) -> None:
    asked = {"messages": PROMPT, "max_tokens": 8}
    with serving("--rpc", str(worker.address), "--threads", "1", "--ctx", "512") as served:
        assert served.post("/v1/chat/completions", asked).status_code == 200
        assert served.get("/health").status_code == 200
        worker.close()
        failed = served.post("/v1/chat/completions", asked)
        assert failed.status_code >= 500
        health = served.get("/health")
    assert health.status_code == 503
    for answer in (failed, health):
        assert f"the worker {worker.address} is gone" in answer.json()["error"]["message"]


def test_a_conversation_keeps_the_answer_that_was_begun(worker: RpcServer) -> None:
    question = "How do I list files by size?"
    with (
        localspec.load(draft="none", rpc=[str(worker.address)]) as engine,
        localspec.Session(engine, **OPTIONS) as session,
    ):
        whole = session.send(question).result().content
        session.reset()
        begun = []
        with pytest.raises(WorkerError):
            for event in session.send(question):
                begun += [event.said] if isinstance(event, localspec.Piece) else []
                if len(begun) == 5:
                    worker.close()
        conversation = session.conversation
    kept = conversation.turns[-1].content
    assert kept and kept.startswith("".join(begun[:5]).strip()) and whole.startswith(kept)
    with (
        localspec.load(draft="none") as engine,
        localspec.Session(engine, conversation=conversation, **OPTIONS) as session,
    ):
        assert session.send("And by date?").result().content
        assert session.turns[1].content == kept


def test_a_worker_that_stalls_in_mid_text(
    worker: RpcServer, local: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "5")
    with (
        Proxy(worker.address) as proxy,
        localspec.load(draft="none", rpc=[str(proxy.address)]) as engine,
    ):
        found = []
        with pytest.raises(WorkerError, match="is gone: it did not answer for 5 seconds"):
            for token in engine.stream(PROMPT, **OPTIONS):
                found.append(token.id)
                if len(found) == 9:
                    proxy.stall()
    assert tuple(found) == local[: len(found)]
    assert len(found) >= 9


# Before the first tensor, among them, behind the last one, and in the first passes.
@pytest.mark.parametrize("cut_after", [60, 300, 5_000, 500_000, 8_000_000, 10_000_000])
def test_a_worker_that_is_gone_while_the_model_loads(worker: RpcServer, cut_after: int) -> None:
    with (
        Proxy(worker.address, cut_after=cut_after) as proxy,
        pytest.raises(WorkerError),
        localspec.load(draft="none", rpc=[str(proxy.address)]) as engine,
    ):
        engine.generate(PROMPT, max_tokens=200, ignore_eos=True)


def test_a_copy_of_a_cache_that_is_gone_is_none(worker: RpcServer) -> None:
    with Model(bundled().target, Placement(rpc=(str(worker.address),))) as model:
        sequence = single_sequence(model, ContextParams(n_ctx=64, threads=1))
        sequence.extend([1, 2, 3])
        assert sequence.memory.copy() is not None
        worker.close()
        with pytest.raises(WorkerError):
            sequence.memory.copy()
        sequence.close()


def test_a_build_without_rpc_says_which_command_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "is_available", lambda: False)
    with pytest.raises(ModelLoadError, match="localspec worker --build"):
        localspec.load(rpc=["127.0.0.1:1"])


def test_a_build_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rpc_server.own_version() == protocol.VERSION
    monkeypatch.setattr(rpc_server, "own_version", lambda: (8, 0, 0))
    with pytest.raises(ModelLoadError, match=r"speaks version 8\.0\.0 of its RPC protocol"):
        localspec.load(rpc=["127.0.0.1:1"])


def test_what_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(ModelLoadError, match=r"no C\+\+ compiler .*GGML_RPC=on"):
        rpc_build.build()
