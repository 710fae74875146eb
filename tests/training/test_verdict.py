"""The verdict on a drafter that was trained: whether it pays, and whether `auto` takes it."""

import errno
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.trainings import trained

from localspec.cli.train_output import trained_text
from localspec.conversion.target import TargetFile
from localspec.distillation.last_trial import Trial
from localspec.distillation.work_folder import WorkFolder
from localspec.errors import DrafterMismatchError, LocalspecError
from localspec.models.own_drafters import own_drafters
from localspec.models.trained_drafters import trained_drafters

pytest.importorskip("torch")

from fakes.cut_target import write_cut_target
from fakes.training_runs import request

from localspec.training import expected_speed, head_source, own_training, result
from localspec.training.drafter_kind import KindOptions
from localspec.training.expected_speed import ExpectedSpeed
from localspec.training.kinds import KINDS
from localspec.training.own_training import OwnTraining
from localspec.training.result import PLAIN, Rival, is_preferred, pays

OWN, OTHER = (Rival(name, "medusa", Path(name)) for name in ("own.gguf", "other.gguf"))


def trials(own: float, other: float | None = None) -> list[Trial]:
    """Trials at two temperatures. own, other: tokens per step of drafters whose steps cost 1.5."""
    found = {OWN.name: own, PLAIN: 1.0, "suffix": 1.2, **({OTHER.name: other} if other else {})}
    return [
        Trial(
            name,
            temperature,
            0.5,
            steps,
            50.0,
            by_place=[] if name == PLAIN else [steps - 1],
            step_costs=[] if name == PLAIN else [1.0 if name == "suffix" else 1.5],
        )
        for name, steps in found.items()
        for temperature in (0.0, 0.8)
    ]


def test_the_only_drafter_of_a_target_must_beat_plain_decoding() -> None:
    assert pays(trials(1.6), OWN) and is_preferred(trials(1.6), OWN, [])
    for steps in (1.0, 1.4, 1.5):
        assert not pays(trials(steps), OWN) and not is_preferred(trials(steps), OWN, [])


def test_beside_another_drafter_it_must_beat_both() -> None:
    assert is_preferred(trials(2.0, 1.8), OWN, [OTHER])
    assert pays(trials(2.0, 2.2), OWN) and not is_preferred(trials(2.0, 2.2), OWN, [OTHER])
    assert not is_preferred(trials(1.4, 1.2), OWN, [OTHER])


def test_it_is_judged_at_the_depth_that_pays_most() -> None:
    # Four tokens at a time would lose: (1 + 0.5 + 0.1 + 0.02 + 0) / 2.2.
    own = {"by_place": [0.5, 0.1, 0.02, 0.0], "step_costs": [1.3, 1.6, 1.9, 2.2]}
    one = Trial(OWN.name, 0.0, 0.15, 1.62, 50.0, **own)
    plain = Trial(PLAIN, 0.0, 0.0, 1.0, 50.0)
    assert one.expected_speed == pytest.approx(1.5 / 1.3)
    assert pays([one, plain], OWN) and is_preferred([one, plain], OWN, [])
    # Steps without a draft cost what they cost.
    assert replace(one, drafting=0.5).expected_speed == pytest.approx(1.25 / 1.15)
    assert plain.expected_speed == 1


def test_one_that_was_stopped_is_judged_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    target = TargetFile(write_cut_target(tmp_path / "target.gguf"))
    drafter = KINDS["draft-model"].create(target, KindOptions(layers=1, kept=(0,)), [])
    monkeypatch.setattr(expected_speed, "step_costs", lambda *_: {1: 1.3, 2: 1.6, 3: 1.9, 4: 2.2})
    expected = ExpectedSpeed(target, drafter, "draft-model", WorkFolder(["test"]))
    assert expected.at([0.5, 0.2, 0.2, 0.0]) == pytest.approx(1.5 / 1.3)
    assert expected.at([0.9]) == pytest.approx((1 + 0.9 + 0.81 + 0.729 + 0.6561) / 2.2)


