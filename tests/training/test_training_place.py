"""Training place: target and drafter take turns on a GPU, and what is too small is left."""

import threading
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from fakes.cut_target import write_cut_target

from localspec.conversion.target import TargetFile
from localspec.distillation import material
from localspec.distillation.material import Material
from localspec.distillation.row_cache import RowCache
from localspec.distillation.work_folder import WorkFolder
from localspec.errors import LocalspecError

torch = pytest.importorskip("torch")

from fakes.training_runs import request  # noqa: E402

from localspec.gguf.writer import TensorType  # noqa: E402
from localspec.training import device, rounds, training_place  # noqa: E402
from localspec.training.cut_shape import CutSource  # noqa: E402
from localspec.training.draft_model_kind import DraftModel  # noqa: E402
from localspec.training.drafter_kind import KindOptions, TrainableDrafter  # noqa: E402
from localspec.training.own_training import OwnTraining  # noqa: E402
from localspec.training.training_place import TrainingPlace  # noqa: E402
from localspec.training.training_size import TrainingSize  # noqa: E402

NOTHING = TrainingSize(0, 0, 64, 200, 0.0)
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
METAL = RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)")
NO_KERNEL = RuntimeError(
    "CUDA error: no kernel image is available for execution on the device\nCompile with ..."
)
NO_FUNCTION = RuntimeError("HIP error: invalid device function\nHIP kernel errors might be ...")
NO_OPERATOR = NotImplementedError("The operator 'aten::x' is not currently implemented for MPS.")
MAIN = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to")
CUBLAS = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


@pytest.fixture
def target(short_texts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rounds, "_SAVE_SECONDS", 0.0)
    torch.set_num_threads(1)
    return write_cut_target(tmp_path / "target.gguf")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for a GPU that the target may be on."""
    here = torch.device("cpu")
    monkeypatch.setattr(TrainingPlace, "is_shared", property(lambda self: self.device is here))
    monkeypatch.setattr(training_place, "described", lambda each: "GPU" if each is here else "CPU")

    def choose(name: str) -> Any:
        return torch.device("cpu") if name == "cpu" else here

    monkeypatch.setattr(training_place, "choose_device", choose)


def train(made: Any) -> tuple[Any, list[str]]:
    said: list[str] = []
    training = OwnTraining(made, lambda _: None, said.append, threading.Event())
    return training.run(), said


@pytest.mark.usefixtures("gpu")
def test_target_and_drafter_take_turns(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    loaded: list[Material] = []

    def noted(owner: Any, name: str, event: str) -> None:
        real = getattr(owner, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(self, Material) and self not in loaded:
                loaded.append(self)
            # What torch computes while the target is loaded would share its device.
            together = any(each._engine is not None for each in loaded)
            events.append(f"{event}{' beside the target' if together else ''}")
            return real(self, *arguments, **options)

        monkeypatch.setattr(owner, name, call)

    noted(Material, "sample", "read")
    noted(DraftModel, "agreement", "tried")
    noted(DraftModel, "loss", "trained")
    noted(TrainableDrafter, "to", "moved")
    noted(rounds.Rounds, "release", "freed")
    noted(Material, "release", "target freed")
    options = KindOptions(layers=2, cut="auto")
    done, _ = train(request(target, tmp_path / "draft.gguf", options=options))
    assert done.finished and done.trials
    assert {"tried", "trained", "moved", "freed"} <= set(events)
    together = [each for each in events if "beside" in each]
    # Only the drafter's way back to main memory needs no room.
    assert not [each for each in together if each.startswith(("tried", "trained"))], together
    assert events.index("freed") > max(i for i, each in enumerate(events) if each == "trained")
    assert len([each for each in events if each.startswith("target freed")]) >= 3


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("error", [FULL, METAL, CUBLAS], ids=["cuda", "mps", "cublas"])
@pytest.mark.parametrize("step", [0, 2, 9])
def test_a_device_that_turns_out_too_small(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, step: int
) -> None:
    """The processor goes on, from what was saved; step: of training, some while it is measured."""
    seed = {"seed": 3}
    whole, _ = train(request(target, tmp_path / "whole" / "draft.gguf", **seed))
    expected = whole.path.read_bytes()
    update, steps = rounds._update, [0]

    def full(*arguments: Any) -> None:
        steps[0] += 1
        if steps[0] == step + 1:
            raise error
        update(*arguments)

    monkeypatch.setattr(rounds, "_update", full)
    done, said = train(request(target, tmp_path / "again" / "draft.gguf", anew=True, **seed))
    small = "the memory of GPU is too small for this training: the processor trains it from here"
    assert small in said
    assert [line for line in said if line.endswith("trained on CPU")]
    assert done.finished
    assert done.path.read_bytes() == expected


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("cache", [1, 1_100_000])
def test_rows_that_are_read_again_are_read_while_the_drafter_is_away(
    cache: int, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is loaded without drafters then, once for all shards that the disk may hold."""
    read, update, load, move = Material.read, rounds._update, material.load, rounds.Rounds._move
    events, loaded = list[str](), list[Material]()

    def noted(self: Material, texts: Any) -> Any:
        loaded.append(self)
        events.append("read")
        return read(self, texts)

    def step(*arguments: Any) -> None:
        assert loaded[-1]._engine is None
        events.append("trained")
        update(*arguments)

    def loading(*arguments: Any, **options: Any) -> Any:
        events.append(f"loaded {options.get('draft', '')}")
        return load(*arguments, **options)

    def moved(self: rounds.Rounds, where: torch.device) -> None:
        events.append("moved")
        move(self, where)

    monkeypatch.setattr(Material, "read", noted)
    monkeypatch.setattr(rounds, "_update", step)
    monkeypatch.setattr(rounds.Rounds, "_move", moved)
    monkeypatch.setattr(material, "load", loading)
    done, _ = train(request(target, tmp_path / "draft.gguf", cache=cache, tokens=2400))
    assert done.finished
    within = events[events.index("moved") : len(events) - events[::-1].index("moved")]
    turns = [list(turn) for isit, turn in groupby(within, lambda each: each != "trained") if isit]
    for turn in turns:
        assert turn[:3] == ["moved", "read", "loaded none"] and turn[-1] == "moved"
        assert set(turn[3:-1]) <= {"read"}
    # Of four shards, three have room on the larger disk.
    assert max(turn.count("read") for turn in turns) == (1 if cache == 1 else 3)
    assert len(turns) == (16 if cache == 1 else 5)


