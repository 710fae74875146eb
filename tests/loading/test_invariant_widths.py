"""The least width of reproducible passes is probed once, and again where kernels may be others."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.llama.batch_invariance import InvariantWidth
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.devices import Device
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.loading import fingerprints, invariant_widths
from localspec.loading.config import RuntimeConfig
from localspec.loading.invariant_widths import invariant_width
from localspec.utils.paths import cache_folder

RUNTIME = RuntimeConfig(reproducible=True, threads=1)
GPU = Device("Vulkan0", "one (driver 1)", "gpu", 1 << 30, 2 << 30)
WORKER = replace(GPU, name="RPC0", description="another machine")


@pytest.fixture
def context(
    target_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KVSequence]:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    with single_sequence(
        target_model, ContextParams(n_ctx=64, threads=1, flash_attention=False)
    ) as made:
        yield made


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    tried = list[int]()

    def probe(_context: KVSequence, widest: int) -> InvariantWidth:
        tried.append(widest)
        return InvariantWidth(2, 1.5)

    monkeypatch.setattr(invariant_widths, "probe", probe)
    return tried


def test_it_is_probed_once(context: KVSequence) -> None:
    found = invariant_width(context, 4, RUNTIME)
    context.set_tokens([1, 2, 3])
    assert invariant_width(context, 4, RUNTIME) == found
    # A second probe would have emptied the cache.
    assert context.tokens == [1, 2, 3]


def test_another_depth_or_setting_is_probed_too(context: KVSequence, probes: list[int]) -> None:
    for widest, runtime in ((4, RUNTIME), (8, RUNTIME), (4, replace(RUNTIME, threads=2))):
        for _ in range(2):
            invariant_width(context, widest, runtime)
    assert probes == [4, 8, 4]


@pytest.mark.parametrize("rows, cost", [(0, 1.0), (9, 1.0), (2, float("inf")), (2, -1.0)])
def test_a_damaged_file_is_replaced(
    context: KVSequence, probes: list[int], rows: int, cost: float
) -> None:
    found = invariant_width(context, 4, RUNTIME)
    (file,) = cache_folder("widths").iterdir()
    file.write_text(json.dumps({"least_rows": rows, "cost": cost}))
    assert invariant_width(context, 4, RUNTIME) == found
    assert probes == [4, 4]


def test_another_gpu_or_driver_is_another_machine(
    context: KVSequence, probes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = replace(GPU, description="one (driver 2)")
    for found in ([], [GPU], [newer], [newer, replace(GPU, name="Vulkan1")]):
        for free in (1 << 30, 1 << 20):
            now = [replace(device, free=free) for device in found]
            # A worker is called for by the settings; it comes and goes among the devices.
            monkeypatch.setattr(fingerprints, "devices", lambda now=now: [*now, WORKER])
            invariant_width(context, 4, RUNTIME)
    assert len(probes) == 4
