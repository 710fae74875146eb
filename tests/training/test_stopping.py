"""A training that is stopped: it keeps what was done, and goes on with the same result."""

import threading
from pathlib import Path
from typing import Any

import pytest
from fakes.cut_target import write_cut_target

from localspec.errors import InvalidValueError, LocalspecError
from localspec.models.trained_drafters import trained_drafters

torch = pytest.importorskip("torch")

from fakes.training_runs import request, train  # noqa: E402

from localspec.distillation.material import Material  # noqa: E402
from localspec.distillation.reading import TargetReader  # noqa: E402
from localspec.distillation.texts import Stopped  # noqa: E402
from localspec.distillation.work_folder import default_folder  # noqa: E402
from localspec.engine.engine import Engine  # noqa: E402
from localspec.training import rounds  # noqa: E402
from localspec.training.training_request import Progress  # noqa: E402

pytestmark = [pytest.mark.usefixtures("short_texts"), pytest.mark.slow]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_cut_target(tmp_path / "target.gguf", "qwen3", quantised=True)


@pytest.mark.parametrize("twice", [False, True])
def test_stopping_keeps_the_best_so_far(
    target: Path, twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C once and, while what was learnt last is measured, a second time."""
    cancel, said, measured = threading.Event(), list[str](), rounds.Rounds._measured

    def stop(progress: Progress) -> None:
        if progress.phase == "training" and progress.share > 0.6:
            cancel.set()

    def interrupted(self: rounds.Rounds, *arguments: Any) -> list[float]:
        if cancel.is_set() and twice:
            raise KeyboardInterrupt
        return measured(self, *arguments)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(rounds.Rounds, "_measured", interrupted)
        done = train(request(target), stop, cancel, said)
    assert not done.finished and done.path.exists() and not done.trials
    lines = [
        "stopped; measuring what was learnt last: Ctrl-C again leaves it out",
        "what was learnt after the best round is left out",
    ]
    assert said[2:] == lines[: 1 + twice]
    with pytest.raises(InvalidValueError, match="--resume goes on with it, --anew begins again"):
        train(request(target))
    ended = train(request(target, resume=True))
    assert ended.finished and ended.history[: len(done.history)] == list(done.history)


@pytest.mark.parametrize("share", [0.01, 0.63])
def test_stopped_within_a_shard_it_goes_on_with_the_next_batch(target: Path, share: float) -> None:
    """And ends with the file of a training that nobody has stopped."""
    expected = train(request(target)).path.read_bytes()
    cancel, shares = threading.Event(), list[float]()

    def stop(progress: Progress) -> None:
        if progress.phase == "training":
            shares.append(progress.share)
            if progress.share > share:
                cancel.set()

    assert not train(request(target, anew=True), stop, cancel).finished
    last, step = shares[-1], shares[0]
    assert round(last / step) % 2, "a shard has two batches"
    shares.clear()
    done = train(request(target, resume=True), stop, threading.Event())
    assert shares[0] == pytest.approx(last + step)
    assert done.finished and done.path.read_bytes() == expected


@pytest.mark.parametrize("phase", ["writing the first texts", "writing texts", "reading texts"])
def test_stopped_while_the_target_is_at_work_it_goes_on_with_the_same_result(
    target: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(request(target)).path.read_bytes()
    for path in default_folder().rglob("texts-*"):
        path.unlink()
    cancel, at, owner = threading.Event(), list[str](), Engine
    name = "stream"
    if phase == "reading texts":
        owner, name = TargetReader, "read"  # type: ignore[assignment]
    real = getattr(owner, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        if at[-1] == phase:
            at.append(phase)
            if at.count(phase) == 9:
                cancel.set()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, noted)
    with pytest.raises(Stopped):
        train(request(target, anew=True), lambda each: at.append(each.phase), cancel)
    assert [*default_folder().rglob("*.begun")]
    said = list[str]()
    done = train(request(target, resume=True), lambda each: at.append(""), said=said)
    assert done.finished and done.path.read_bytes() == expected
    assert "there is no unfinished training" not in said[0]
    assert not [*default_folder().rglob("*.begun")]


def test_stopping_before_there_is_a_drafter(target: Path) -> None:
    cancel = threading.Event()
    with pytest.raises(Stopped):
        train(request(target), lambda each: cancel.set(), cancel)
    assert not trained_drafters(target)


def test_stopping_while_rows_are_read_again_keeps_the_best_so_far(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, read, place = threading.Event(), Material.read, list[Progress]()

    def stopped(self: Material, texts: Any) -> Any:
        if any(each.phase == "training" and each.share > 0.6 for each in place):
            cancel.set()
        return read(self, texts)

    monkeypatch.setattr(Material, "read", stopped)
    done = train(request(target, cache=1), place.append, cancel)
    assert cancel.is_set() and not done.finished and len(done.history) > 1 and done.path.exists()
    # It goes on where it was, and not at the last time that it was saved by itself.
    monkeypatch.setattr(Material, "read", read)
    seen = list[Progress]()
    ended = train(request(target, cache=1, resume=True), seen.append)
    before, after = (
        [each.share for each in some if each.phase == "training"] for some in (place, seen)
    )
    assert after[0] > before[-1]
    assert ended.history == train(request(target, anew=True)).history


def test_stopping_where_the_disk_is_full_keeps_the_drafter_all_the_same(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, said, read = threading.Event(), list[str](), Material.read

    def full(_self: Any) -> None:
        raise LocalspecError("the disk is full; run the same command with --resume")

    def stopped(self: Material, texts: Any) -> Any:
        if len(said) == 2 and seen and seen[-1].share > 0.6:
            monkeypatch.setattr(rounds.Rounds, "_save", full)
            cancel.set()
        return read(self, texts)

    seen = list[Progress]()
    monkeypatch.setattr(Material, "read", stopped)
    watch = lambda each: seen.append(each) if each.phase == "training" else None  # noqa: E731
    done = train(request(target, cache=1), watch, cancel, said)
    assert cancel.is_set() and not done.finished and done.path.exists()
    assert said[-2].startswith("the disk is full; ")
    assert said[-2].endswith("--resume goes on from an earlier place")


def test_stopping_the_last_trial_keeps_the_drafter(target: Path) -> None:
    cancel = threading.Event()

    def stop(progress: Progress) -> None:
        if progress.phase == "trying the drafter":
            cancel.set()

    done = train(request(target, tokens=200), stop, cancel)
    assert not done.finished and not done.trials and done.path.exists()
    assert [each.file for each in trained_drafters(target)] == [done.path]
    ended = train(request(target, tokens=200, resume=True))
    assert ended.finished and ended.trials and ended.history == done.history