@pytest.mark.usefixtures("gpu")
def test_the_drafter_stays_where_main_memory_has_no_room_for_it(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves, turns = list[torch.device](), list[int]()
    read = RowCache.read

    def turn(self: RowCache, order: Any) -> Any:
        turns.append(len(moves))
        return read(self, order)

    monkeypatch.setattr(rounds.Rounds, "_move", lambda _, where: moves.append(where))
    monkeypatch.setattr(RowCache, "read", turn)
    for free, each in ((0, 1), (1 << 40, 2)):
        monkeypatch.setattr(rounds, "host_memory", lambda free=free: free)
        moves.clear(), turns.clear()
        train(request(target, tmp_path / "draft.gguf", cache=1, tokens=300, anew=True))
        within = [number for number in turns if number]
        assert len(moves) == each * len(moves) // each and len(within) >= 3
        assert within == [*range(within[0], within[0] + each * len(within), each)]


def test_all_that_is_trained_leaves_the_device(target: Path, tmp_path: Path) -> None:
    drafter = DraftModel(CutSource(TargetFile(target)), [0, 1], TensorType.Q8_0)
    training = rounds.Rounds(
        drafter, RowCache(WorkFolder([1]), [], pytest.fail, 1), [], WorkFolder([1]),
        rounds=1, steps=1, seed=1, width=64,
    )  # fmt: skip
    for weight in drafter.parameters():
        weight.grad = torch.ones_like(weight)
    for optimizer in training._optimizers:
        optimizer.step()
    training._move(torch.device("meta"))
    kept = [value for each in training._optimizers for value in _values(each)]
    assert len(kept) > 20
    assert {each.device.type for each in [*drafter.parameters(), *kept]} == {"meta"}


def _values(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = optimizer.state.values()
    return [value for state in states for value in state.values() if value.dim()]


@pytest.mark.usefixtures("gpu")
def test_memory_that_ends_everywhere_is_one_line(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any) -> None:
        raise FULL

    monkeypatch.setattr(rounds, "_update", full)
    with pytest.raises(LocalspecError, match="main memory is too small for this training; close"):
        train(request(target, tmp_path / "draft.gguf"))


@pytest.mark.usefixtures("gpu")
def test_a_device_that_was_named_is_not_left(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, save, saved = rounds._update, rounds.Rounds._save, list[bool]()

    def full(*arguments: Any) -> None:
        if len(saved) == 1:
            saved.append(False)
            raise FULL
        update(*arguments)

    def noted(self: rounds.Rounds) -> None:
        save(self)
        saved.append(True)

    monkeypatch.setattr(rounds, "_update", full)
    monkeypatch.setattr(rounds.Rounds, "_save", noted)
    out = tmp_path / "draft.gguf"
    with pytest.raises(LocalspecError, match=r"memory of GPU is too small .*--device cpu --resume"):
        train(request(target, out, device="cuda"))
    # On another device it goes on: that is no part of what a training is.
    done, said = train(request(target, out, device="cpu", resume=True))
    assert done.finished
    assert [line for line in said if line.startswith("going on where the last training was saved")]


def test_another_error_is_raised_as_it_is() -> None:
    place = TrainingPlace("cpu", lambda _: None, NOTHING)
    with pytest.raises(RuntimeError, match="shapes"):
        place.give_up(RuntimeError("shapes differ"))
    with pytest.raises(NotImplementedError):
        place.give_up(NO_OPERATOR)
    with pytest.raises(LocalspecError, match="main memory is too small for this"):
        place.give_up(FULL)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("error", [NO_KERNEL, NO_FUNCTION, NO_OPERATOR])
def test_a_device_that_torch_cannot_compute_on(error: RuntimeError) -> None:
    said = list[str]()
    place = TrainingPlace("auto", said.append, NOTHING)
    place.give_up(error)
    why = str(error).partition("\n")[0].rstrip(".")
    assert said == [
        f"torch {torch.__version__} cannot train on GPU ({why}): the processor trains it from here"
    ]
    assert not place.is_shared
    named = TrainingPlace("cuda", said.append, NOTHING)
    with pytest.raises(LocalspecError, match=r"cannot train on GPU .*; go on with --device cpu"):
        named.give_up(error)


@pytest.mark.usefixtures("gpu")
def test_main_memory_that_ends_is_not_the_devices() -> None:
    place = TrainingPlace("auto", pytest.fail, NOTHING)
    with pytest.raises(LocalspecError, match="main memory is too small for this"):
        place.give_up(MAIN)


def test_metal_has_what_torch_keeps_for_later_free(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"recommended_max": 10_000, "driver_allocated": 6_000, "current_allocated": 1_000}
    for name, size in told.items():
        monkeypatch.setattr(torch.mps, f"{name}_memory", lambda size=size: size)
    for host, free in ((50_000, 9_000), (500, 5_500)):
        monkeypatch.setattr(device, "host_memory", lambda host=host: host)
        assert device.free_bytes(torch.device("mps")) == free


def test_what_does_not_fit_is_tried_on_the_processor(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafter that is only tried takes its weights, and a batch."""
    drafter = DraftModel(CutSource(TargetFile(target)), [0, 1], TensorType.Q8_0)
    monkeypatch.setattr(device, "_BATCH_BYTES", 1000)
    weights = sum(each.numel() for each in drafter.parameters())
    gpu = torch.device("meta")
    needed = 4 * weights + 1000
    for free, expected in ((needed, "meta"), (needed - 1, "cpu"), (None, "meta")):
        monkeypatch.setattr(device, "free_bytes", lambda _, free=free: free)
        assert device.with_room(drafter, gpu).type == expected
