"""What models take is known before, and nothing grows with context times vocabulary."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from struct import pack

import psutil
import pytest
from fakes.tiny import FAMILIES, write_tiny

from localspec.bench.experiments.context_memory import BUDGET, measure
from localspec.gguf import check
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.dry_run import ContextMemory, DryModel, parse_context_memory
from localspec.llama.library import captured_log
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.memory import estimate
from localspec.models import registry

MIB = 2**20
# The type of a number in a GGUF's header.
_UINT32 = 4

MEASURE = """
import sys
import psutil
import localspec
context, target, drafter = int(sys.argv[1]), *sys.argv[2:]
with localspec.load(target, drafter, context=context, threads=1) as engine:
    assert engine.context == context
    engine.generate("def f(x):", max_tokens=16, seed=1)
    print(psutil.Process().memory_info().rss)
"""


def resident(context: int, *models: Path) -> int:
    command = [sys.executable, "-c", MEASURE, str(context), *map(str, models)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(run.stdout)


def made_for(context: int, model: Path, folder: Path) -> Path:
    """A copy of a model which says that it was made for so many tokens."""
    own = check.check_generative(model).context_length or 0
    key = b"llama.context_length" + pack("<I", _UINT32)
    data = model.read_bytes()
    assert data.count(key + pack("<I", own)) == 1
    copy = folder / model.name
    copy.write_bytes(data.replace(key + pack("<I", own), key + pack("<I", context)))
    return copy


@pytest.mark.slow
def test_a_longer_context_costs_its_keys_and_values_and_no_more(tmp_path: Path) -> None:
    small, large = 1024, 65536
    pair = registry.bundled()
    assert pair.drafter is not None
    models = [made_for(large, path, tmp_path) for path in (pair.target, pair.drafter)]
    headers = [check.check_generative(path) for path in models]
    caches = sum(
        (estimate.cache_bytes(header, large) or 0) - (estimate.cache_bytes(header, small) or 0)
        for header in headers
    )
    # Logits for every position would be (65536 - 1024) * 4096 floats: another 1,056 MB.
    assert resident(large, *models) - resident(small, *models) < caches + 64 * 2**20


@pytest.mark.slow
def test_nothing_grows_with_context_times_vocabulary() -> None:
    found = measure(n_ctx=32_768, vocabulary=131_072, tokens=2048)
    assert found.tokens == 2048
    assert found.drafted
    # Logits for every position would be 16 GiB, for each of the two models.
    assert found.buffers < BUDGET
    assert found.beyond < found.vocabularies + found.buffers + 64 * MIB


@pytest.mark.parametrize(
    ("kv_type", "flash_attention"),
    [
        ("f16", None),
        ("f16", False),
        ("q8_0", None),
        ("q8_0/q4_0", None),
        ("f16/q8_0", None),
        ("q4_0/f32", False),
    ],
)
@pytest.mark.parametrize("n_ctx", [300, 4096])
def test_a_dry_model_takes_what_a_real_one_does(
    n_ctx: int, kv_type: str, flash_attention: bool | None
) -> None:
    path = registry.bundled().target
    params = ContextParams(n_ctx, flash_attention=flash_attention, kv_type=kv_type)
    with DryModel(path, ON_PROCESSOR) as dry:
        said = dry.context_memory(params)
    with Model(path, ON_PROCESSOR) as model, captured_log() as lines:
        Context(model, params).close()
    assert said == parse_context_memory(lines)
    assert said is not None
    cells = -(-n_ctx // 256) * 256
    cache = estimate.cache_bytes(check.check_generative(path), cells, kv_type)
    assert said.cache["CPU"] == pytest.approx(cache, abs=MIB / 100)


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_a_model_keeps_of_a_text(family: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / f"{family}.gguf", family)
    with DryModel(path, ON_PROCESSOR) as dry:
        said = dry.context_memory(ContextParams(2048))
    with Model(path, ON_PROCESSOR) as model, captured_log() as lines:
        Context(model, ContextParams(2048)).close()
    assert said == parse_context_memory(lines)
    assert said is not None
    assert said.cache["CPU"]
    assert said.compute_buffers["CPU"]


def test_a_window_that_keeps_the_whole_text(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "gemma3.gguf", "gemma3")
    params = ContextParams(2048, flash_attention=False, swa_full=True)
    with DryModel(path, ON_PROCESSOR) as dry:
        said = dry.context_memory(params)
        window = dry.context_memory(replace(params, swa_full=False))
    with Model(path, ON_PROCESSOR) as model, captured_log() as lines:
        Context(model, params).close()
    assert said == parse_context_memory(lines)
    assert said is not None and window is not None
    times = 2048 / padded(16 + 512)
    assert said.cache["CPU"] == pytest.approx(times * window.cache["CPU"], rel=0.1)


@pytest.mark.parametrize(
    ("texts", "branches", "snapshots"), [(4, 0, 0), (3, 3, 0), (40, 0, 2), (1, 3, 0)]
)
@pytest.mark.parametrize("family", ["llama", "gemma3", "mamba", "qwen35"])
def test_room_for_several_texts(
    family: str, texts: int, branches: int, snapshots: int, tmp_path: Path
) -> None:
    alone = ContextParams(1024, flash_attention=True)
    params = replace(alone, texts=texts, branches=branches, snapshots=snapshots)
    path = write_tiny(tmp_path / f"{family}.gguf", family)
    with DryModel(path, ON_PROCESSOR) as dry:
        one = dry.context_memory(alone)
        said = dry.context_memory(params)
    with Model(path, ON_PROCESSOR) as model, captured_log() as lines:
        Context(model, params).close()
    assert said == parse_context_memory(lines)
    assert one is not None and said is not None
    # States and windows are kept for each sequence id, other keys and values for each text.
    ids = texts + branches
    times = {"llama": texts, "mamba": ids, "gemma3": padded(16 * ids + 512) / padded(16 + 512)}
    if family in times:
        assert said.cache["CPU"] == pytest.approx(times[family] * one.cache["CPU"], rel=0.1)


def padded(cells: int) -> int:
    return -(-cells // 256) * 256


def test_snapshots_of_a_state_are_counted(tmp_path: Path) -> None:
    sizes = []
    for snapshots in (0, 8):
        with DryModel(write_tiny(tmp_path / "qwen35.gguf", "qwen35"), ON_PROCESSOR) as dry:
            said = dry.context_memory(ContextParams(256, snapshots=snapshots))
        assert said is not None
        sizes.append(said.cache["CPU"])
    # The state has 16.9 kB; the library says its size to a hundredth of a MiB.
    assert sizes[1] - sizes[0] == pytest.approx(8 * 16_900, abs=0.02 * MIB)


def test_a_dry_model_takes_nothing_itself() -> None:
    with DryModel(registry.bundled().target, ON_PROCESSOR) as dry:
        before = psutil.Process().memory_info().rss
        said = dry.context_memory(ContextParams(2**17))
        assert said is not None
        grown = psutil.Process().memory_info().rss - before
        assert said.cache["CPU"] == 2**30 > 16 * grown


def test_a_context_that_cannot_be_made_has_no_figure() -> None:
    with DryModel(registry.bundled().target, ON_PROCESSOR) as dry:
        params = ContextParams(256, flash_attention=False, kv_type="q8_0")
        assert dry.context_memory(params) is None


def test_devices_are_told_apart() -> None:
    log = """\
llama_kv_cache: layer   0: dev = CPU
llama_kv_cache: layer   1: dev = CUDA0
llama_kv_cache: layer   2: dev = CUDA0
llama_kv_cache: size =  48.00 MiB (  4096 cells,   3 layers,  1/1 seqs), K (f16):   24.00 MiB, V
llama_kv_cache: layer   3: dev = CUDA1
llama_kv_cache: size =  5.50 MiB (  1024 cells,   1 layers,  1/1 seqs), K (f16):   2.75 MiB, V
sched_reserve:      CUDA0 compute buffer size =    30.00 MiB
sched_reserve:  CUDA_Host compute buffer size =     7.25 MiB
sched_reserve:        CPU compute buffer size =     1.00 MiB
"""
    assert parse_context_memory(log.splitlines()) == ContextMemory(
        cache={"CPU": 16 * MIB, "CUDA0": 32 * MIB, "CUDA1": 5 * MIB + MIB // 2},
        compute_buffers={"CUDA0": 30 * MIB, "CPU": 8 * MIB + MIB // 4},
    )
