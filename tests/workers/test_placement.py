"""Models on devices that the user names, or that memory leaves; the devices are real workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.served import serving
from fakes.tiny import write_tiny
from fakes.workers import Proxy, real_worker, require_rpc

import localspec
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError, WorkerError
from localspec.gguf.facts import facts_of
from localspec.llama.context_params import ContextParams
from localspec.llama.dry_run import DryModel
from localspec.llama.placement import ON_PROCESSOR, Placement
from localspec.llama.rpc_server import RpcServer
from localspec.loading import places
from localspec.memory import drafter_places, memory_plan, search
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.memory_plan import best_plan
from localspec.memory.model_memory import ModelMemory
from localspec.memory.request import MemoryPlan, MemoryRequest
from localspec.models.registry import bundled
from localspec.utils.format import format_bytes

PROMPT = [{"role": "user", "content": "How do I list files by size?"}]
HEADS = Path(__file__).parents[1] / "trained"
EAGLE3 = HEADS / "eagle3-terminal-9m-q8_0.gguf"
OPTIONS: dict[str, Any] = {"max_tokens": 40, "seed": 3, "ignore_eos": True}
PAIR = bundled()
DRAFTER = str(PAIR.drafter)
AMPLE = 2**40


@pytest.fixture(autouse=True, scope="module")
def rpc_or_skip(own_cache: None) -> None:
    require_rpc()


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[str, str]]:
    """Two devices: the addresses of two workers."""
    with real_worker() as first, real_worker() as second:
        yield str(first.address), str(second.address)


@pytest.fixture
def worker() -> Iterator[RpcServer]:
    """A worker that may come to harm."""
    with real_worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers are mixtures of experts."""
    return write_tiny(tmp_path_factory.mktemp("moe") / "moe.gguf", "qwen3moe")


def text_and_drafts(engine: Engine, **options: Any) -> tuple[list[int], int, int]:
    """The tokens of a text, and how many of its drafted tokens were right, and were not."""
    found = engine.generate(PROMPT, **OPTIONS, **options)
    return list(found.token_ids), found.stats.accepted, found.stats.drafted


def test_layers_are_where_the_user_wants_them(devices: tuple[str, str]) -> None:
    first, second = devices
    for placement, expected in (
        (Placement(devices=(second,)), [second] * 9),
        (Placement(3, (first,)), [HOST] * 6 + [first] * 3),
        (Placement(devices=(first, second), tensor_split=(2, 1)), [first] * 6 + [second] * 3),
        (Placement(devices=(second, first), tensor_split=(0, 1)), [first] * 9),
        (ON_PROCESSOR, [HOST] * 9),
    ):
        with DryModel(PAIR.target, placement) as dry:
            assert list(dry.layers.values()) == expected


@pytest.mark.parametrize("kind", ["model", "eagle3", "dflash", "medusa"])
def test_drafts_are_the_same_wherever_target_and_drafter_are(
    devices: tuple[str, str], kind: str
) -> None:
    first, second = devices
    drafter = DRAFTER if kind == "model" else str(HEADS / f"{kind}-terminal-9m-q8_0.gguf")
    with localspec.load(draft=drafter) as engine:
        here = text_and_drafts(engine, depth=3)
    _, accepted, drafted = here
    assert 0 < accepted < drafted
    for options in (
        {"draft_device": [first]},
        {"device": [first], "draft_device": [second]},
        {"device": [first], "draft_device": ["none"]},
        {"device": [first, second], "tensor_split": [1, 3]},
        {"device": [first], "gpu_layers": 2, "draft_device": [first], "draft_gpu_layers": 1},
    ):
        with localspec.load(draft=drafter, **options) as engine:  # type: ignore[arg-type]
            assert text_and_drafts(engine, depth=3) == here, options


def test_ninety_nine_layers_are_all(devices: tuple[str, str]) -> None:
    """So they are for the number of threads, and for the record of a text."""
    device = devices[:1]
    with localspec.load(
        draft=DRAFTER, device=device, gpu_layers=99, draft_device=device, draft_gpu_layers=99
    ) as engine:
        [drafter] = [each.model for each in engine.slots.own.loaded.drafters.drafters if each.model]
        assert engine.model.placement == Placement(-1, device)
        assert drafter.placement == Placement(-1, device)
        assert engine.slots.own.loaded.runtime.placement.gpu_layers == -1


