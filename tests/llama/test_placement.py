"""What a user may ask for about devices, and what becomes of it without any."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

import localspec
from localspec.errors import InvalidValueError
from localspec.gguf.facts import facts_of
from localspec.llama import devices
from localspec.llama.devices import GPU, INTEGRATED_GPU, Device, captures_graphs, gpu_pointers
from localspec.llama.placement import (
    DEFAULT,
    ON_PROCESSOR,
    Placement,
    for_head,
    parse_devices,
    parse_shares,
)
from localspec.loading.config import RuntimeConfig
from localspec.memory import available
from localspec.memory.available import HOST, free_memory
from localspec.models.registry import bundled

GIB = 2**30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu_layers": -2}, "gpu_layers is -2; it must be a number of layers, or -1 for all"),
        ({"cpu_moe": 10**6}, "cpu_moe is 1000000; it must be a number of layers"),
        ({"split_mode": "column"}, "split_mode is 'column'; it must be layer or row"),
        ({"tensor_split": (0.0, 0.0)}, "tensor_split is 0.0,0.0; it must be a share of each"),
        ({"tensor_split": (1.0, -1.0)}, "tensor_split is 1.0,-1.0; "),
        ({"tensor_split": (float("nan"),)}, "tensor_split is nan; "),
        ({"tensor_split": (1e39, 1.0)}, "tensor_split is 1e+39,1.0; "),
        ({"devices": ("desk:0",)}, "device is 'desk:0'; a worker is named HOST:PORT"),
        ({"rpc": ("desk:1",), "devices": ("desk:1",)}, "it names desk:1 twice"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValueError, match=re.escape(message)):
        Placement(**options)  # type: ignore[arg-type]


def test_devices_are_named_by_the_user() -> None:
    assert parse_devices(None) is None
    assert parse_devices(["none"]) == parse_devices([" CPU "]) == ()
    assert parse_devices(["CUDA0", " desk:1"]) == ("CUDA0", "desk:1")
    assert parse_devices("CUDA0, desk:1") == ("CUDA0", "desk:1")
    assert parse_devices("none") == ()
    for wrong in (["CUDA0", "none"], ["CUDA0", "cuda0"], [""], ["a", ""]):
        with pytest.raises(InvalidValueError, match="name each device once, or none alone"):
            parse_devices(wrong)
    assert parse_shares("") == ()
    assert parse_shares("3, 1.5") == (3, 1.5)
    with pytest.raises(InvalidValueError, match="tensor_split is '3;1'; it must be a share"):
        parse_shares("3;1")


def test_a_placement_is_told_in_words() -> None:
    assert DEFAULT.in_words == "all layers on GPUs"
    assert ON_PROCESSOR.in_words == Placement(gpu_layers=0).in_words == "on the processor"
    assert Placement(1, ("A", "b:1")).in_words == "1 layer on A, b:1"
    found = Placement(20, rpc=("b:1",), cpu_moe=-1).in_words
    assert found == "20 layers on b:1, GPUs, the experts of all layers on the processor"


def test_the_pattern_of_experts_names_their_tensors_alone() -> None:
    names = [f"blk.{layer}.ffn_{part}.weight" for layer in (1, 2, 12) for part in EXPERTS + OTHERS]
    assert DEFAULT.experts_pattern is None
    pattern = Placement(cpu_moe=2).experts_pattern
    assert pattern
    found = [name for name in names if re.search(pattern, name)]
    assert found == [f"blk.1.ffn_{part}.weight" for part in EXPERTS]
    every = Placement(cpu_moe=-1).experts_pattern
    assert every
    assert sum(bool(re.search(every, name)) for name in names) == 3 * len(EXPERTS)


EXPERTS = ["gate_exps", "up_exps", "down_exps", "gate_up_exps", "up_chexps"]
OTHERS = ["gate", "up_shexp", "gate_inp", "norm"]


def test_a_head_takes_the_devices_of_its_target_along() -> None:
    target = Placement(devices=("A", "B"), cpu_moe=3)
    assert for_head(target, None, ["A"]) == target
    assert for_head(target, Placement(devices=("B",)), ["A"]) == Placement(
        devices=("B", "A"), tensor_split=(1, 0)
    )
    assert for_head(target, ON_PROCESSOR, ["A"]) == Placement(0, ("A", "B"))
    usual = Placement(rpc=("b:1",))
    found = for_head(usual, Placement(devices=("c:1",)), ["A"])
    assert found == Placement(devices=("c:1", "b:1", "A"), tensor_split=(1, 0, 0))
    # Names may be written in several ways.
    found = for_head(Placement(rpc=("desk",)), Placement(devices=("a",)), ["A"])
    assert found == Placement(devices=("a", "desk:50052"), tensor_split=(1, 0))
    assert for_head(target, Placement(1), ["C"]) == Placement(1, ("A", "B"))


@pytest.mark.parametrize("draft", ["auto", "none", None])
@pytest.mark.parametrize("options", [{"device": ["NoGPU7"]}, {"draft_device": ["NoGPU7"]}])
def test_a_device_that_is_not_here_is_named_with_those_that_are(
    options: dict[str, list[str]], draft: str | None
) -> None:
    here = ", ".join(gpu_pointers()) or "this build of llama.cpp finds no GPU"
    with pytest.raises(InvalidValueError, match=rf"device 'NoGPU7' is not here; .*{here}"):
        localspec.load(draft=draft or str(bundled().drafter), **options)


def test_layers_of_a_drafter_are_where_it_is() -> None:
    def place(**options: Any) -> Placement:
        return RuntimeConfig.of(**options).place_of_drafter(None)

    assert place(device=["CUDA1"], draft_gpu_layers=4) == Placement(4, ("CUDA1",))
    assert place(device=["none"], draft_gpu_layers=4).is_on_processor
    assert place(device=["CUDA1"], draft_device=["none"]).is_on_processor
    assert place(draft_device=["desk:1"], draft_gpu_layers=4) == Placement(4, ("desk:1",))


def test_more_layers_than_there_are_mean_all() -> None:
    """Eight layers and the output are nine."""
    for count in (None, -1, 0, 1, 8):
        assert Placement(count).for_layers(8) == Placement(count)
    for count in (9, 99):
        everywhere = Placement(count, ("CUDA1",)).for_layers(8)
        assert everywhere == Placement(-1, ("CUDA1",))
        assert everywhere.is_on_devices


def test_only_cuda_and_rocm_capture_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, captures in (("CUDA0", True), ("ROCm0", True), ("MTL0", False), ("Vulkan0", False)):
        monkeypatch.setattr(devices, "usual_gpus", lambda name=name: [name])
        assert captures_graphs(DEFAULT) == captures
    assert not captures_graphs(Placement(devices=("desk:1",)))
    assert captures_graphs(Placement(devices=("desk:1", "cuda1")))
    assert not captures_graphs(Placement(0, ("CUDA0",)))


@pytest.mark.parametrize(
    ("kind", "total", "free"),
    # The last one has 8 GiB that the system does not see.
    [(GPU, 16, 8), (INTEGRATED_GPU, 16, 3), (INTEGRATED_GPU, 40, 8)],
)
def test_a_gpu_in_the_processor_has_no_more_than_main_memory(
    kind: str, total: int, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Device("Vulkan0", "a GPU", kind, 9 * GIB, total * GIB)]
    machine = SimpleNamespace(total=32 * GIB)
    monkeypatch.setattr(available.psutil, "virtual_memory", lambda: machine)
    monkeypatch.setattr(available, "devices", lambda: found)
    monkeypatch.setattr(available, "usual_gpus", lambda: ["Vulkan0"])
    monkeypatch.setattr(available, "host_memory", lambda: 4 * GIB)
    assert free_memory().by_device["Vulkan0"] // GIB == free
    assert free_memory().by_device[HOST] < 4 * GIB


def test_facts_know_experts() -> None:
    assert not facts_of(bundled().target).has_experts
