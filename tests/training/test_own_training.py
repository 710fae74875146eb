"""A training from a target's own file: it learns, ends, is killed, goes on, and is found."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from fakes.cut_target import write_cut_target

import localspec
from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.reader import read_header
from localspec.models.own_drafters import own_drafters
from localspec.models.trained_drafters import trained_drafters

torch = pytest.importorskip("torch")

from fakes.drafter_kinds import EXACT  # noqa: E402
from fakes.tool_drafts import EXACT_FLAGS, own_drafts, same_drafts, tools_drafts  # noqa: E402
from fakes.training_runs import RUNTIME, request, train  # noqa: E402

from localspec.distillation.work_folder import WorkFolder, default_folder  # noqa: E402
from localspec.drafters.draft_model import DraftModel  # noqa: E402
from localspec.training import draft_model_kind, rounds  # noqa: E402
from localspec.training.device import choose_device  # noqa: E402
from localspec.training.drafter_kind import KindOptions  # noqa: E402
from localspec.training.training_request import Progress  # noqa: E402
from localspec.utils.format import format_bytes  # noqa: E402

TOOL = os.environ.get("LLAMA_SPECULATIVE_SIMPLE", "")

pytestmark = [pytest.mark.usefixtures("short_texts"), pytest.mark.slow]


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A qwen3, or what a test asks for."""
    family = getattr(request, "param", "qwen3")
    return write_cut_target(tmp_path / "target.gguf", family, quantised=True)


@pytest.mark.parametrize("target", ["qwen3", "qwen2"], indirect=True)
def test_a_draft_model_learns_and_becomes_the_targets_own(target: Path) -> None:
    said: list[str] = []
    seen: dict[str, Progress] = {}
    done = train(
        request(target, tokens=3000), lambda each: seen.update({each.phase: each}), said=said
    )
    rates = [each[0] for each in done.history]
    assert done.finished and max(rates) > rates[0] + 0.03
    assert "draft-model: layers " in said[0] and " of 4, trained on 1 CPU threads" in said[0]
    assert "4 rounds over them: about " in said[1]
    assert [*seen][-4:] == ["writing texts", "reading texts", "training", "trying the drafter"]
    last = seen["training"]
    assert last.share == 1 and last.acceptance and last.speed_up and last.left is not None
    metadata = read_header(done.path).metadata
    assert metadata["localspec.trained.target"] == fingerprint(target)
    assert metadata["localspec.trained.texts"] == "letters"
    assert metadata["localspec.trained.acceptance"] == pytest.approx(max(rates), abs=1e-3)
    assert {each.name for each in done.trials} == {str(done.path), "none", "suffix"}
    [listed] = trained_drafters(target)
    assert (listed.kind, listed.file) == ("draft-model", done.path)
    assert own_drafters(target)[0].file == done.path
    moved = target.rename(target.with_name("moved.gguf"))
    with localspec.load(moved, **RUNTIME) as engine:
        found = any(done.path.stem in name for name in engine.drafter_set.names)
        assert found == done.preferred == done.pays
    with localspec.load(moved, str(done.path), **RUNTIME) as engine:
        drafted = engine.generate("anbt", max_tokens=16, seed=1, depth=3)
        engine.switch(draft="none")
        assert engine.generate("anbt", max_tokens=16, seed=1).token_ids == drafted.token_ids
    # The texts stay for another training, what was read of them does not.
    left = [path.name for path in default_folder().rglob("*-0*")]
    assert left and all(name.startswith("texts-") for name in left)


