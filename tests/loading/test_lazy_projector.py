"""Where the file that reads images is: on a GPU with room, else on the processor, and said."""

from types import SimpleNamespace
from typing import Any

import pytest
from fakes.projectors import picture, tiny_projector

from localspec.gguf.projectors import ProjectorFile, check_projector
from localspec.llama import devices
from localspec.llama.placement import ON_PROCESSOR, Placement
from localspec.loading import lazy_projector
from localspec.loading.lazy_projector import LazyProjector
from localspec.memory.available import GPU_RESERVE, HOST, FreeMemory
from localspec.memory.projector_memory import projector_bytes

BOTH = Placement(devices=("GPU0", "GPU1"))


class Loaded:
    """As Projector, but for its work."""

    lack: str | None = None

    def __init__(self, *arguments: Any) -> None:
        self.gpu = arguments[-1]

    def tokens(self, _data: bytes) -> list[int]:
        return [-1]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_projector, "Projector", Loaded)


@pytest.fixture
def file() -> ProjectorFile:
    return check_projector(tiny_projector("llama"))


def loaded(
    file: ProjectorFile,
    monkeypatch: pytest.MonkeyPatch,
    free: dict[str, int],
    placement: Placement = BOTH,
    unified: tuple[str, ...] = (),
    **options: Any,
) -> tuple[str | None, LazyProjector]:
    """Where it is with so many bytes free besides its own."""
    size = projector_bytes(file)
    memory = FreeMemory({HOST: 0, **{name: size + more for name, more in free.items()}}, unified)
    monkeypatch.setattr(lazy_projector, "free_memory", lambda *_placements: memory)
    model: Any = SimpleNamespace(placement=placement, is_offloaded=not placement.is_on_processor)
    projector = LazyProjector(file, model, 1, 512, **options)
    assert projector.note is None
    assert projector.tokens(picture()) == [-1]
    assert isinstance(projector._loaded, Loaded)
    return projector._loaded.gpu, projector


def test_it_is_on_the_gpu_with_the_most_room(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, gpu in (({"GPU0": 0, "GPU1": 1}, "GPU1"), ({"GPU0": 0, "GPU1": -1}, "GPU0")):
        found, projector = loaded(file, monkeypatch, free)
        assert (found, projector.note) == (gpu, None)


def test_it_is_on_the_processor_without_room_and_says_so(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, projector = loaded(file, monkeypatch, {"GPU0": -1, "GPU1": -2})
    assert found is None
    assert projector.note is not None
    assert projector.note.startswith(
        f"{file.path.name} is on the processor, where images take longer: it would need "
    )
    assert projector.note.endswith(f" are free; mmproj {file.path} keeps room for it")
    _, asked = loaded(file, monkeypatch, {"GPU0": -1}, is_asked=True)
    assert asked.note is not None
    assert asked.note.endswith("; a smaller context or gpu_layers makes room")


def test_what_the_plan_left_for_the_driver_is_the_drivers(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU0 was chosen, whatever is free on the other one by now."""
    for more, gpu in ((0, "GPU0"), (-GPU_RESERVE, "GPU0"), (-GPU_RESERVE - 1, None)):
        free = {"GPU0": more, "GPU1": 5}
        assert loaded(file, monkeypatch, free, planned_gpu="GPU0")[0] == gpu


def test_a_gpu_that_computes_in_main_memory_takes_it_in_any_case(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, projector = loaded(file, monkeypatch, {"GPU0": -1}, unified=("GPU0",))
    assert (found, projector.note) == ("GPU0", None)


def test_it_is_on_the_processor_with_its_model(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for placement in (ON_PROCESSOR, Placement(gpu_layers=0), Placement(rpc=("a:1",), devices=())):
        monkeypatch.setattr(devices, "usual_gpus", lambda: ["GPU0"])
        found, projector = loaded(file, monkeypatch, {"GPU0": 5, "a:1": 5}, placement)
        assert (found, projector.note) == (None, None)


def test_what_was_asked_for_keeps_its_room_until_it_is_loaded(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = SimpleNamespace(placement=BOTH, is_offloaded=True)
    size = projector_bytes(file)
    for gpu, is_asked, kept in (
        ("GPU1", True, {"GPU1": size}),
        ("GPU1", False, {}),
        (None, True, {}),
    ):
        projector = LazyProjector(file, model, 1, 512, planned_gpu=gpu, is_asked=is_asked)
        assert projector.reserved == kept
    _, read = loaded(file, monkeypatch, {"GPU1": 0}, planned_gpu="GPU1", is_asked=True)
    assert read.reserved == {}
