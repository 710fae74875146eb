"""The verdict on a drafter that was trained: whether it pays, and whether `auto` takes it."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.trainings import trained

from localspec.cli.train_output import trained_text
from localspec.distillation.last_trial import Trial
from localspec.models.own_drafters import own_drafters
from localspec.models.trained_drafters import trained_drafters

pytest.importorskip("torch")

from fakes.cut_target import write_cut_target
from fakes.training_runs import request

from localspec.training import own_training
from localspec.training.own_training import OwnTraining
from localspec.training.result import PLAIN, Rival, is_preferred, pays

OWN, OTHER = (Rival(name, "medusa", Path(name)) for name in ("own.gguf", "other.gguf"))


def trials(own: float, other: float | None = None) -> list[Trial]:
    """Trials at two temperatures. own, other: tokens per step of drafters whose steps cost 1.5."""
    found = {OWN.name: own, PLAIN: 1.0, "suffix": 1.2, **({OTHER.name: other} if other else {})}
    return [
        Trial(name, temperature, 0.5, steps, 50.0, 1.0 if name in (PLAIN, "suffix") else 1.5)
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


def test_the_lines_at_the_end_say_that_it_does_not_pay() -> None:
    done = trained()
    assert trained_text(done)[-1] == "--draft auto takes it for this model from now on"
    said = trained_text(replace(done, preferred=False, pays=False))[-1]
    assert said.startswith("it does not pay (1.95 x plain at T = 0, 1.95 x plain at T = 0.8, by ")
    assert said.endswith(f"--draft auto leaves it out; --draft {done.path} takes it")
    assert "gains more" in trained_text(replace(done, preferred=False))[-1]
    stopped = replace(done, preferred=False, pays=False, finished=False, trials=[])
    assert "it does not pay so far: --draft auto leaves it out" in trained_text(stopped)[-1]


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
