"""The last trial of a training: each temperature is tried as if it were the only one."""

import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

from fakes.cut_target import letters, write_cut_target
from fakes.training_runs import RUNTIME

import localspec
from localspec.distillation.texts import tokenized
from localspec.training import result


@pytest.mark.usefixtures("short_texts")
def test_suffix_copies_nothing_from_the_texts_of_another_temperature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "TEMPERATURES", (0.0, 0.0))
    target = write_cut_target(tmp_path / "target.gguf")
    with localspec.load(target, "none", reproducible=True, **RUNTIME) as engine:
        prompts = tokenized(engine, letters(4))
        costs = {"suffix": [1.0] * 4}
        tried = result.last_trials(engine, costs, prompts, lambda _: None, threading.Event())
    first, second = tried
    assert (first.accepted, first.tokens_per_step) == (second.accepted, second.tokens_per_step)
