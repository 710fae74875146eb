"""What goes first when memory is short, and that what is left then really loads."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.mtp import write_target

import localspec
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.gguf.facts import facts_of
from localspec.llama.context_params import ContextParams
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.rollback import SNAPSHOTS
from localspec.loading.config import RuntimeConfig
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.memory_plan import best_plan, memory_plan
from localspec.memory.model_memory import ModelMemory
from localspec.memory.request import MemoryPlan, MemoryRequest
from localspec.models.registry import bundled
from localspec.utils.format import format_bytes

CONTEXT = 8192
PAIR = bundled()
MIB = 2**20


def request() -> MemoryRequest:
    target, drafter = map(facts_of, PAIR)
    context = ContextParams(CONTEXT)
    return MemoryRequest(
        target=target, drafters=(drafter,), context=context, placement=ON_PROCESSOR
    )


def with_context(request: MemoryRequest, **changes: Any) -> MemoryRequest:
    return replace(request, context=replace(request.context, **changes))


def needed(
    path: Path | None,
    context: int = CONTEXT,
    kv_type: str = "f16",
    *,
    snapshots: int = 0,
    texts: int = 1,
) -> int:
    assert path is not None
    model = ModelMemory(facts_of(path), ON_PROCESSOR)
    params = ContextParams(context, kv_type=kv_type, snapshots=snapshots, texts=texts)
    try:
        return model.bytes_by_device(params).total()
    finally:
        model.close()


BOTH = needed(PAIR.target) + needed(PAIR.drafter)
SMALLER_CACHE = needed(PAIR.target) + needed(PAIR.drafter, kv_type="q8_0")


@pytest.mark.parametrize("free", [BOTH, 100 * BOTH])
def test_all_is_kept_where_it_fits(free: int) -> None:
    plan = memory_plan(request(), FreeMemory({HOST: free}))
    assert plan == MemoryPlan(
        ContextParams(CONTEXT), "f16", needed=plan.needed, placement=ON_PROCESSOR
    )
    assert plan.needed == pytest.approx(BOTH, rel=0.2)


@pytest.mark.parametrize("texts", [1, 2, 3, 4])
@pytest.mark.parametrize("less", [0, 1])
def test_there_is_room_for_as_many_texts_as_fit(texts: int, less: int) -> None:
    for_texts = needed(PAIR.target, texts=texts) + needed(PAIR.drafter, texts=texts)
    asked = with_context(request(), texts=4)
    plan = memory_plan(asked, FreeMemory({HOST: for_texts - less}))
    assert plan.context.texts == max(1, texts - less)
    # Nothing is given up for a further text, only where not even one fits.
    kept = "q8_0" if texts == less else "f16"
    assert (plan.context.n_ctx, plan.drafter_kv_type) == (CONTEXT, kept)
    ample = memory_plan(asked, FreeMemory({HOST: 100 * for_texts}))
    assert (ample.context.texts, ample.notes) == (4, ())


def test_a_drafter_nobody_asked_for_goes_first() -> None:
    plan = memory_plan(replace(request(), optional_drafter=True), FreeMemory({HOST: BOTH - 1}))
    assert (plan.context, plan.notes) == (ContextParams(CONTEXT), ())
    assert plan.no_drafter == (
        f"terminal-5m-q4_0.gguf is left out: both would need {format_bytes(BOTH)}, "
        f"and {format_bytes(BOTH - 1)} are free"
    )


def test_with_heads_inside_their_snapshots_go_too(tmp_path: Path) -> None:
    path = write_target(tmp_path / "target.gguf")
    target, alone = facts_of(path), needed(path, 256)
    assert alone < needed(path, 256, snapshots=SNAPSHOTS)
    with_heads = MemoryRequest(
        target=target,
        context=ContextParams(256, snapshots=SNAPSHOTS),
        fixed_context=True,
        drafters=(target,),
        optional_drafter=True,
        placement=ON_PROCESSOR,
    )
    plan = memory_plan(with_heads, FreeMemory({HOST: alone}))
    assert plan.context == ContextParams(256)
    assert plan.no_drafter and "is left out" in plan.no_drafter
    assert memory_plan(with_heads, FreeMemory({HOST: 100 * alone})).context == with_heads.context


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("fitting", "kept"), [(8, 8), (7, 4), (4, 4), (1, 1)])
def test_fewer_snapshots_before_anything_else(
    tmp_path: Path, fitting: int, kept: int, optional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library tells sizes in steps that are larger than a state of this model.
    monkeypatch.setattr("localspec.memory.search._FEWER_SNAPSHOTS", (4, 1))
    path = write_target(tmp_path / "target.gguf")
    target = facts_of(path)
    asked = MemoryRequest(
        target=target,
        context=ContextParams(256, snapshots=SNAPSHOTS),
        drafters=(target,),
        optional_drafter=optional,
        placement=ON_PROCESSOR,
    )
    # What the whole request takes is told where it does not fit, too.
    too_little = FreeMemory({HOST: needed(path, 256)})
    both = best_plan(with_context(asked, snapshots=fitting), too_little).needed
    plan = memory_plan(asked, FreeMemory({HOST: both}))
    assert (plan.context, plan.no_drafter) == (ContextParams(256, snapshots=kept), None)
    note = f"drafts of more than {kept} tokens copy the state first: 8 snapshots of it would need"
    assert [each.startswith(note) for each in plan.notes] == ([] if kept == 8 else [True])


def test_models_without_states_are_not_asked_for_fewer_snapshots() -> None:
    asked = with_context(request(), snapshots=SNAPSHOTS)
    plan = memory_plan(asked, FreeMemory({HOST: BOTH - 1}))
    assert (plan.context.snapshots, plan.drafter_kv_type) == (SNAPSHOTS, "q8_0")
    assert len(plan.notes) == 1


def test_a_drafter_asked_for_keeps_its_cache_in_fewer_bits() -> None:
    plan = memory_plan(request(), FreeMemory({HOST: BOTH - 1}))
    assert (plan.context.n_ctx, plan.drafter_kv_type, plan.no_drafter) == (CONTEXT, "q8_0", None)
    assert [note.partition(",")[0] for note in plan.notes] == [
        "the drafter's cache is kept as q8_0"
    ]


def test_then_the_context_shrinks_to_what_just_fits() -> None:
    free = SMALLER_CACHE - 1
    plan = memory_plan(request(), FreeMemory({HOST: free}))
    assert plan.drafter_kv_type == "q8_0"
    assert plan.notes[-1].startswith(f"context {plan.context.n_ctx}: {CONTEXT} would need ")
    fits, more = (
        needed(PAIR.target, context) + needed(PAIR.drafter, context, "q8_0")
        for context in (plan.context.n_ctx, plan.context.n_ctx + 256)
    )
    assert fits <= free < more


def test_without_flash_attention_no_cache_can_be_kept_in_fewer_bits() -> None:
    plan = memory_plan(with_context(request(), flash_attention=False), FreeMemory({HOST: BOTH}))
    assert plan.drafter_kv_type == "f16"
    assert plan.context.n_ctx < CONTEXT


def test_a_context_that_was_named_is_refused_with_the_largest_that_fits() -> None:
    free = FreeMemory({HOST: needed(PAIR.target) // 2})
    named = replace(request(), drafters=(), fixed_context=True)
    with pytest.raises(ModelLoadError, match=r"8192 tokens would .* try context=\d+$") as error:
        memory_plan(named, free)
    largest = int(str(error.value).rpartition("=")[2])
    assert memory_plan(with_context(named, n_ctx=largest), free).context.n_ctx == largest
    with pytest.raises(ModelLoadError, match=f"try context={largest}$"):
        memory_plan(with_context(named, n_ctx=largest + 256), free)


@pytest.mark.parametrize("context", [CONTEXT, 2**31 - 1])
@pytest.mark.parametrize("free", [0, MIB])
def test_where_nothing_fits_it_is_said_and_no_memory_is_tried(context: int, free: int) -> None:
    hopeless = with_context(replace(request(), fixed_context=True), n_ctx=context)
    with pytest.raises(ModelLoadError, match=r"try a smaller quantisation, or draft='suffix'$"):
        memory_plan(hopeless, FreeMemory({HOST: free}))


LIMITED = """
import resource, sys
import psutil
from localspec.engine.engine import load
from localspec.errors import ModelLoadError
from localspec.llama import extra_buffers
more, draft = int(sys.argv[1]) * 2**20, sys.argv[2]
now = psutil.Process().memory_info().vms
resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))
try:
    with load(draft=draft, threads=1) as engine:
        text = engine.generate("def f(x):", max_tokens=16, seed=1).text
        notes = [note for note in engine.notes if note not in extra_buffers.notes()]
        print(engine.context, engine.drafter_set.names, engine.drafter_set.reason, *notes)
