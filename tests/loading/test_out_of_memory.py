"""Memory that others take between the plan and the load: less is planned, and it is said."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest

import localspec
from localspec.drafters.spec import parse_draft
from localspec.engine.engine import load_with
from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.llama import library
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.loading import loader
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.memory import estimate, memory_plan
from localspec.memory.available import HOST, FreeMemory
from localspec.models import registry
from localspec.utils import lack_of_memory

MIB = 2**20
# Enough for the bundled pair, and too little for it with 512 MiB left free.
FREE = FreeMemory({HOST: 560 * MIB})
CUDA = (
    b"ggml_cuda_device_malloc: allocating 25.00 MiB on device 0: cudaMalloc failed: out of memory\n"
)
OPTIONS: dict[str, Any] = {"threads": 1, "gpu_layers": 0}


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        (CUDA.decode(), True),
        ("ggml_vulkan: Device memory allocation failed\nErrorOutOfDeviceMemory", True),
        ("ggml_metal_buffer_init: error: failed to allocate buffer, size = 4.00 MiB", True),
        ("ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 5", True),
        ("llama_model_load: error loading model: unable to allocate CUDA0 buffer", True),
        ("load_tensors: error: no_alloc is set; tensor 'output.weight' not found", False),
        ("", False),
    ],
)
def test_what_backends_say(said: str, lacks: bool) -> None:
    assert lack_of_memory.is_said_in(said) is lacks


def test_a_context_that_memory_is_too_small_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", fails(1, lambda *_: None))
    with Model(registry.bundled().target) as model:
        with pytest.raises(OutOfMemoryError, match=r"a context of 512 tokens .*cudaMalloc failed"):
            single_sequence(model, ContextParams(n_ctx=512, threads=1))
        with pytest.raises(ModelLoadError, match="no reason given") as told:
            single_sequence(model, ContextParams(n_ctx=512, threads=1))
        assert not isinstance(told.value, OutOfMemoryError)


def test_a_model_that_memory_is_too_small_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", fails(10, lambda *_: None))
    with pytest.raises(OutOfMemoryError, match=r"cudaMalloc failed.*close what else uses memory"):
        Model(registry.bundled().target)


def test_less_is_planned_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, settings = "List files by size", {"max_tokens": 20, "seed": 3}
    with localspec.load(**OPTIONS) as engine:
        expected, context = engine.generate(prompt, **settings), engine.context
        assert engine.drafter_set.names
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_places: FREE)
    with localspec.load(**OPTIONS) as engine:  # it fits
        assert (engine.context, [*engine.notes]) == (context, [])
    make = llama_cpp.llama_init_from_model
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", fails(1, make))
    with localspec.load(**OPTIONS) as engine:
        found, notes = engine.generate(prompt, **settings), [*engine.notes]
        assert (engine.context, engine.drafter_set.names) == (context, ["suffix"])
        assert "are free" in str(engine.drafter_set.reason)
    assert found.token_ids == expected.token_ids
    assert "memory ran out while loading, so less was planned" in notes[0]
    assert "cudaMalloc failed: out of memory" in notes[0]


@pytest.mark.parametrize("memory_faults", [1, 9])
def test_larger_plans_that_ran_out_before_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, memory_faults: int
) -> None:
    """Where there are smaller ones."""
    runtime = RuntimeConfig.of(**OPTIONS)
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_places: FREE)
    loads = count_loads(monkeypatch)
    config = EngineConfig(None, parse_draft("auto"), runtime, memory_faults=memory_faults)
    with load_with(config) as engine:
        assert engine.drafter_set.names == ["suffix"]
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_places: FreeMemory({HOST: 2**40}))
    with load_with(config) as engine:
        assert len(engine.drafter_set.names) == 2
    assert len(loads) == 2


@pytest.mark.parametrize("free", [FREE, FreeMemory({HOST: 2**40})])
def test_where_it_runs_out_again_and_again_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch, free: FreeMemory
) -> None:
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_places: free)
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", fails(10, lambda *_: None))
    loads = count_loads(monkeypatch)
    with pytest.raises(OutOfMemoryError, match="cudaMalloc failed"):
        localspec.load(**OPTIONS)
    # Where nothing less can be planned, it is not loaded again.
    assert len(loads) == (1 if free.total > 2**39 else 2)


def test_main_memory_that_is_gone_when_a_cache_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor's library is not asked: what it takes it gets, and then the system ends it."""
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_places: FREE)
    calls = []

    def little_at_first() -> SimpleNamespace:
        calls.append(None)
        return SimpleNamespace(available=1000 if len(calls) == 1 else 2**40)

    monkeypatch.setattr(estimate, "psutil", SimpleNamespace(virtual_memory=little_at_first))
    with localspec.load(**OPTIONS) as engine:
        assert "memory ran out while loading, so less was planned" in engine.notes[0]
        assert "try context" not in engine.notes[0]


def count_loads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """How often weights are loaded."""
    loads, load = list[None](), loader.Model

    def counted(*args: Any, **options: Any) -> Model:
        loads.append(None)
        return load(*args, **options)

    monkeypatch.setattr(loader, "Model", counted)
    return loads


def fails(times: int, works: Callable[..., Any]) -> Callable[..., Any]:
    """Calls that find no memory so many times, and then work."""
    left = [None] * times

    def call(*args: Any) -> Any:
        if not left:
            return works(*args)
        left.pop()
        library._capture(4, CUDA, None)
        return None

    return call
