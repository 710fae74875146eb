"""What is free, and what of it is free only once: a GPU may compute in main memory."""

from types import SimpleNamespace

import pytest

from localspec.llama import devices
from localspec.llama.devices import GPU, INTEGRATED_GPU, Device
from localspec.llama.placement import Placement
from localspec.memory import available
from localspec.memory.available import HOST, FreeMemory, Shortage

MIB, GIB = 2**20, 2**30


def test_the_worst_shortage_is_told() -> None:
    free = FreeMemory({HOST: 5, "CUDA0": 9})
    assert free.total == 14
    assert free.shortage({HOST: 5, "CUDA0": 9}) is None
    assert free.shortage({HOST: 6, "CUDA0": 9}) == Shortage(HOST, 6, 5)
    assert free.shortage({HOST: 6, "CUDA0": 11}) == Shortage("CUDA0", 11, 9)
    assert free.shortage({"of another machine": 99}) is None


# The system and the driver may count differently: the larger of both is there.
@pytest.mark.parametrize(("host", "gpu"), [(5, 3), (5, 9)])
def test_what_a_gpu_in_main_memory_takes_is_missing_there(host: int, gpu: int) -> None:
    free = FreeMemory({HOST: host, "MTL0": gpu, "desk:1": 2}, frozenset({"MTL0"}))
    most = max(gpu, host)
    assert free.total == most + 2
    assert free.shortage({"MTL0": gpu, HOST: most - gpu, "desk:1": 2}) is None
    assert free.shortage({"MTL0": gpu + 1}) == Shortage("MTL0", gpu + 1, gpu)
    both = Shortage(HOST, most + 1, most, ("MTL0",))
    assert free.shortage({"MTL0": gpu, HOST: most + 1 - gpu, "desk:1": 2}) == both
    words = f"would need {most + 1} bytes of main memory, MTL0 included, and {most} bytes are free"
    assert str(both) == words


@pytest.mark.parametrize(
    ("name", "kind", "machine", "unified"),
    [
        ("Vulkan0", INTEGRATED_GPU, "x86_64", True),
        ("Vulkan0", GPU, "x86_64", False),
        ("CUDA0", GPU, "arm64", False),
        ("MTL0", GPU, "arm64", True),
        ("MTL0", GPU, "x86_64", False),  # an AMD card of its own
    ],
)
def test_which_gpus_compute_in_main_memory(
    name: str, kind: str, machine: str, unified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Device(name, "a GPU", kind, 9 * GIB, 16 * GIB)
    monkeypatch.setattr(devices.platform, "machine", lambda: machine)
    monkeypatch.setattr(available, "devices", lambda: [gpu])
    monkeypatch.setattr(available, "usual_gpus", lambda: [name])
    found = available.free_memory()
    assert found.unified == (frozenset({name}) if unified else frozenset())
    assert found.lends == (unified and kind != INTEGRATED_GPU)
    assert found.by_device.keys() == {HOST, name}


# Of the last one nothing is known but its name.
DEVICES = [
    Device("CPU", "a processor", "cpu", 60 * GIB, 64 * GIB),
    Device("CUDA0", "a GPU", GPU, 13 * GIB, 16 * GIB),
    Device("CUDA1", "a full one", GPU, 100 * MIB, 16 * GIB),
    Device("Vulkan0", "one in the processor", INTEGRATED_GPU, 50 * GIB, 10 * GIB),
    Device("MTL0", "Apple's", GPU, 9 * GIB, 16 * GIB),
    Device("CUDA2", "a GPU", GPU, 0, 0),
]


@pytest.mark.parametrize(
    ("host", "placements", "free", "unified", "lends"),
    [
        (4 * GIB, [Placement()], {"CUDA0": 12800, "CUDA1": 0}, [], False),
        (50 * MIB, [Placement(devices=())], {}, [], False),
        (4 * GIB, [Placement(devices=("cuda0", "CUDA2"))], {"CUDA0": 12800}, [], False),
        # One in the processor has its own 2 GiB beside what is free of main memory.
        (4 * GIB, [Placement(devices=("Vulkan0",))], {"Vulkan0": 4000 + 2048}, ["Vulkan0"], False),
        (
            99 * GIB,
            [Placement(devices=("Vulkan0",))],
            {"Vulkan0": 50 * 1024 - 512},
            ["Vulkan0"],
            False,
        ),
        (
            4 * GIB,
            [Placement(devices=("MTL0",)), Placement(devices=("Vulkan0",))],
            {"MTL0": 8704, "Vulkan0": 4000 + 2048},
            ["MTL0", "Vulkan0"],
            True,
        ),
        (
            4 * GIB,
            [Placement(devices=("desk:1", "desk:2"))],
            {"desk:1": 3584, "desk:2": 0},
            [],
            False,
        ),
    ],
)
def test_what_is_free_on_a_machine(
    *,
    host: int,
    placements: list[Placement],
    free: dict[str, int],
    unified: list[str],
    lends: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """free: in MiB, by device; beside it, main memory, of which 96 MiB are kept free."""
    monkeypatch.setattr(devices.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(available, "host_memory", lambda: host)
    monkeypatch.setattr(available, "devices", lambda: DEVICES)
    monkeypatch.setattr(available, "usual_gpus", lambda: ["CUDA0", "CUDA1"])
    monkeypatch.setattr(available.psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB))
    sizes = {"desk:1": 4 * GIB, "desk:2": 3 * MIB}
    monkeypatch.setattr(available, "connect", lambda addresses: addresses)
    monkeypatch.setattr(
        available, "worker_memory", lambda found: {f"{each}": sizes[f"{each}"] for each in found}
    )
    found = available.free_memory(*placements)
    main = max(0, host - 96 * MIB)
    assert found.by_device == {HOST: main} | {name: size * MIB for name, size in free.items()}
    assert (found.unified, found.lends) == (frozenset(unified), lends)


def test_what_must_be_taken_from_other_programs() -> None:
    needed = {HOST: 3 * 2**20, "MTL0": 5 * 2**20, "CUDA0": 2**40}
    for free, crowds in ((8 * 2**20, False), (8 * 2**20 - 1, True)):
        lent = {HOST: free, "MTL0": 2**40, "CUDA0": 2**40}
        told = FreeMemory(lent, frozenset({"MTL0"}), lends=True).crowding(needed)
        assert (told is not None) == crowds
        assert told is None or told.startswith("8.4 MB of main memory are needed, and 8.4 MB are")
        assert FreeMemory(lent, frozenset({"MTL0"})).crowding(needed) is None


def test_less_is_less_on_each_device_and_never_below_nothing() -> None:
    for unified in ((), ("MTL0",)):
        free = FreeMemory({HOST: 5, "MTL0": 2}, frozenset(unified)).less(3)
        assert free.by_device == {HOST: 2 if unified else 5, "MTL0": 0}
        assert free.unified == frozenset(unified)
    assert FreeMemory({HOST: 5}).less(3).by_device == {HOST: 2}
