"""Trainings that were not finished: the target's other ones are named, with their size."""

from pathlib import Path

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

    def begin(key: str, of: Path, *, resume: bool = False) -> WorkFolder:
        folder = WorkFolder([key])
        said.clear()
        with folder.locked():
            prepare(folder, request(of, resume=resume), said.append)
        return folder

    first = begin("the chats of yesterday", target)
    first.write_json(BUDGET, {})
    first.write("rows-0", b"x" * 50_000)
    begin("of another target", other).write_json(BUDGET, {})
    for resume in (False, True):
        begin("the chats of today", target, resume=resume)
        assert (
            said[:-1]
            == ["there is no unfinished training to resume, so this one begins"][: int(resume)]
        )
        assert said[-1].startswith(
            "another training of this model was not finished: draft-model on letters, 50.2 kB in "
            f"{first.path}; "
        )
    first.clear()  # as one that has ended
    begin("the chats of today", target)
    assert not said
