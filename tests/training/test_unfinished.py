"""Trainings that were not finished: the target's other ones are named, with their size."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from fakes.cut_target import write_cut_target
from fakes.training_runs import request

from localspec.distillation.work_folder import WorkFolder
from localspec.training.unfinished import BUDGET, prepare


def test_a_training_whose_texts_have_changed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    target, other = (write_cut_target(tmp_path / f"{n}.gguf", seed=n) for n in (4, 5))
    said: list[str] = []

    def begin(key: str, of: Path, *, resume: bool = False, **given: Any) -> WorkFolder:
        folder = WorkFolder([key])
        said.clear()
        with folder.locked():
            prepare(folder, request(of, resume=resume, **given), said.append)
        return folder

    first = begin("the chats of yesterday", target)
    first.write_json(BUDGET, {})
    first.write("rows-0", b"x" * 50_000)
    begin("of another target", other).write_json(BUDGET, {})
    nothing = "there is no unfinished training to resume, so this one begins"
    # The last time it goes on: it was stopped before it had a budget.
    for resume, before in ((True, [nothing]), (False, []), (True, [])):
        begin("the chats of today", target, resume=resume)
        assert said[:-1] == before
        assert said[-1].startswith(
            "another training of this model was not finished: draft-model on letters, 50.2 kB in "
            f"{first.path}; "
        )
    for _ in range(2):  # it stays as it was
        begin("the chats of yesterday", target, resume=True, tokens=None, minutes=2.5)
        assert said == [
            "--tokens 1200 was named when this training began, and counts; --minutes 2.5 does not"
        ]
    begin("the chats of yesterday", target, resume=True)
    assert not said
    first.clear()  # as one that has ended
    begin("the chats of today", target)
    assert not said
