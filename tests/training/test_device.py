"""Devices: a training that has no room is said before anything is lost, with what fits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from fakes.cut_target import write_cut_target
from fakes.tiny import write_tiny

from localspec.conversion.target import TargetFile
from localspec.errors import InvalidValueError
from localspec.utils.format import format_bytes

torch = pytest.importorskip("torch")

from fakes.training_runs import request  # noqa: E402

from localspec.gguf.writer import TensorType  # noqa: E402
from localspec.training import (  # noqa: E402
    chained_drafts,
    dflash_kind,
    draft_model_kind,
    medusa_kind,
    training_place,
)
from localspec.training.cut_shape import CutSource  # noqa: E402
from localspec.training.draft_model_kind import DraftModel  # noqa: E402
from localspec.training.drafter_kind import KindOptions, TrainableDrafter  # noqa: E402
from localspec.training.examples import Batch, TopRows  # noqa: E402
from localspec.training.kinds import KINDS, smaller  # noqa: E402
from localspec.training.own_training import OwnTraining  # noqa: E402
from localspec.training.training_place import TrainingPlace  # noqa: E402
from localspec.training.training_size import LENGTH, TrainingSize  # noqa: E402


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TargetFile:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return TargetFile(write_cut_target(tmp_path / "target.gguf"))


def random_batch(target: TargetFile, layers: Sequence[int]) -> Batch:
    shape = (2, LENGTH)
    tokens = torch.randint(3, target.n_vocab, shape)
    top = TopRows(tokens[..., None], torch.zeros(*shape, 1), torch.full(shape, -30.0))
    hidden = {layer: torch.randn(*shape, target.width) for layer in layers}
    return Batch(tokens, torch.ones(shape, dtype=torch.bool), top, hidden)


def size_of(target: TargetFile, layers: int = 3) -> TrainingSize:
    return KINDS["draft-model"].size(target, KindOptions(layers=layers), ())


def drafter(target: TargetFile, layers: int = 3) -> DraftModel:
    return DraftModel(CutSource(target), list(range(layers)), TensorType.Q8_0)


def place_for(target: TargetFile, name: str, say: Callable[[str], None]) -> TrainingPlace:
    fits = partial(smaller, target, "draft-model", KindOptions(layers=3))
    return TrainingPlace(name, say, size_of(target), fits)


def test_what_fits_is_named(target: TargetFile) -> None:
    needed = [size_of(target, layers).bytes for layers in (1, 2, 3)]
    medusa = KINDS["medusa"].size(target, KindOptions(), ()).bytes
    assert medusa < needed[0] and needed == sorted(set(needed))
    for free, fits in (
        (needed[2] - 1, "--layers 2"),
        (needed[1], "--layers 2"),
        (needed[1] - 1, "--layers 1"),
        (needed[0] - 1, "--kind medusa"),
        (medusa - 1, ""),
    ):
        assert smaller(target, "draft-model", KindOptions(layers=3), free) == fits
    assert smaller(target, "medusa", KindOptions(), medusa) == ""


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_gpu_that_is_too_small(
    name: str, target: TargetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    free = size_of(target, 2).bytes + 1
    monkeypatch.setattr(training_place, "free_bytes", lambda _: free)
    monkeypatch.setattr(training_place, "described", lambda _: "a small GPU")
    monkeypatch.setattr(training_place, "choose_device", lambda _: torch.device("cpu"))
    monkeypatch.setattr(TrainingPlace, "is_shared", True)
    moved: list[torch.device] = []
    monkeypatch.setattr(TrainableDrafter, "to", lambda _, where: moved.append(where))
    place = place_for(target, name, said.append)
    if name == "cuda":
        for refused in (place.require_room, lambda: place.take(drafter(target))):
            with pytest.raises(
                InvalidValueError, match=r"free on a small GPU; --layers 2 or --device cpu fits"
            ):
                refused()
        return
    place.require_room()
    assert not said
    place.take(drafter(target))
    assert moved == [torch.device("cpu")]
    assert "free on a small GPU: the processor trains it, and --layers 2 fits there" in said[0]
    # Nor has main memory room for it.
    monkeypatch.setattr(training_place, "host_memory", lambda: free)
    with pytest.raises(InvalidValueError, match=r"of main memory, and .*name --layers 2, which"):
        place.require_room()


@pytest.mark.parametrize("short", [False, True])
def test_main_memory_that_is_short_is_said(
    short: bool, target: TargetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, said, needed = drafter(target), list[str](), size_of(target).bytes
    here = sum(4 * each.numel() for each in large.parameters())
    monkeypatch.setattr(training_place, "host_memory", lambda: needed - here - int(short))
    place = place_for(target, "cpu", said.append)
    place.take(large)
    assert place.needed == needed and place.device.type == "cpu"
    assert len(said) == int(short)
    assert not short or (
        "of main memory, and" in said[0] and "a smaller drafter (--layers 2 fits)" in said[0]
    )


@pytest.mark.parametrize("kind", ["draft-model", "eagle3", "dflash", "medusa"])
def test_a_training_that_cannot_fit_is_refused_before_anything_is_loaded(
    kind: str, target: TargetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the tables that stay as they are, which heads have in memory too."""
    made = replace(request(target.path, options=KindOptions()), kind=kind)
    needed, free = list[int](), 1 << 50
    monkeypatch.setattr(training_place, "host_memory", lambda: free)
    said = pytest.fail
    OwnTraining(made, lambda _: None, said, Event())
    size = KINDS[kind].size(target, made.options, (0, 1, 2))
    tables = target.n_vocab * target.width * (1 if kind == "medusa" else 2)
    assert size.frozen == (0 if kind == "draft-model" else tables)
    free = size.bytes - 1
    needed.append(free)
    of_it = f" ({format_bytes(4 * tables)} of it for the target's token tables)"
    with pytest.raises(InvalidValueError) as refused:
        OwnTraining(made, lambda _: None, said, Event())
    assert str(refused.value).startswith(
        f"training takes about {format_bytes(size.bytes)}{of_it if size.frozen else ''} of main "
        f"memory, and {format_bytes(free)} are free: close other programs"
    )
    assert ("name --kind medusa, which fits" in str(refused.value)) == (kind != "medusa")


@pytest.mark.parametrize("kind", ["draft-model", "eagle3", "dflash", "medusa", "mtp"])
def test_the_size_of_a_training_is_that_of_its_drafter(
    kind: str, target: TargetFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights to a fiftieth, and at least what a batch keeps for its gradients."""
    if kind == "mtp":
        target = TargetFile(write_tiny(tmp_path / "qwen35.gguf", "qwen35"))
    options = KindOptions()
    reads = KINDS[kind].layers(target, options)
    batch = random_batch(target, reads)
    made = KINDS[kind].create(target, options, [batch])
    size = KINDS[kind].size(target, options, reads)
    weights = {
        trained: sum(each.numel() for each in made.parameters() if each.requires_grad == trained)
        for trained in (False, True)
    }
    assert weights[False] == size.frozen
    assert weights[True] == pytest.approx(size.trained, rel=0.02)
    kept, alive = dict[int, int](), list[torch.Tensor]()
    own = {each.untyped_storage().data_ptr() for each in made.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    for module in (draft_model_kind, chained_drafts, dflash_kind, medusa_kind):
        # Logits are counted apart.
        monkeypatch.setattr(module, "acceptance_loss", lambda rows, *_: (rows * rows).sum())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        made.loss(batch)
    found = sum(kept.values()) / 4 / batch.tokens.numel()
    # What is there for a moment only is in the size as well.
    assert found / 1.05 <= size.kept <= 1.6 * found