def test_a_draft_model_elsewhere_is_there(devices: tuple[str, str]) -> None:
    with localspec.load(draft=DRAFTER, draft_device=[devices[0]]) as engine:
        [drafter] = [each for each in engine.slots.own.loaded.drafters.drafters if each.model]
        assert drafter.model and drafter.model._workers
        assert not engine.model._workers
        several = engine.generate([PROMPT] * 3, **OPTIONS, depth=2)
    assert len({tuple(each.token_ids) for each in several}) == 1


def test_a_slow_way_to_the_drafter_is_known_to_auto() -> None:
    """Each drafted token goes there and back, so nothing pays that takes longer than a pass."""
    with (
        real_worker() as worker,
        Proxy(worker.address, delay=0.02) as proxy,
        localspec.load(draft=["suffix", DRAFTER], draft_device=[str(proxy.address)]) as engine,
    ):
        costs = engine.slots.own.loaded.costs
        assert costs and costs.drafters["terminal-5m-q4_0"].further > 0.02 > costs.passes[1]
        found = engine.generate(PROMPT, **OPTIONS)
    assert not [each for each in found.origins if each == "terminal-5m-q4_0"]


def test_experts_stay_on_the_processor(devices: tuple[str, str], moe: Path) -> None:
    assert facts_of(moe).has_experts
    first, _ = devices
    needed, texts = [], []
    for count in (0, 1, -1):
        placement = Placement(devices=(first,), cpu_moe=count)
        memory = ModelMemory(facts_of(moe), placement)
        needed.append(memory.bytes_by_device(ContextParams(256)))
        memory.close()
        with localspec.load(moe, "none", device=[first], cpu_moe=count) as engine:
            texts.append(engine.generate("hello", temperature=0, max_tokens=12).token_ids)
    assert needed[0][first] > needed[1][first] > needed[2][first]
    experts = sum(each.size for each in facts_of(moe).tensors if "exps." in each.name)
    assert experts > 0
    assert texts[0] == texts[1] == texts[2]


def test_rows_cannot_be_split_where_devices_cannot(devices: tuple[str, str]) -> None:
    with pytest.raises(ModelLoadError, match=r"split buffers.*; split_mode layer works with all"):
        localspec.load(draft="none", device=list(devices), split_mode="row")


def test_each_of_several_devices_has_a_share(devices: tuple[str, str]) -> None:
    with pytest.raises(InvalidValueError, match="tensor_split has 3 shares; name one for each"):
        localspec.load(draft="none", device=list(devices), tensor_split=[1, 1, 1])
    # One device has nothing to share; but a worker may have several, so nothing is said of it.
    for options in ({"tensor_split": [1, 1]}, {"split_mode": "row"}):
        with localspec.load(draft="none", device=[devices[0]], **options) as engine:  # type: ignore[arg-type]
            assert not any("no effect" in note for note in engine.notes)


def planned(
    devices: tuple[str, str],
    free: dict[str, int],
    unified: tuple[str, ...] = (),
    *,
    lends: bool = False,
    context: int = 1024,
    ubatch: int | None = None,
    **request: Any,
) -> MemoryPlan:
    """What is planned for the bundled pair on the first device, or for another target."""
    usual = {
        "target": facts_of(PAIR.target),
        "drafters": (facts_of(Path(DRAFTER)),),
        "context": ContextParams(context, ubatch=ubatch),
        "fixed_context": True,
        "placement": Placement(devices=devices),
    }
    request = usual | request
    return best_plan(MemoryRequest(**request), FreeMemory(free, frozenset(unified), lends))


def needed_there(path: Path, device: str, context: int = 1024) -> int:
    memory = ModelMemory(facts_of(path), Placement(devices=(device,)))
    try:
        return memory.bytes_by_device(ContextParams(context))[device]
    finally:
        memory.close()