@pytest.mark.skipif(not TOOL, reason="LLAMA_SPECULATIVE_SIMPLE names no tool to compare with")
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_llama_cpps_own_tool_drafts_the_same(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_cut_target(tmp_path / "target.gguf", family)
    done = train(request(target, options=KindOptions(layers=2, type_name="F32")))
    said: dict[str, Any] = {"prompt": "anbtdnenbt", "tokens": 60, "depth": 3}
    exact = {name: value for name, value in EXACT.items() if name != "context"}
    mine = own_drafts(target, done.path, **said, patch=monkeypatch, drafter=DraftModel, **exact)
    how = {"kind": "draft-simple", "flags": EXACT_FLAGS}
    # The tool drafts for the first token too, which localspec takes from the pass of the prompt.
    same_drafts(mine, tools_drafts(TOOL, target, done.path, **said, **how)[1:], end=2)


def test_one_seed_gives_one_file(target: Path, tmp_path: Path) -> None:
    files = []
    for number in range(2):
        made = request(target, tmp_path / str(number) / "draft.gguf")
        files.append(train(made).path.read_bytes())
        for path in default_folder().rglob("texts-*"):
            path.unlink()
    assert files[0] == files[1]


def run_killed(target: Path, folder: Path, phase: str, *flags: str) -> subprocess.CompletedProcess:
    folder.mkdir(exist_ok=True)
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "tests"), str(root / ".typing")])
    return subprocess.run(
        [sys.executable, "-m", "fakes.training_runs", str(target), str(folder), phase, *flags],
        env={**os.environ, "PYTHONPATH": path, "LOCALSPEC_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_in_each_phase_it_goes_on_with_the_same_result(target: Path, tmp_path: Path) -> None:
    whole = run_killed(target, tmp_path / "whole", "never")
    assert whole.returncode == 0, whole.stderr
    expected = (tmp_path / "whole" / "draft.gguf").read_bytes()
    last = "trying the drafter"
    phases = ("writing the first texts", "writing texts", "reading texts", "training", last)
    for phase in phases:
        folder = tmp_path / phase
        killed = run_killed(target, folder, phase)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        # The drafter is there before it is tried, and nobody's own until it was.
        assert (folder / "draft.gguf").exists() == (phase == last)
        assert not [*(folder / "home").rglob("lists/*.json")]
        again = run_killed(target, folder, "never", "--resume")
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1], phase
        assert (folder / "draft.gguf").read_bytes() == expected, phase
        assert [*(folder / "home").rglob("lists/*.json")]
    assert "going on where" in again.stdout


def test_one_that_another_has_replaced_is_trained_again(target: Path) -> None:
    done = train(request(target, tokens=100))
    said: list[str] = []
    assert train(request(target, tokens=100, resume=True), said=said) == done
    assert said == ["this training has ended; --anew trains again"]
    with done.path.open("ab") as file:  # what another training of this kind leaves here
        file.write(b"\0")
    train(request(target, tokens=100, resume=True), said=said)
    assert "there is no unfinished training to resume" in said[1]


def test_nothing_to_resume_is_said(target: Path) -> None:
    said: list[str] = []
    train(request(target, tokens=100, resume=True), said=said)
    assert "there is no unfinished training to resume" in said[0]


def test_rows_that_do_not_fit_on_the_disk_are_read_again(target: Path) -> None:
    said: list[str] = []
    done = train(request(target, cache=60_000), said=said)
    assert done.finished and done.history == train(request(target)).history
    assert "60.0 kB on the disk" in said[1]


def test_what_is_read_again_is_told(target: Path) -> None:
    seen = list[Progress]()
    done = train(request(target, cache=1), seen.append)
    phases = [each.phase for each, _ in groupby(seen, lambda each: each)]
    turns = [phase for phase, _ in groupby(phases)]
    first = turns.index("reading texts")
    assert turns[first : first + 4] == ["reading texts", "training"] * 2
    last = turns.index("trying the drafter")
    assert set(turns[first:last]) == {"reading texts", "training"}
    assert done.facts.phases["reading texts"] > 0
    # The time of training says nothing of the target's, and the other way round.
    assert all(each.left and each.left > 0 for each in seen if each.phase == "training")


def test_layers_may_be_named(target: Path) -> None:
    done = train(request(target, tokens=100, options=KindOptions(kept=(0, 3))))
    assert done.note == "layers 0, 3 of 4"
    with pytest.raises(InvalidValueError, match=r"kept is \(2, 4\); the layers of .* are 0 to 3"):
        train(request(target, tokens=100, options=KindOptions(kept=(2, 4))))
    with pytest.raises(InvalidValueError, match=r"kept is .*, which is for draft models"):
        KindOptions(kept=(1,)).require_no_cut("medusa")


def test_rows_that_are_on_the_disk_need_no_room_there(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, asked = threading.Event(), list[float]()
    monkeypatch.setattr(WorkFolder, "require_free", lambda _, size: asked.append(size))

    def stop(progress: Progress) -> None:
        if progress.phase == "training":
            cancel.set()

    train(request(target), stop, cancel)
    state, best = _checkpoints()
    train(request(target, resume=True))
    # Nor do the checkpoints that are there; but the next state is written beside the last one.
    rows = asked[0] - best - 2 * state, asked[1] - state
    assert rows[0] > 1e5 and rows[1] < 0.3 * rows[0]


def _checkpoints() -> list[int]:
    """The bytes of the state and of the best weights that were saved."""
    return [next(default_folder().rglob(name)).stat().st_size for name in ("state", "best")]


def test_room_for_checkpoints_is_asked_for(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, asked, said = threading.Event(), list[float](), list[str]()
    monkeypatch.setattr(WorkFolder, "require_free", lambda _, size: asked.append(size))
    made = request(target, cache=0)  # no rows are kept
    train(made, lambda each: each.phase == "training" and cancel.set(), cancel, said)
    state, best = _checkpoints()
    # The new state is written before the old one is deleted. Files have a little more than numbers.
    assert asked == [pytest.approx(best + 2 * state, rel=0.1)]
    assert f"{format_bytes(asked[0])} for checkpoints" in said[1]


def test_the_layers_of_a_training_that_goes_on_are_chosen_once(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, cancel = KindOptions(layers=2), threading.Event()

    def stop(progress: Progress) -> None:
        if progress.phase == "training":
            cancel.set()

    said = list[str]()
    train(request(target, options=options), stop, cancel, said)
    # What the layers are chosen by could say something else on another device.
    monkeypatch.setattr(draft_model_kind, "_untrained_rate", lambda *_: pytest.fail("measured"))
    again = list[str]()
    done = train(request(target, options=options, resume=True), said=again)
    assert again[0] == said[0] and done.finished


def test_a_disk_that_fills_loses_nothing(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [0]
    real = rounds.WorkFolder.write_parts

    def full(self: object, name: str, write: Callable[[Any], None]) -> None:
        writes[0] += name == "state"
        if writes[0] == 2:
            writes[0] += 1
            raise LocalspecError("the disk is full; run the same command with --resume")
        real(self, name, write)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(rounds.WorkFolder, "write_parts", full)
        with pytest.raises(LocalspecError, match="the disk is full"):
            train(request(target))
    ended = train(request(target, resume=True))
    assert ended.finished and ended.history == train(request(target)).history


def test_refusals_before_anything_is_loaded(target: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(target.read_bytes())
    with pytest.raises(InvalidValueError, match="exists and is another file"):
        train(request(target, other))
    with pytest.raises(InvalidValueError, match="tokens is 0"):
        request(target, tokens=0)
    with pytest.raises(InvalidValueError, match="minutes is -1"):
        request(target, tokens=None, minutes=-1)
    with pytest.raises(InvalidValueError, match="minutes and tokens exclude each other"):
        request(target, minutes=3)
    with pytest.raises(InvalidValueError, match="device is 'gpu'; it is one of auto, cuda"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidValueError, match=r"torch .* sees none here"):
            train(request(target, device="cuda"))
