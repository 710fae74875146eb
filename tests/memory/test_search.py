"""What is given up where memory is short, on devices that no machine here needs to have.

The memory of models is told by a table: so many MiB of weights, cache and buffers by their layers.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.gguf.heads import EAGLE3, MTP
from localspec.llama.context_params import ContextParams
from localspec.llama.placement import ON_PROCESSOR, Placement
from localspec.llama.rope import RopeScaling
from localspec.memory import drafter_places, search
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.memory_plan import best_plan
from localspec.memory.request import MemoryPlan, MemoryRequest, ProjectorRoom

MIB = 2**20
BITS = {"f16": 16, "q8_0": 8, "q4_0": 4}
AMPLE = 10**6
GPU0, GPU1 = Placement(devices=("GPU0",)), Placement(devices=("GPU1",))


@dataclass(eq=False)
class Model:
    """Facts, as far as they are read. All figures are MiB.

    layer: weights of a layer, experts of them in its experts. cells: of 1,024 cells of cache.
    state: of a snapshot. buffer: of 512 rows of a pass.
    """

    name: str
    layers: int
    layer: int
    cells: int
    state: int = 0
    experts: int = 0
    buffer: int = 0
    kind: str | None = None
    has_mtp: bool = False
    is_estimated: bool = True
    own_output: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        return (Path(self.name),)

    @property
    def header(self) -> "Model":
        return self

    @property
    def size(self) -> int:
        return self.layers * self.layer * MIB

    @property
    def has_experts(self) -> bool:
        return self.experts > 0


TARGET = Model("target", layers=10, layer=100, cells=50)
STATES = replace(TARGET, name="states", state=40)
EXPERTS = replace(TARGET, name="experts", experts=80, buffer=10)
DRAFTER = Model("drafter", layers=2, layer=50, cells=10)
HEAD = replace(DRAFTER, name="head", kind=EAGLE3)
# All of a target with 8,192 tokens, and of a drafter.
WHOLE, BESIDE = 1000 + 8 * 50, 100 + 8 * 10


class TableMemory:
    """As ModelMemory. asked: how often anything was asked of the library."""

    made: list["TableMemory"]
    asked: int

    def __init__(self, facts: Model, placement: Placement, **options: bool) -> None:
        self.facts, self.placement, self.options = facts, placement, options
        self.is_closed = False
        self.params: list[ContextParams] = []
        self.output_bytes = 30 * MIB
        type(self).made.append(self)

    def close(self) -> None:
        self.is_closed = True

    def _weights(self) -> int:
        is_elsewhere = self.options.get("inside") or self.options.get("loaded")
        return 0 if is_elsewhere else self.facts.layers * self.facts.layer

    def _cache(self, params: ContextParams) -> int:
        one = params.n_ctx * self.facts.cells * BITS[params.kv_type] // (16 * 1024)
        return params.texts * (one + params.snapshots * self.facts.state)

    def least_bytes(self, params: ContextParams) -> int:
        return self._weights() * MIB

    def estimated_bytes(self, params: ContextParams) -> int | None:
        if not self.facts.is_estimated:
            return None
        return (self._weights() + self._cache(params)) * MIB

    def bytes_by_device(self, params: ContextParams) -> Counter[str]:
        type(self).asked += 1
        self.params.append(params)
        place, layers = self.placement, self.facts.layers
        there = layers if place.gpu_layers in (None, -1) else place.gpu_layers or 0
        devices = () if place.is_on_processor else place.devices or ("GPU0",)
        there = there if devices else 0
        needed = Counter({HOST: self._weights() * (layers - there) // layers})
        needed[HOST] += self._cache(params) * (layers - there) // layers
        for device in devices:
            each = self._weights() + self._cache(params)
            needed[device] += each * there // layers // len(devices)
            needed[device] += self.facts.buffer * (params.ubatch or 512) // 512
        if devices and place.cpu_moe:
            count = layers if place.cpu_moe == -1 else place.cpu_moe
            # Those of layers that are on the processor are there already.
            moved = max(0, count - (layers - there)) * self.facts.experts
            needed[HOST] += moved
            needed[devices[0]] -= moved
        return Counter({device: size * MIB for device, size in needed.items() if size})


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[TableMemory]]:
    memory = type("Memory", (TableMemory,), {"made": [], "asked": 0})
    monkeypatch.setattr(search, "ModelMemory", memory)
    monkeypatch.setattr(search, "layers_of", lambda header: header.layers)
    monkeypatch.setattr(search, "kind_of", lambda header: header.kind)
    monkeypatch.setattr(
        search,
        "matrix_head_of",
        lambda _file, header: SimpleNamespace(has_output=header.own_output),
    )
    monkeypatch.setattr(
        search, "names_of", lambda place: [] if place.is_on_processor else place.devices or ["GPU0"]
    )
    monkeypatch.setattr(drafter_places, "usual_gpus", lambda: ["GPU0"])
    yield memory
    assert all(each.is_closed for each in memory.made)


def planned(
    free: dict[str, int],
    *,
    unified: tuple[str, ...] = (),
    lends: bool = False,
    n_ctx: int = 8192,
    snapshots: int = 0,
    texts: int = 1,
    ubatch: int | None = None,
    flash_attention: bool | None = None,
    **request: Any,
) -> MemoryPlan:
    """The plan where so many MiB are free by device."""
    context = ContextParams(
        n_ctx,
        snapshots=snapshots,
        texts=texts,
        ubatch=ubatch,
        flash_attention=flash_attention,
        branches=2,
        rope=RopeScaling("linear", 2.0),
    )
    asked = {"target": TARGET, "context": context, "placement": GPU0} | request
    by_device = {device: size * MIB for device, size in free.items()}
    return best_plan(MemoryRequest(**asked), FreeMemory(by_device, frozenset(unified), lends))


def on_processor(free: int, **request: Any) -> MemoryPlan:
    """The plan on a machine without GPUs, as a rule with a drafter that was asked for."""
    usual = {"placement": ON_PROCESSOR, "drafters": (DRAFTER,)}
    return planned({HOST: free}, **(usual | request))


# On the processor.


def test_what_is_ample_or_fits_is_as_it_was_asked_for(table: type[TableMemory]) -> None:
    both = WHOLE + BESIDE
    ample = on_processor(2 * both, snapshots=8, texts=1)
    assert (ample.needed, ample.notes, ample.refusal) == (both * MIB, (), None)
    assert ample.context.snapshots == 8
    assert table.asked == 0, "the library is asked only where the headers do not tell enough"
    for free in (2 * both - 1, both):
        fits = on_processor(free, snapshots=8)
        assert (fits.needed, fits.notes, fits.refusal) == (both * MIB, (), None)
        assert (fits.context.n_ctx, fits.context.snapshots) == (8192, 8)
    assert table.asked > 0


def test_the_library_is_asked_where_a_header_does_not_tell(table: type[TableMemory]) -> None:
    odd = replace(DRAFTER, is_estimated=False)
    plan = on_processor(AMPLE, drafters=(odd,))
    assert (plan.needed, plan.notes) == ((WHOLE + BESIDE) * MIB, ())
    assert table.asked > 0


def test_a_drafter_has_a_cache_of_its_own_kind(table: type[TableMemory]) -> None:
    on_processor(WHOLE + BESIDE, snapshots=8, ubatch=1024, drafter_kv_type="q8_0")
    (target,) = [each for each in table.made if each.facts is TARGET]
    (drafter,) = [each for each in table.made if each.facts is DRAFTER]
    assert {(each.snapshots, each.branches, each.ubatch) for each in target.params} == {
        (8, 2, 1024)
    }
    assert all(each.rope.options for each in target.params)
    for each in drafter.params:
        assert (each.kv_type, each.snapshots, each.branches, each.ubatch) == ("q8_0", 0, 0, None)
        assert each.n_ctx == 8192 and not each.rope.options


def test_there_is_room_for_as_many_texts_as_fit() -> None:
    each = 8 * 50 + 8 * 10
    for texts in (1, 2, 3, 7, 8):
        plan = on_processor(1100 + texts * each, texts=8)
        assert (plan.context.texts, plan.notes) == (texts, ())
        assert on_processor(1100 + (texts + 1) * each - 1, texts=8).context.texts == texts
    assert on_processor(1100 + 9 * each, texts=8).context.texts == 8


@pytest.mark.parametrize(("more", "left"), [(320, 8), (319, 4), (160, 4), (159, 2), (80, 2)])
def test_snapshots_go_first(more: int, left: int) -> None:
    plan = on_processor(WHOLE + BESIDE + more, target=STATES, snapshots=8)
    assert (plan.context.snapshots, plan.context.n_ctx) == (left, 8192)
    assert len(plan.notes) == (left < 8)
    if left < 8:
        assert f"drafts of more than {left} tokens copy the state first: 8 snap" in plan.notes[0]


@pytest.mark.parametrize(("present", "left"), [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_few_snapshots_stay_few(present: int, left: int) -> None:
    plan = on_processor(WHOLE + BESIDE + 40 * left, target=STATES, snapshots=present)
    assert (plan.context.snapshots, plan.context.n_ctx) == (left, 8192)


def test_a_drafter_nobody_asked_for_goes_with_its_snapshots() -> None:
    plan = on_processor(WHOLE + 100, target=STATES, snapshots=8, optional_drafter=True)
    assert plan.no_drafter is not None
    assert plan.no_drafter.startswith("drafter is left out: both would need 1.74 GB, and 1.57 GB")
    assert (plan.context.snapshots, plan.context.n_ctx, plan.notes) == (0, 8192, ())


def test_a_drafter_that_was_asked_for_keeps_its_cache_in_fewer_bits() -> None:
    plan = on_processor(WHOLE + BESIDE - 40)
    assert (plan.drafter_kv_type, plan.context.n_ctx, plan.no_drafter) == ("q8_0", 8192, None)
    assert len(plan.notes) == 1 and "as f16 both would need" in plan.notes[0]
    for kept in ({"drafter_kv_type": "q4_0"}, {"flash_attention": False}):
        shorter = on_processor(WHOLE + BESIDE - 65, **kept)
        assert shorter.drafter_kv_type == kept.get("drafter_kv_type", "f16")
        assert shorter.context.n_ctx < 8192


def test_then_the_context_is_as_long_as_fits() -> None:
    plan = on_processor(1100 + 4 * 50 + 4 * 5)
    assert (plan.drafter_kv_type, plan.context.n_ctx) == ("q8_0", 4096)
    assert len(plan.notes) == 2
    assert plan.notes[-1].startswith("context 4096: 8192 would need")
    assert on_processor(1100 + 4 * 50 + 4 * 5 - 1).context.n_ctx == 4096 - 256
    alone = on_processor(1000 + 4 * 50, optional_drafter=True)
    assert alone.no_drafter and alone.context.n_ctx == 4096
    plain = on_processor(1000 + 4 * 50, drafters=())
    assert plain.context.n_ctx == 4096 and len(plain.notes) == 1


def test_a_context_that_was_named_is_refused_with_the_largest_that_fits() -> None:
    plan = on_processor(1100 + 4 * 50 + 4 * 5, fixed_context=True)
    assert plan.refusal is not None
    assert plan.refusal.startswith(
        "target: a context of 8192 tokens would need 1.61 GB, and 1.38 G"
    )
    assert plan.refusal.endswith("; try context=4096, or draft='suffix'")
    alone = on_processor(1000 + 4 * 50, fixed_context=True, drafters=())
    assert alone.refusal is not None and alone.refusal.endswith("; try context=4096")
    for fixed in (False, True):
        nothing = on_processor(900, drafters=(), fixed_context=fixed)
        assert nothing.refusal is not None and nothing.context.n_ctx == 8192
        assert nothing.refusal.endswith("; try a smaller quantisation")


def test_what_is_hopeless_is_refused_without_asking(table: type[TableMemory]) -> None:
    plan = on_processor(100)
    assert plan.refusal and table.asked == 0
    on_processor(1100 // 8)
    assert table.asked == 0
    on_processor(1100 // 8 + 1)
    assert table.asked > 0
    long = on_processor(AMPLE, n_ctx=2**31)
    assert long.context.n_ctx < 2**31


def test_heads_of_a_few_matrices_take_main_memory() -> None:
    heads = {"drafters": (), "matrix_heads": (replace(DRAFTER, name="medusa"),)}
    whole = WHOLE + 100 + 30
    assert on_processor(whole, **heads).needed == whole * MIB
    assert on_processor(whole, **heads).notes == ()
    plan = on_processor(whole - 1, optional_drafter=True, **heads)
    assert plan.no_drafter is not None and plan.no_drafter.startswith("medusa is left out")
    own = {"drafters": (), "matrix_heads": (replace(DRAFTER, own_output=True),)}
    assert on_processor(whole - 30, **own).notes == ()
    refused = on_processor(900, fixed_context=True, **heads)
    assert refused.refusal and refused.refusal.endswith("or draft='suffix'")


# On GPUs.


def test_all_is_on_the_gpu_where_it_fits() -> None:
    plan = planned({HOST: 10, "GPU0": WHOLE + BESIDE}, drafters=(DRAFTER,))
    assert (plan.placement, plan.drafter_placement, plan.notes) == (GPU0, None, ())
    assert plan.context.ubatch is None


def test_a_draft_model_goes_to_another_gpu_first() -> None:
    both = Placement(devices=("GPU0", "GPU1"))
    free = {HOST: AMPLE, "GPU0": WHOLE // 2 + BESIDE - 1, "GPU1": WHOLE // 2 + BESIDE}
    plan = planned(free, placement=both, drafters=(DRAFTER,))
    assert (plan.placement, plan.drafter_placement) == (both, GPU1)
    assert len(plan.notes) == 1
    assert plan.notes[0].startswith("drafter is all layers on GPU1: beside its target both would")


def test_less_context_where_a_gpu_is_short_and_then_the_processor_for_a_draft_model() -> None:
    free = {HOST: AMPLE, "GPU0": 1100 + 6 * 60}
    plan = planned(free, drafters=(DRAFTER,))
    assert (plan.placement, plan.drafter_placement, plan.context.n_ctx) == (GPU0, None, 6144)
    # A context that would be short, or that was named, stays: the drafter goes.
    for options in ({"fixed_context": True}, {"n_ctx": 4096}):
        room = 1000 + (8192 if "fixed_context" in options else 4096) * 50 // 1024
        moved = planned({HOST: AMPLE, "GPU0": room}, drafters=(DRAFTER,), **options)
        assert (moved.placement, moved.drafter_placement) == (GPU0, ON_PROCESSOR)
        assert moved.context.n_ctx == options.get("n_ctx", 8192) and not moved.no_drafter
    # On the processor it leaves room for less context only.
    tight = planned({HOST: AMPLE, "GPU0": 1000 + 5 * 50}, drafters=(DRAFTER,))
    assert (tight.drafter_placement, tight.context.n_ctx) == (ON_PROCESSOR, 5120)


def test_less_context_where_a_draft_model_is_on_another_gpu() -> None:
    """The target alone has no room, and the other GPU has some for the drafter."""
    both = Placement(devices=("GPU0", "GPU1"))
    free = {HOST: AMPLE, "GPU0": 500 + 6 * 25, "GPU1": 900}
    plan = planned(free, placement=both, drafters=(DRAFTER,))
    assert (plan.placement, plan.drafter_placement, plan.context.n_ctx) == (both, GPU1, 6144)
    assert len(plan.notes) == 2


def test_a_short_context_is_no_reason_to_keep_all_layers_on_a_gpu() -> None:
    plan = planned({HOST: AMPLE, "GPU0": 1000 + 2 * 50})
    assert (plan.placement, plan.context.n_ctx) == (replace(GPU0, gpu_layers=7), 8192)


def test_what_the_user_put_somewhere_and_heads_stay() -> None:
    free = {HOST: AMPLE, "GPU0": WHOLE + BESIDE - 1}
    for drafter, named in ((DRAFTER, GPU0), (HEAD, None)):
        plan = planned(free, drafters=(drafter,), drafter_placement=named, fixed_context=True)
        assert plan.drafter_placement == named
        assert plan.placement == GPU0 and plan.drafter_kv_type == "q8_0"


def test_nothing_is_moved_where_main_memory_is_short() -> None:
    plan = planned(
        {HOST: 100, "GPU0": AMPLE}, placement=Placement(gpu_layers=5), drafters=(DRAFTER,)
    )
    assert plan.refusal and plan.drafter_placement is None


def test_a_drafter_nobody_asked_for_goes_before_layers_do() -> None:
    options: dict[str, Any] = {"drafters": (DRAFTER,), "optional_drafter": True}
    plan = planned({HOST: 50, "GPU0": WHOLE}, fixed_context=True, **options)
    assert plan.no_drafter and plan.placement == GPU0 and plan.drafter_placement is None
    shorter = planned({HOST: 50, "GPU0": 1000 + 4 * 50}, **options)
    assert shorter.no_drafter and shorter.placement == GPU0 and shorter.context.n_ctx == 4096


@pytest.mark.parametrize(("layers", "room"), [(9, 1400 - 1), (9, 1260), (8, 1259), (1, 140)])
def test_as_many_layers_as_fit(layers: int, room: int) -> None:
    plan = planned({HOST: AMPLE, "GPU0": room}, fixed_context=True)
    assert plan.placement == replace(GPU0, gpu_layers=layers)
    assert plan.notes[0].startswith(f"target: {plan.placement.in_words}, as all of it there would")


def test_without_room_for_a_layer_all_is_on_the_processor() -> None:
    plan = planned({HOST: AMPLE, "GPU0": 139}, fixed_context=True, drafters=(DRAFTER,))
    assert (plan.placement, plan.drafter_placement) == (ON_PROCESSOR, ON_PROCESSOR)
    assert not plan.refusal


def test_a_draft_model_that_was_put_where_it_does_not_fit_is_refused() -> None:
    plan = planned({HOST: AMPLE, "GPU0": 50}, drafters=(DRAFTER,), drafter_placement=GPU0)
    assert plan.refusal and plan.drafter_placement == GPU0


def test_a_number_of_layers_that_was_named_stays() -> None:
    named = replace(GPU0, gpu_layers=10)
    plan = planned({HOST: AMPLE, "GPU0": 1000 + 2 * 50}, placement=named)
    assert (plan.placement, plan.context.n_ctx) == (named, 2048)
    fixed = planned({HOST: AMPLE, "GPU0": 1000 + 2 * 50}, placement=named, fixed_context=True)
    assert fixed.refusal and fixed.placement == named


def test_a_drafter_stays_asked_for_where_layers_go() -> None:
    plan = planned({HOST: AMPLE, "GPU0": 1260}, drafters=(DRAFTER,), fixed_context=True)
    assert plan.placement == replace(GPU0, gpu_layers=9)
    assert plan.drafter_placement == ON_PROCESSOR and not plan.no_drafter


def test_experts_leave_a_gpu_before_layers_do() -> None:
    whole = WHOLE + 10
    for room, place in (
        (whole - 1, replace(GPU0, cpu_moe=1)),
        (whole - 80, replace(GPU0, cpu_moe=1)),
        (whole - 81, replace(GPU0, cpu_moe=2)),
        (whole - 800, replace(GPU0, cpu_moe=10)),
        (whole - 801, replace(GPU0, cpu_moe=-1, gpu_layers=9)),
    ):
        free = {HOST: AMPLE, "GPU0": room}
        plan = planned(free, target=EXPERTS, fixed_context=True, ubatch=512)
        assert plan.placement == place
    named = replace(GPU0, cpu_moe=3)
    plan = planned(
        {HOST: AMPLE, "GPU0": whole - 241}, target=EXPERTS, placement=named, fixed_context=True
    )
    assert plan.placement == replace(named, gpu_layers=9)


def test_prompts_are_read_in_wider_passes_where_there_is_room() -> None:
    named = {"target": EXPERTS, "placement": replace(GPU0, cpu_moe=3), "fixed_context": True}
    with_three = WHOLE - 240
    assert planned({HOST: AMPLE, "GPU0": with_three + 40}, **named).context.ubatch == 2048
    assert planned({HOST: AMPLE, "GPU0": with_three + 39}, **named).context.ubatch == 512
    assert planned({HOST: AMPLE, "GPU0": AMPLE}, ubatch=64, **named).context.ubatch == 64
    # The plan's own number of experts makes room.
    chosen = planned({HOST: AMPLE, "GPU0": WHOLE - 70}, target=EXPERTS, fixed_context=True)
    assert (chosen.placement.cpu_moe, chosen.context.ubatch) == (2, 2048)
    assert "the experts of 2 layers on the processor" in chosen.notes[0]
    every = planned({HOST: AMPLE, "GPU0": WHOLE - 800 + 10}, target=EXPERTS, fixed_context=True)
    assert (every.placement.cpu_moe, every.context.ubatch) == (10, 512)
    for elsewhere in ({"target": TARGET}, {"placement": GPU0}):
        plan = planned({HOST: AMPLE, "GPU0": AMPLE}, **(named | elsewhere))
        assert plan.context.ubatch is None
    worker = Placement(devices=("10.0.0.1:50052",), cpu_moe=3)
    far = planned({HOST: AMPLE, "10.0.0.1:50052": AMPLE}, **(named | {"placement": worker}))
    assert far.context.ubatch is None, "a worker has no weights in this main memory"


def test_a_gpu_that_computes_in_main_memory_gains_nothing_by_moves() -> None:
    free = {HOST: 1000 + 4 * 50, "GPU0": AMPLE}
    plan = planned(free, unified=("GPU0",), drafters=(DRAFTER,), optional_drafter=True)
    assert plan.placement == GPU0 and plan.no_drafter is None and plan.notes == ()
    shared = {HOST: 1000 + 4 * 50, "GPU0": 1000 + 4 * 50}
    plan = planned(shared, unified=("GPU0",), drafters=(DRAFTER,), optional_drafter=True)
    assert (plan.placement, plan.drafter_placement) == (GPU0, None)
    assert plan.no_drafter and plan.context.n_ctx == 4096


def test_what_others_hold_of_memory_that_is_lent_is_said() -> None:
    lent = {"unified": ("GPU0",), "lends": True}
    plan = planned({HOST: WHOLE - 1, "GPU0": AMPLE}, **lent)
    assert (plan.context.n_ctx, len(plan.notes)) == (8192, 1)
    assert "of main memory are needed" in plan.notes[0]
    assert planned({HOST: WHOLE, "GPU0": AMPLE}, **lent).notes == ()


# Models that share weights.


def test_heads_inside_take_no_weights_and_are_where_the_target_is(
    table: type[TableMemory],
) -> None:
    inside = replace(TARGET, has_mtp=True)
    plan = planned({HOST: AMPLE, "GPU0": 1000 + 2 * 400}, target=inside, drafters=(inside,))
    assert (plan.needed, plan.notes) == ((1000 + 2 * 400) * MIB, ())
    heads = [each for each in table.made if each.options.get("inside")]
    assert heads and all(each.options["mtp"] and each.placement == GPU0 for each in heads)
    less = planned({HOST: AMPLE, "GPU0": 1600}, target=inside, drafters=(inside,))
    assert less.drafter_placement is None and less.context.n_ctx < 8192


@pytest.mark.parametrize(("kind", "mtp"), [(None, False), (MTP, True), (EAGLE3, False)])
def test_a_file_of_its_own_is_never_inside(
    kind: str | None, mtp: bool, table: type[TableMemory]
) -> None:
    """Also where it is a model with heads inside."""
    drafter = replace(DRAFTER, kind=kind, has_mtp=True)
    planned({HOST: AMPLE, "GPU0": AMPLE}, drafters=(drafter,))
    (made,) = [each for each in table.made if each.facts is drafter]
    assert (made.options["mtp"], made.options["inside"]) == (mtp, False)


def test_a_target_that_drafts_for_itself_without_heads_takes_its_memory_twice() -> None:
    assert planned({HOST: AMPLE, "GPU0": AMPLE}, drafters=(TARGET,)).needed == 2 * WHOLE * MIB


def test_weights_that_are_loaded_are_not_counted(table: type[TableMemory]) -> None:
    plan = on_processor(400 + BESIDE, target_loaded=True)
    assert (plan.needed, plan.notes) == ((400 + BESIDE) * MIB, ())
    assert len({(each.facts, each.placement) for each in table.made}) == len(table.made)


# Images.

FOUND = ProjectorRoom("mmproj.gguf", 150 * MIB, is_asked=False)
ASKED = replace(FOUND, is_asked=True)


def seeing(gpu: int, projector: ProjectorRoom, **request: Any) -> MemoryPlan:
    return planned({HOST: AMPLE, "GPU0": gpu}, projector=projector, **request)


@pytest.mark.parametrize("projector", [FOUND, ASKED])
def test_images_have_room_on_a_gpu_where_all_of_it_fits(projector: ProjectorRoom) -> None:
    plan = seeing(WHOLE + BESIDE + 150, projector, drafters=(DRAFTER,))
    assert (plan.projector_gpu, plan.placement, plan.notes) == ("GPU0", GPU0, ())
    assert (plan.context.n_ctx, plan.drafter_placement) == (8192, None)


@pytest.mark.parametrize("gpu", [WHOLE + BESIDE + 149, WHOLE + BESIDE, 1360, 1260, 140, 100])
def test_no_text_is_slower_for_images_that_nobody_asked_for(gpu: int) -> None:
    request = {"drafters": (DRAFTER,), "fixed_context": True}
    plan = seeing(gpu, FOUND, **request)
    assert plan.projector_gpu is None
    assert plan == planned({HOST: AMPLE, "GPU0": gpu}, **request)


def test_what_layers_leave_is_for_images() -> None:
    """Nine layers fit, and what is left is no layer."""
    small = replace(FOUND, size=100 * MIB)
    plan = seeing(9 * 140 + 100, small, fixed_context=True)
    assert (plan.placement.gpu_layers, plan.projector_gpu) == (9, "GPU0")
    assert seeing(9 * 140 + 99, small, fixed_context=True).projector_gpu is None


def test_images_that_were_asked_for_come_before_the_rest() -> None:
    def asked(gpu: int, **request: Any) -> MemoryPlan:
        plan = seeing(gpu, ASKED, **request)
        assert plan.projector_gpu == "GPU0"
        return plan

    shorter = asked(1000 + 6 * 50 + 150)
    assert (shorter.placement, shorter.context.n_ctx) == (GPU0, 6144)
    assert shorter.notes[0].endswith("are free (mmproj.gguf takes 157.3 MB)")
    assert asked(WHOLE + 149, fixed_context=True).placement == replace(GPU0, gpu_layers=9)
    moved = asked(WHOLE + BESIDE, drafters=(DRAFTER,), fixed_context=True)
    assert (moved.placement, moved.drafter_placement) == (GPU0, ON_PROCESSOR)
    named = {"drafters": (DRAFTER,), "drafter_placement": GPU0, "fixed_context": True}
    alone = asked(WHOLE + 150, optional_drafter=True, **named)
    assert alone.no_drafter and alone.placement == GPU0


@pytest.mark.parametrize(
    ("gpu", "place", "layers"),
    [(289, GPU0, 2), (WHOLE, replace(GPU0, gpu_layers=10), 10), (139, GPU0, None)],
)
def test_images_are_read_on_the_processor_where_nothing_else_goes(
    gpu: int, place: Placement, layers: int | None
) -> None:
    """The projector would leave no layer there, or layers and context are named."""
    plan = seeing(gpu, ASKED, placement=place, fixed_context=True)
    assert plan.projector_gpu is None and not plan.refusal
    assert plan.placement == (replace(GPU0, gpu_layers=layers) if layers else ON_PROCESSOR)
    assert plan.notes[0].startswith("mmproj.gguf is on the processor: beside its model both would")
    assert "(mmproj.gguf takes 157.3 MB)" in plan.notes[0]


def test_images_come_before_further_texts() -> None:
    room = WHOLE + 150 + 400
    for projector in (FOUND, ASKED):
        plan = seeing(room, projector, texts=8)
        assert (plan.projector_gpu, plan.context.texts) == ("GPU0", 2)
    assert planned({HOST: AMPLE, "GPU0": room}, texts=8).context.texts == 2
    assert planned({HOST: AMPLE, "GPU0": room + 250}, texts=8).context.texts == 3


def test_images_are_read_on_the_gpu_with_the_most_room() -> None:
    both = Placement(devices=("gpu0", "gpu1", "10.0.0.1:50052"))
    free = FreeMemory({HOST: 9, "GPU0": 4, "GPU1": 5, "GPU2": 7, "10.0.0.1:50052": 8})
    assert free.freest_gpu(both.devices or ()) == "GPU1"
    assert free.freest_gpu(["10.0.0.1:50052", "CPU"]) is None


def test_a_processor_plans_nothing_for_images() -> None:
    for free in (2 * WHOLE, WHOLE, WHOLE - 10):
        expected = on_processor(free, drafters=())
        for projector in (FOUND, ASKED):
            assert on_processor(free, drafters=(), projector=projector) == expected


def test_a_gpu_that_computes_in_main_memory_has_images_too() -> None:
    for free, gpu in ((WHOLE + 150, "GPU0"), (WHOLE + 149, None)):
        plan = planned({HOST: free, "GPU0": free}, unified=("GPU0",), projector=FOUND)
        assert (plan.placement, plan.context.n_ctx, plan.projector_gpu) == (GPU0, 8192, gpu)
