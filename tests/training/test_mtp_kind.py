"""`--kind mtp`: what a head begins with, what its file drafts, and targets that have none."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from fakes import mtp
from fakes.cut_target import write_cut_target
from fakes.drafter_kinds import EXACT
from fakes.learnt_qwen35 import Shape, write_learnt
from fakes.library_rows import LibraryRows
from fakes.recorder import Recorder
from fakes.tiny import write_tiny
from fakes.training_runs import RUNTIME, request

import localspec
from localspec.conversion.target import TargetFile
from localspec.distillation import last_trial, texts
from localspec.distillation.material import TextSource
from localspec.distillation.prompt_set import terminal_prompts
from localspec.drafters.mtp import Mtp
from localspec.errors import DrafterMismatchError
from localspec.gguf.reader import read_header
from localspec.gguf.weights import Weights
from localspec.gguf.writer import write_gguf
from localspec.models.own_drafters import own_drafters
from localspec.training.drafter_kind import KindOptions
from localspec.training.kinds import KINDS
from localspec.training.mtp_head import TENSORS
from localspec.training.mtp_kind import MTP_KIND
from localspec.training.mtp_source import MtpSource
from localspec.training.own_training import OwnTraining
from localspec.training.training_request import TrainingRequest

FLOATS = KindOptions(type_name="F32")
# Questions that a target learns to answer.
LEARNT_PROMPTS = 96


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def without(source: Path, path: Path, name: str, **metadata: Any) -> Path:
    """A copy of a model without one of its tensors. metadata: numbers that are other ones."""
    header, weights = read_header(source), Weights(source)
    tensors = [weights.stored(each) for each in header.tensors if each.name != name]
    changed = {f"{header.architecture}.{key}": value for key, value in metadata.items()}
    write_gguf(path, header.architecture, {**header.metadata, **changed}, tensors)
    return path


def test_a_target_of_another_architecture_is_refused_with_the_kinds_that_are_left(
    tmp_path: Path,
) -> None:
    target = TargetFile(write_cut_target(tmp_path / "llama.gguf"))
    left = r"--kind eagle3, dflash, medusa or draft-model$"
    with pytest.raises(DrafterMismatchError, match=f"architecture is llama, not qwen35; .*{left}"):
        MTP_KIND.layers(target, FLOATS)
    target = TargetFile(write_tiny(tmp_path / "gemma.gguf", "gemma3"))
    with pytest.raises(DrafterMismatchError, match=r"is gemma3, not qwen35; .*--kind medusa$"):
        MTP_KIND.layers(target, FLOATS)


def test_a_target_with_such_heads_is_told_so(tmp_path: Path) -> None:
    target = TargetFile(mtp.write_target(tmp_path / "qwen.gguf", heads=0))
    with pytest.raises(DrafterMismatchError, match=r"it has 2 layers, .*--kind mtp or medusa$"):
        KINDS["eagle3"].layers(target, FLOATS)


@pytest.mark.parametrize("own_norm", [True, False])
def test_it_begins_with_the_head_in_the_targets_own_file(own_norm: bool, tmp_path: Path) -> None:
    target = mtp.write_target(tmp_path / "target.gguf")
    if not own_norm:
        name = f"blk.{mtp.TRUNK}.nextn.shared_head_norm.weight"
        target = without(target, tmp_path / "without.gguf", name)
    found, said = MtpSource(TargetFile(target)).weights(None)
    assert said == "begins with the head in the target's own file"
    tensors, weights = read_header(target).tensors, Weights(target)
    known = {each.name: weights.rows(each) for each in tensors}
    for name in TENSORS:
        there = known.get(f"blk.{mtp.TRUNK}.{name}", known["output_norm.weight"])
        np.testing.assert_array_equal(found[name], there)


def test_it_begins_with_a_file_that_is_named(tmp_path: Path) -> None:
    target = TargetFile(mtp.write_target(tmp_path / "target.gguf", heads=0))
    whole = mtp.write_target(tmp_path / "whole.gguf", seed=4)
    alone = mtp.write_sidecar(tmp_path / "alone.gguf", seed=4)
    inside, said = MtpSource(target).weights(whole)
    assert said == f"begins with the head of {whole}"
    beside, _ = MtpSource(target).weights(alone)
    for name in TENSORS:
        np.testing.assert_array_equal(inside[name], beside[name])
    assert MTP_KIND.layers(target, replace(FLOATS, head=alone)) == (mtp.TRUNK,)


def test_other_heads_are_refused(tmp_path: Path) -> None:
    target = TargetFile(mtp.write_target(tmp_path / "target.gguf", heads=0))
    deeper = mtp.write_sidecar(tmp_path / "deeper.gguf", trunk=3)
    with pytest.raises(DrafterMismatchError, match="a head of qwen35 models of 3 layers"):
        MTP_KIND.layers(target, replace(FLOATS, head=deeper))
    wider = mtp.write_sidecar(tmp_path / "wider.gguf", width=64)
    with pytest.raises(DrafterMismatchError, match="hidden states of 64 numbers"):
        MTP_KIND.layers(target, replace(FLOATS, head=wider))
    alone = mtp.write_sidecar(tmp_path / "alone.gguf")
    base = {"rope.freq_base": 500.0}
    part = without(alone, tmp_path / "part.gguf", f"blk.{mtp.TRUNK}.nextn.hnorm.weight")
    other = without(alone, tmp_path / "other.gguf", "", **base)
    for file, why in ((part, "has no tensor .*hnorm"), (other, "its rope.freq_base is 500.0, not")):
        with pytest.raises(DrafterMismatchError, match=why):
            MTP_KIND.layers(target, replace(FLOATS, head=file))


@pytest.mark.slow
@pytest.mark.usefixtures("short_texts")
@pytest.mark.parametrize("heads", [0, 1])
def test_a_head_becomes_the_targets_own(
    heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drafts are those of an independent forward, and the head before is tried beside it."""
    target = mtp.write_target(tmp_path / "target.gguf", heads=heads)
    made = replace(request(target, options=FLOATS), kind="mtp")
    said: list[str] = []
    done = OwnTraining(made, lambda _: None, said.append, threading.Event()).run()
    assert done.finished and max(each[0] for each in done.history) > done.history[0][0]
    begins = "the head in the target's own file" if heads else "layer 1 of the target"
    assert said[0].startswith(f"mtp: one layer, begins with {begins}")
    assert {each.name for each in done.trials} == {
        *(str(done.path), "none", "suffix"),
        *(["mtp"] if heads else []),
    }
    found = [each for each in own_drafters(target) if each.file == done.path]
    assert [each.kind for each in found] == ["mtp"]
    with ExitStack() as undo:
        rows = undo.enter_context(LibraryRows(target, (mtp.TRUNK,)))
        recorder = Recorder(Mtp, mtp.OfRows(mtp.MtpOracle(done.path), rows), monkeypatch)
        engine = undo.enter_context(localspec.load(target, str(done.path), **EXACT))
        recorder.drafts.clear()
        options: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True, "seed": 3}
        drafted = engine.generate("anbtdnen", depth=4, temperature=0.7, **options)
        recorder.check()
        assert recorder.checked > 40
        plain = engine.generate("anbtdnen", depth=0, temperature=0.7, **options)
    assert drafted.token_ids == plain.token_ids
    with localspec.load(target, **RUNTIME) as engine:
        names = engine.drafter_set.names
        assert any(done.path.stem in name for name in names) == done.preferred


@pytest.mark.slow
@pytest.mark.usefixtures("short_texts")
def test_a_target_that_has_learnt_something_accepts_more_than_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than 1.5 tokens per step at temperature 0, and more than `suffix` reaches."""
    monkeypatch.setattr(texts, "ANSWER", 48)
    monkeypatch.setattr(last_trial, "TOKENS", 48)
    prompts = terminal_prompts()[:LEARNT_PROMPTS]
    target = tmp_path / "target.gguf"
    write_learnt(target, prompts, rounds=16, most=48, shape=Shape())
    asked = [[{"role": "user", "content": each}] for each in prompts]
    source = TextSource(target, lambda _: asked, 3, RUNTIME)
    made = TrainingRequest(source, "mtp", "questions", tokens=5000)
    done = OwnTraining(made, lambda _: None, lambda _: None, threading.Event()).run()
    steps = {each.name: each.tokens_per_step for each in done.trials if not each.temperature}
    assert steps[str(done.path)] > max(1.5, steps["suffix"]), (done.trials, done.history)