except ModelLoadError as error:
    print("refused:", error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on a process's memory")
@pytest.mark.parametrize(
    ("mebibytes", "draft", "says"),
    [
        (96 + 100, "auto", "2048 ['suffix', 'terminal-5m-q4_0'] None\n"),
        (96 + 45, "auto", "2048 ['suffix'] terminal-5m-q4_0.gguf is left out: both would need"),
        (96 + 55, str(PAIR.drafter), "2048 ['terminal-5m-q4_0'] None the drafter's cache is kept"),
        (96 + 25, "auto", " ['suffix'] terminal-5m-q4_0.gguf is left out: both would need"),
        (96 + 5, "auto", "refused: terminal-9m-q8_0.gguf: a context of 2048 tokens would need"),
    ],
)
def test_what_is_left_loads_and_generates(mebibytes: int, draft: str, says: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(mebibytes), draft],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert says in run.stdout


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0", "f32", "bf16"])
def test_every_type_of_cache_generates_and_is_in_the_recipe(kv_type: str) -> None:
    with localspec.load(draft="none", context=256, threads=1, kv_type=kv_type) as engine:
        running = engine.stream("def f(x):", max_tokens=4, seed=1)
        assert len(running.result().token_ids) == 4
        assert engine.recipe(running).kv_type == kv_type


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"kv_type": "q2_K"}, "kv_type is 'q2_K'; choose one of f32, f16"),
        ({"kv_type": "q8_0", "reproducible": True}, "and reproducible turns it off"),
        (
            {"kv_type": "q4_0", "flash_attention": False},
            "and flash_attention=False",
        ),
    ],
)
def test_types_of_cache_that_cannot_be(options: dict[str, object], wrong: str) -> None:
    with pytest.raises(InvalidValueError, match=wrong):
        RuntimeConfig(**options)  # type: ignore[arg-type]