def test_a_drafter_without_room_beside_its_target_goes_elsewhere(
    devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = devices
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: [first])
    target, drafter = (needed_there(path, first) for path in PAIR if path)
    here = Placement(devices=(first,))
    both = {HOST: AMPLE, first: target + drafter, second: AMPLE}
    plan = planned(devices, both, placement=here)
    assert (plan.drafter_placement, plan.notes) == (None, ())
    plan = planned(devices, both | {first: target + drafter - 1}, placement=here)
    assert (plan.drafter_placement, plan.drafter_kv_type) == (ON_PROCESSOR, "f16")
    assert plan.notes[0].startswith(
        "terminal-5m-q4_0.gguf is on the processor: beside its target both would need "
    )
    # Another device comes before the processor.
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: [first, second])
    tight = {HOST: AMPLE, first: target + drafter // 2, second: AMPLE}
    split = Placement(devices=devices, tensor_split=(1, 0))
    assert planned(devices, tight, placement=split).drafter_placement == Placement(
        devices=(second,)
    )
    # What the user has named stays, and is refused.
    named = planned(devices, tight, placement=split, drafter_placement=Placement(devices=(first,)))
    assert named.drafter_placement == Placement(devices=(first,))
    assert named.placement != split


def test_a_long_context_that_nobody_asked_for_moves_nothing_to_the_processor(
    devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = devices
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: [first])
    target, drafter = PAIR.target, Path(DRAFTER)

    def needed(context: int, *paths: Path) -> int:
        return sum(needed_there(path, first, context) for path in paths)

    def plan_with(free: int, **changes: Any) -> MemoryPlan:
        usual = {"context": 8192, "fixed_context": False, "placement": Placement(devices=(first,))}
        return planned(devices, {HOST: AMPLE, first: free}, **(usual | changes))

    plan = plan_with(needed(5120, target, drafter))
    assert (plan.context.n_ctx, plan.drafter_placement) == (5120, None)
    assert plan.placement.is_on_devices and not plan.no_drafter
    [note] = plan.notes
    assert note.startswith("context 5120: 8192 would need ")
    # Without a drafter, and where only the target fits.
    assert plan_with(needed(5120, target), drafters=()).context.n_ctx == 5120
    plan = plan_with(needed(5120, target))
    assert (plan.context.n_ctx, plan.drafter_placement) == (5120, ON_PROCESSOR)
    assert plan.placement.is_on_devices
    plan = plan_with(needed(5120, target), drafters=(head := facts_of(EAGLE3),))
    assert not plan.placement.is_on_devices
    plan = plan_with(needed(5120, target), drafters=(head,), optional_drafter=True)
    assert plan.no_drafter and (plan.context.n_ctx, plan.placement.is_on_devices) == (5120, True)
    # What the user asked for stays, and less than 4,096 is not worth it.
    both = needed(5120, target, drafter)
    assert plan_with(both, fixed_context=True).drafter_placement == ON_PROCESSOR
    plan = plan_with(needed(3840, target), drafters=())
    assert plan.context.n_ctx == 8192 and not plan.placement.is_on_devices


def test_a_head_takes_memory_where_it_is(devices: tuple[str, str]) -> None:
    """The library does not say how much, as its context needs that of its target."""
    first, _ = devices
    for place, device in ((Placement(devices=(first,)), first), (ON_PROCESSOR, HOST)):
        memory = ModelMemory(facts_of(EAGLE3), place)
        needed = memory.bytes_by_device(ContextParams(1024))
        memory.close()
        assert needed[device] > EAGLE3.stat().st_size
        assert set(+needed) == {device}
    with localspec.load(draft=str(EAGLE3), device=[first], context=256) as engine:
        loaded = engine.slots.own.loaded
        beside = places._head_contexts_bytes(loaded.target.context)
        assert set(+beside) == {first}


def test_a_target_without_room_has_as_many_layers_there_as_fit(
    devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = devices
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: [first])
    here = Placement(devices=(first,))
    whole = needed_there(PAIR.target, first)
    plan = planned(devices, {HOST: AMPLE, first: whole // 2}, placement=here)
    layers = plan.placement.gpu_layers
    assert layers and 1 <= layers < 9
    assert plan.drafter_placement == ON_PROCESSOR
    assert plan.notes[0].startswith("terminal-5m-q4_0.gguf is on the processor: beside its target")
    assert plan.notes[1].startswith(
        f"terminal-9m-q8_0.gguf: {layers} layers on {first}, as all of it there would need "
    )
    for count, fits in ((layers, True), (layers + 1, False)):
        memory = ModelMemory(facts_of(PAIR.target), Placement(count, (first,)))
        assert (memory.bytes_by_device(ContextParams(1024))[first] <= whole // 2) == fits
        memory.close()
    nothing = planned(devices, {HOST: AMPLE, first: 1000}, placement=here)
    assert nothing.placement == ON_PROCESSOR
    assert not nothing.refusal
    named = planned(devices, {HOST: AMPLE, first: whole // 2}, placement=Placement(9, (first,)))
    assert named.refusal and f"on {first}" in named.refusal
    little = planned(devices, {HOST: 1000, first: whole // 2}, placement=here)
    assert little.refusal
    # Where main memory is short, nothing is moved into it.
    crowded = planned(devices, {HOST: 1000, first: AMPLE}, placement=here)
    assert crowded.refusal and crowded.placement == here
    # Without a draft model none is moved, and a head stays where its target is.
    for drafters, more in (((), 0), ((facts_of(EAGLE3),), needed_there(EAGLE3, first))):
        free = {HOST: AMPLE, first: whole // 2 + more}
        plan = planned(devices, free, placement=here, drafters=drafters)
        assert plan.placement.gpu_layers
        assert plan.drafter_placement is None
        assert len(plan.notes) == 1


def test_prompts_are_read_in_wider_passes_where_experts_are_copied_to_a_gpu(
    devices: tuple[str, str], moe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = devices

    def room(cpu_moe: int, ubatch: int | None) -> int:
        place = Placement(devices=(first,), cpu_moe=cpu_moe)
        memory = ModelMemory(facts_of(moe), place)
        try:
            return memory.bytes_by_device(ContextParams(4096, ubatch=ubatch))[first]
        finally:
            memory.close()

    def plan_with(free: int, cpu_moe: int = 0, **changes: Any) -> MemoryPlan:
        place = Placement(devices=(first,), cpu_moe=cpu_moe)
        usual = {"target": facts_of(moe), "drafters": (), "context": 4096, "placement": place}
        return planned(devices, {HOST: AMPLE, first: free}, **(usual | changes))

    assert room(1, 2048) > room(1, None)
    assert plan_with(AMPLE, 1).context.ubatch is None, "a worker has no weights in this main memory"
    monkeypatch.setattr(search, "names_of", lambda _place: ["CUDA0"])
    assert plan_with(AMPLE).context.ubatch is None, "all experts are there"
    assert plan_with(AMPLE, 1).context.ubatch == 2048
    assert plan_with(room(1, 2048), 1).context.ubatch == 2048
    assert plan_with(room(1, 2048) - 1, 1).context.ubatch == 512
    assert plan_with(AMPLE, 1, ubatch=1024).context.ubatch == 1024, "it was named"
    # One layer more makes room where the plan has chosen how many there are.
    monkeypatch.setattr(search, "layers_of", lambda _header: 3)
    tight = plan_with(room(1, None))
    assert (tight.placement.cpu_moe, tight.context.ubatch) == (1, 512)
    monkeypatch.setattr(search, "_WIDE_PASS", 513)
    assert room(2, 513) < room(1, None), "otherwise this shows nothing"
    tight = plan_with(room(1, None))
    assert (tight.placement.cpu_moe, tight.context.ubatch) == (2, 513)
    assert "the experts of 2 layers on the processor" in tight.notes[0]


def test_what_shares_main_memory_is_not_moved_into_it(devices: tuple[str, str]) -> None:
    """A GPU in the processor: nothing is gained, so the context shrinks as on a processor."""
    first, _ = devices
    here = Placement(devices=(first,))
    both = planned(devices, {HOST: AMPLE, first: AMPLE}, placement=here).needed
    options = {"placement": here, "context": 4096, "fixed_context": False}
    room = {HOST: both, first: AMPLE}
    separate = planned(devices, room, **options)
    assert (separate.context.n_ctx, separate.notes) == (4096, ())
    shared = planned(devices, {**room, first: both}, unified=(first,), **options)
    assert shared.placement == here and shared.drafter_placement is None
    assert 512 < shared.context.n_ctx < 4096
    assert shared.drafter_kv_type == "q8_0"
    assert f"of main memory, {first} included" in shared.notes[-1]
    # What the GPU itself has no room for still goes to the processor.
    little = planned(devices, {HOST: AMPLE, first: both // 4}, unified=(first,), placement=here)
    assert little.placement.gpu_layers and not little.refusal


def test_what_a_gpu_may_use_of_main_memory_and_others_hold_is_said(
    devices: tuple[str, str],
) -> None:
    """Apple's GPUs: nothing is given up for it."""
    first, _ = devices
    options: dict[str, Any] = {"placement": Placement(devices=(first,))}
    both = planned(devices, {HOST: AMPLE, first: AMPLE}, **options).needed
    lent = {HOST: both - 1, first: AMPLE}
    plan = planned(devices, lent, unified=(first,), lends=True, **options)
    assert (plan.context.n_ctx, plan.drafter_kv_type) == (1024, "f16")
    (note,) = plan.notes
    needed, there = map(format_bytes, (both, both - 1))
    assert f"{needed} of main memory are needed, and {there} are free" in note
    assert planned(devices, lent, unified=(first,), **options).notes == ()
    roomy = planned(devices, {**lent, HOST: both}, unified=(first,), lends=True, **options)
    assert roomy.notes == ()


def test_experts_leave_a_device_before_layers_do(devices: tuple[str, str], moe: Path) -> None:
    first, _ = devices
    facts, here = facts_of(moe), Placement(devices=(first,))
    whole = needed_there(moe, first)
    options = {"target": facts, "drafters": (), "placement": here, "context": 1024}
    plan = planned(devices, {HOST: AMPLE, first: whole - 1}, **options)
    assert plan.placement == Placement(devices=(first,), cpu_moe=1)
    assert "the experts of 1 layer on the processor" in plan.notes[0]
    memory = ModelMemory(facts, Placement(devices=(first,), cpu_moe=-1))
    without = memory.bytes_by_device(ContextParams(1024))[first]
    memory.close()
    least = planned(devices, {HOST: AMPLE, first: without - 1}, **options)
    assert least.placement.cpu_moe == -1
    assert least.placement.gpu_layers == 2  # of three, the output's included


def test_what_the_plan_moved_is_loaded_there_and_said(
    devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = devices
    with localspec.load(draft=DRAFTER) as engine:
        here = text_and_drafts(engine, depth=3)
    free = FreeMemory({HOST: AMPLE, first: needed_there(PAIR.target, first) // 2})
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_placements: free)
    with localspec.load(draft=DRAFTER, device=[first], context=1024) as engine:
        layers = engine.model.placement.gpu_layers
        assert layers and layers < 9
        assert f"{layers} layers on {first}" in engine.notes[0]
        assert "terminal-5m" not in " ".join(engine.notes)
        assert text_and_drafts(engine, depth=3) == here


def test_a_drafter_is_on_one_gpu(devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = devices
    places = drafter_places.drafter_places
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: [first, second])
    both = [Placement(devices=(first,)), Placement(devices=(second,)), ON_PROCESSOR]
    assert places(Placement()) == places(Placement(devices=devices)) == both
    assert places(Placement(devices=("CUDA1",))) == [Placement(devices=("CUDA1",)), ON_PROCESSOR]
    assert places(Placement(gpu_layers=0)) == [Placement(gpu_layers=0)]
    assert places(ON_PROCESSOR) == [ON_PROCESSOR]
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: [first])
    assert places(Placement()) == [Placement(), ON_PROCESSOR]
    monkeypatch.setattr(drafter_places, "usual_gpus", list)
    assert places(Placement(rpc=(first,))) == [Placement()]


@pytest.mark.parametrize("kind", ["model", "eagle3"])
@pytest.mark.parametrize("depth", [None, 3])
def test_a_text_goes_on_without_a_drafter_whose_machine_is_gone(
    worker: RpcServer, kind: str, depth: int | None
) -> None:
    drafter = DRAFTER if kind == "model" else str(HEADS / "eagle3-terminal-9m-q8_0.gguf")
    # Drafts of any depth, where the last digits of a wide pass may decide, need this.
    exact: dict[str, Any] = {"reproducible": True}
    with localspec.load(draft="none", **exact) as engine:
        plain = list(engine.generate(PROMPT, **OPTIONS).token_ids)
    there: dict[str, Any] = {"draft_device": [str(worker.address)]}
    with (
        localspec.load(draft=["suffix", drafter], **there, **exact) as engine,
        localspec.Session(engine) as session,
    ):
        name = engine.drafter_set.names[-1]
        with engine.stream(PROMPT, **OPTIONS, depth=depth) as running:
            tokens = [next(running).id for _ in range(6)]
            assert engine.slots.own.loaded.drafters.lost is None
            worker.close()
            tokens += [token.id for token in running]
        assert tokens == plain
        assert name not in [token.origin for token in running.tokens[12:]]
        if depth is None:  # `auto` may have no use for the drafter, and so not look for it
            return
        lost = engine.slots.own.loaded.drafters.lost
        assert lost and lost.startswith(f"{name} drafts no more: the worker {worker.address} is")
        assert lost in engine.notes
        # All later texts do without it too, beside others as well, and a chat says so once.
        several = engine.generate([PROMPT] * 3, **OPTIONS)
        assert {tuple(each.token_ids) for each in several} == {tuple(plain)}
        for told in ([lost], []):
            events = list(session.send("And by date?", max_tokens=8, seed=1))
            assert [each.line for each in events if isinstance(each, localspec.Notice)] == told


def test_models_can_be_changed_when_a_drafters_machine_is_gone(worker: RpcServer) -> None:
    there = [str(worker.address)]
    with localspec.load(draft=["suffix", DRAFTER], draft_device=there) as engine:
        plain = list(engine.generate(PROMPT, **OPTIONS, depth=0).token_ids)
        worker.close()
        assert list(engine.generate(PROMPT, **OPTIONS, depth=2).token_ids)
        engine.switch(model=DRAFTER, draft="none")
        assert engine.model.path == PAIR.drafter
        engine.switch(model=PAIR.target, draft="suffix")
        assert list(engine.generate(PROMPT, **OPTIONS, depth=0).token_ids) == plain
        # What cannot be loaded leaves what was there.
        with pytest.raises(WorkerError):
            engine.switch(draft=DRAFTER)
        assert list(engine.generate(PROMPT, **OPTIONS, depth=0).token_ids) == plain
    # A machine that is off is no matter where nothing is to be on it.
    with localspec.load(draft="suffix", draft_device=there) as engine:
        assert engine.drafter_set.names == ["suffix"]


def test_the_target_stays_when_other_models_cannot_be_loaded(
    worker: RpcServer, tmp_path: Path
) -> None:
    with localspec.load(draft=DRAFTER, draft_device=[str(worker.address)]) as engine:
        worker.close()
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(b"GGUF")
        with pytest.raises(LocalspecError):
            engine.switch(model=broken)
        assert engine.model.path == PAIR.target
        assert engine.generate(PROMPT, **OPTIONS).token_ids


def test_a_server_goes_on_and_its_log_says_why(worker: RpcServer) -> None:
    asked = {"messages": PROMPT, "max_tokens": 12, "localspec": {"depth": 2}}
    options = ("--draft", DRAFTER, "--draft-device", str(worker.address), "--threads", "1")
    with serving(*options, "--ctx", "512") as served:
        assert served.post("/v1/chat/completions", asked).status_code == 200
        worker.close()
        for _ in range(2):
            assert served.post("/v1/chat/completions", asked).status_code == 200
        assert served.get("/health").status_code == 200
        said = [line for line in served.lines if f"the worker {worker.address} is gone" in line]
    assert len(said) == 1


def test_a_chat_says_at_once_that_a_drafter_is_gone(worker: RpcServer) -> None:
    with (
        localspec.load(draft=DRAFTER, draft_device=[str(worker.address)]) as engine,
        localspec.Session(engine) as session,
    ):
        events = []
        for event in session.send("How do I list files?", max_tokens=30, seed=1, depth=2):
            events.append(event)
            if len(events) == 8:
                worker.close()
        notices = [each.line for each in events if isinstance(each, localspec.Notice)]
        assert notices == [engine.slots.own.loaded.drafters.lost]
        again = [*session.send("And by date?", max_tokens=8, seed=1)]
        assert not [each for each in again if isinstance(each, localspec.Notice)]
        assert isinstance(events[-1], localspec.Ended)
        assert events[-1].stop_reason != "cancelled"
