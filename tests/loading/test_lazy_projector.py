"""Where the file that reads images is: on a GPU with room, else on the processor, and said."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.projectors import picture, seeing_model, tiny_projector

import localspec
from localspec.cli.media_options import require_projector
from localspec.gguf.projectors import ProjectorFile, check_projector
from localspec.llama import devices
from localspec.llama.placement import ON_PROCESSOR, Placement
from localspec.loading import drafter_plan, lazy_projector, places
from localspec.loading.lazy_projector import LazyProjector
from localspec.memory.available import GPU_RESERVE, HOST, FreeMemory, Shortage
from localspec.memory.memory_plan import memory_plan
from localspec.memory.projector_memory import projector_bytes
from localspec.memory.request import MemoryPlan, MemoryRequest, ProjectorRoom

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


@pytest.mark.parametrize(
    ("named", "is_asked"), [(None, False), ("mmproj-llama.gguf", True), ("none", None)]
)
def test_its_room_is_planned_with_the_model(
    named: str | None,
    is_asked: bool | None,
    file: ProjectorFile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan says where it is, as if there were a GPU."""
    requests = list[MemoryRequest]()

    def plan(request: MemoryRequest) -> MemoryPlan:
        requests.append(request)
        return replace(memory_plan(request), projector_gpu="GPU0")

    monkeypatch.setattr(drafter_plan, "memory_plan", plan)
    path = named and (named if named == "none" else file.path.with_name(named))
    options: Any = {"draft": "none", "threads": 1, "gpu_layers": 0, "context": 300}
    size = projector_bytes(file)
    with localspec.load(seeing_model("llama"), mmproj=path, **options) as engine:
        rooms = [request.projector for request in requests]
        projector = engine.model.projector
        if is_asked is None:
            assert projector is None and set(rooms) == {None}
            return
        assert set(rooms) == {ProjectorRoom(file.path.name, size, is_asked)}
        assert projector and projector.reserved == ({"GPU0": size} if is_asked else {})


def test_images_of_a_command_are_asked_for(file: ProjectorFile) -> None:
    given = {"--image": [picture()], "--audio": []}
    model = str(seeing_model("llama"))
    assert require_projector(given, model, None) == str(file.path)
    for named in (None, "none", "other.gguf"):
        assert require_projector({"--image": [], "--audio": []}, model, named) == named


def test_a_text_beside_others_leaves_it_its_room(
    file: ProjectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: Any = {"draft": "none", "threads": 1, "gpu_layers": 0, "context": 300}
    with localspec.load(seeing_model("llama"), mmproj=file.path, **options) as engine:
        target = engine.slots.own.loaded.target
        memory = places._Memory(target, engine.slots.own.loaded.header)
        free = memory._free()
        alone = memory._needed(2, free)
        assert isinstance(engine.model.projector, LazyProjector)
        engine.model.projector._planned_gpu = "GPU0"
        assert memory._needed(2, free) == alone + Counter({"GPU0": projector_bytes(file)})
        memory.close()


def test_an_engine_says_that_images_take_longer(file: ProjectorFile) -> None:
    options: Any = {"draft": "none", "threads": 1, "gpu_layers": 0, "context": 300}
    with localspec.load(seeing_model("llama"), **options) as engine:
        projector = engine.model.projector
        assert isinstance(projector, LazyProjector) and not engine.notes
        projector._shortage = Shortage("GPU0", 2, 1)
        assert [*engine.notes] == [projector.note]
