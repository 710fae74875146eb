"""Devices: a GPU that is too small is said before anything is lost, with what fits."""

from pathlib import Path

import pytest
from fakes.cut_target import write_cut_target

from localspec.conversion.target import Target
from localspec.errors import InvalidValueError

torch = pytest.importorskip("torch")

from localspec.gguf.writer import TensorType  # noqa: E402
from localspec.training import device, training_place  # noqa: E402
from localspec.training.cut_shape import CutSource  # noqa: E402
from localspec.training.draft_model_kind import DraftModel  # noqa: E402
from localspec.training.drafter_kind import TrainedDrafter  # noqa: E402


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(device, "_BATCH_BYTES", 0)
    return write_cut_target(tmp_path / "target.gguf")


def drafter(target: Path, layers: int = 3) -> DraftModel:
    return DraftModel(CutSource(Target(target)), list(range(layers)), TensorType.Q8_0)


def test_fewer_layers_that_fit_are_named(target: Path) -> None:
    needed = [device.bytes_needed(drafter(target, layers)) for layers in (1, 2, 3)]
    assert needed == sorted(set(needed))
    large = drafter(target)
    assert large.smaller(needed[2] - 1) == large.smaller(needed[1]) == "--layers 2"
    assert large.smaller(needed[1] - 1) == large.smaller(needed[0]) == "--layers 1"
    assert large.smaller(needed[0] - 1) == ""


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_gpu_that_is_too_small(name: str, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large, said = drafter(target), list[str]()
    free = device.bytes_needed(drafter(target, 2)) + 1
    monkeypatch.setattr(training_place, "free_bytes", lambda _: free)
    monkeypatch.setattr(training_place, "described", lambda _: "a small GPU")
    monkeypatch.setattr(training_place, "choose_device", lambda _: torch.device("cpu"))
    moved: list[torch.device] = []
    monkeypatch.setattr(TrainedDrafter, "to", lambda _, where: moved.append(where))
    place = training_place.TrainingPlace(name, said.append)
    if name == "cuda":
        with pytest.raises(
            InvalidValueError, match=r"free on a small GPU; --layers 2 or --device cpu fits"
        ):
            place.take(large)
        return
    place.take(large)
    assert moved == [torch.device("cpu")]
    assert "free on a small GPU: the processor trains it, and --layers 2 fits there" in said[0]


@pytest.mark.parametrize("short", [False, True])
def test_main_memory_that_is_short_is_said(
    short: bool, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, said = drafter(target), list[str]()
    here = sum(4 * each.numel() for each in large.parameters())
    needed = device.bytes_needed(large)
    monkeypatch.setattr(training_place, "host_memory", lambda: needed - here - int(short))
    place = training_place.TrainingPlace("cpu", said.append)
    place.take(large)
    assert place.needed == needed and place.device.type == "cpu"
    assert len(said) == int(short)
    assert not short or (
        "of main memory, and" in said[0] and "a smaller drafter (--layers 2 fits)" in said[0]
    )