def test_the_lines_at_the_end_say_that_it_does_not_pay() -> None:
    done = trained()
    assert trained_text(done)[-1] == "--draft auto takes it for this model from now on"
    said = trained_text(replace(done, preferred=False, pays=False))[-1]
    assert said.startswith("it does not pay (1.95 x plain at T = 0, 1.95 x plain at T = 0.8, by ")
    assert said.endswith(f"--draft auto leaves it out; --draft {done.path} takes it")
    assert "gains more" in trained_text(replace(done, preferred=False))[-1]
    stopped = replace(done, preferred=False, pays=False, finished=False, trials=[])
    assert "it does not pay so far: --draft auto leaves it out" in trained_text(stopped)[-1]


def test_the_lines_at_the_end_say_what_was_accepted_of_what() -> None:
    said = trained_text(trained())
    assert said[0].startswith("10.0% of first tokens of drafts accepted untrained, 65.0% now, by")
    assert said[1] == "8 held-out prompts, 4 tokens a draft, all of them counted:"
    assert "accepted" in said[2]


def test_a_drafter_needs_the_room_of_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetFile(write_cut_target(tmp_path / "target.gguf"))
    drafter = KINDS["medusa"].create(target, KindOptions(), [])
    path, full = tmp_path / "new" / "made.gguf", False

    def export(to: Path, about: object) -> None:
        to.write_bytes(b"GGUF")
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        to.write_bytes(target.path.read_bytes())

    monkeypatch.setattr(drafter, "export", export)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5))
    result.export(drafter, path, target, "letters", [0.5], counts=lambda: pytest.fail("counted"))
    # A trained drafter may know phrases of one's chats.
    if sys.platform != "win32":
        assert [each.stat().st_mode & 0o777 for each in (path, path.parent)] == [0o600, 0o700]
    full, path = True, tmp_path / "other.gguf"
    with pytest.raises(LocalspecError, match=r"other.gguf cannot be written: No space left"):
        result.export(drafter, path, target, "letters", [0.5], counts=lambda: pytest.fail("x"))
    assert not path.exists()


@pytest.mark.parametrize("architecture", ["gemma", "qwen35"])
def test_a_target_that_cannot_be_cut_is_told_which_kinds_are_left(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetFile(write_cut_target(tmp_path / "target.gguf"))
    header = replace(target.header, metadata={"general.architecture": architecture})
    monkeypatch.setattr(target, "header", header)
    monkeypatch.setattr(head_source, "unreadable_rows", lambda *_: "no rows come out")
    with pytest.raises(DrafterMismatchError) as refused:
        KINDS["draft-model"].layers(target, KindOptions())
    left = "mtp or medusa" if architecture == "qwen35" else "medusa"
    assert str(refused.value) == (
        f"no draft-model can be trained for target.gguf: its architecture is {architecture}, not "
        f"llama, qwen2, qwen3; train --kind {left}"
    )


@pytest.mark.usefixtures("short_texts")
@pytest.mark.parametrize(("expected", "takes"), [(0.9, False), (1.3, True)])
def test_one_that_was_stopped_is_judged_by_its_held_out_acceptance(
    expected: float, takes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_cut_target(tmp_path / "target.gguf")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(own_training.ExpectedSpeed, "at", lambda *_: expected)
    cancel = threading.Event()
    run = OwnTraining(
        request(target, tokens=200),
        lambda each: each.phase == "training" and cancel.set(),
        lambda _: None,
        cancel,
    )
    done = run.run()
    assert not done.finished and (done.preferred, done.pays) == (takes, takes)
    [listed] = trained_drafters(target)
    assert (listed.preferred, listed.pays) == (takes, takes)
    [own] = own_drafters(target)
    assert (own.objection is None) == takes
    assert takes or "it is no faster than plain decoding" in str(own.objection)
