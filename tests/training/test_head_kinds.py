"""Heads that `localspec train` trains: what they learn from is what they draft from, and it helps.

Each kind is trained on a few texts of a target with random weights.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from fakes import mtp, tiny
from fakes.dflash import BlockOracle
from fakes.drafter_kinds import EXACT
from fakes.eagle3 import Eagle3Oracle, write_head, write_target
from fakes.library_rows import LibraryRows
from fakes.matrix_heads import MedusaOracle
from fakes.recorder import Oracle
from fakes.tiny import write_tiny
from fakes.tool_drafts import EXACT_FLAGS, own_drafts, same_drafts, tools_drafts
from fakes.trained import SIZES, write_tokenizer, write_trained_target
from fakes.training_runs import RUNTIME, request

import localspec
from localspec.bench.experiments.block_drafts import Run, compared, own_steps, peers_steps
from localspec.conversion.target import TargetFile
from localspec.conversion.token_counts import count_ids
from localspec.distillation.reading import TargetReader
from localspec.distillation.row_cache import RowCache
from localspec.distillation.shard import Shard
from localspec.distillation.texts import Text
from localspec.distillation.work_folder import WorkFolder
from localspec.drafters.eagle3 import Eagle3
from localspec.drafters.mtp import Mtp
from localspec.drafters.row_reader import RowReader
from localspec.engine.engine import Engine
from localspec.errors import DrafterMismatchError, InvalidValueError
from localspec.gguf.reader import read_header
from localspec.gguf.weights import Weights
from localspec.llama.quantize import quantize
from localspec.models.own_drafters import own_drafters
from localspec.speculation.drafter import Evaluated
from localspec.speculation.passes import OUTPUT
from localspec.training import result
from localspec.training.drafter_kind import KindOptions, TrainableDrafter
from localspec.training.examples import Batch, batches
from localspec.training.kinds import KINDS
from localspec.training.own_training import OwnTraining
from localspec.training.rounds import Rounds
from localspec.training.tensor_layouts import BLOCK
from localspec.training.training_request import Progress

TOOL = os.environ.get("LLAMA_SPECULATIVE_SIMPLE", "")
HEADS = ("eagle3", "medusa", "dflash", "mtp")
# The tokens of a text, and of its prompt.
LENGTH, PROMPT = 64, 5
FLOATS = KindOptions(type_name="F32")


@dataclass(frozen=True)
class Read:
    """A target, and texts of it that it has read: to learn from, and held out."""

    target: Path
    learnt: Sequence[Text]
    shard: Shard
    held_out: Shard


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Read]:
    @cache
    def read(family: str) -> Read:
        target = tmp_path_factory.mktemp("target") / "target.gguf"
        layers: tuple[int, ...] = (2, 3, 4, OUTPUT)
        if family == "qwen35":
            mtp.write_target(target, heads=0)
            layers = (mtp.TRUNK,)
        else:
            write_target(target)
        with localspec.load(target, "none", **EXACT) as engine:
            texts = [_written(engine, seed) for seed in range(28)]
            reader = TargetReader(engine.slots.own.target, layers)
            learnt, held_out = (
                Shard.of([reader.read(text) for text in part]) for part in (texts[:24], texts[24:])
            )
        return Read(target, texts[:24], learnt, held_out)

    return read


@pytest.fixture
def read(request: pytest.FixtureRequest, reads: Callable[[str], Read]) -> Read:
    """What a target of the kind's family has read."""
    callspec = getattr(request.node, "callspec", None)
    kind = callspec.params.get("kind") if callspec else None
    return reads("qwen35" if kind == "mtp" else "llama")


def _written(engine: Engine, seed: int) -> Text:
    prompt = [1, 259 + seed % 20, 30 + seed, 266, 271]
    options: dict[str, Any] = {"max_tokens": LENGTH - PROMPT, "ignore_eos": True}
    done = engine.generate(prompt, temperature=0.7, seed=seed, **options)
    return Text((*prompt, *done.token_ids), len(prompt))


def _batches(shard: Shard) -> list[Batch]:
    return list(batches(shard, torch.device("cpu"), np.random.default_rng(0), 32))


def _created(name: str, read: Read, options: KindOptions = FLOATS) -> TrainableDrafter:
    torch.manual_seed(1)
    return KINDS[name].create(TargetFile(read.target), options, _batches(read.held_out))


def _trained(drafter: TrainableDrafter, read: Read, folder: WorkFolder, rounds: int) -> Rounds:
    cache = RowCache(folder, [read.learnt], lambda _: read.shard, 1 << 30)
    steps = rounds * len(_batches(read.shard))
    training = Rounds(
        drafter, cache, [read.held_out], folder, rounds=rounds, steps=steps, seed=1, width=32
    )
    training.resume()
    training.run(lambda _: None)
    return training


# Rounds, and by how much the share of right first tokens rises in them, at least. Medusa heads say
# at first what the target says one token before, which on this target is right in most places.
RISES = {"eagle3": (8, 0.05), "medusa": (12, 0.003), "dflash": (40, 0.03), "mtp": (8, 0.05)}
ORACLES: dict[str, Callable[[Path, Path, ExitStack], Oracle]] = {
    "eagle3": lambda target, head, _: Eagle3Oracle(target, head),
    "medusa": lambda target, head, _: MedusaOracle(target, head),
    "dflash": lambda target, head, _: BlockOracle(target, head),
    "mtp": lambda target, head, undo: mtp.OfRows(
        mtp.MtpOracle(head), undo.enter_context(LibraryRows(target, (mtp.TRUNK,)))
    ),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_measured_agreement_is_that_of_the_drafts_of_the_file(
    kind: str, read: Read, tmp_path: Path
) -> None:
    """The file's drafts by an independent forward, from every place of an answer on."""
    drafter, path = _created(kind, read).eval(), tmp_path / "head.gguf"
    with torch.no_grad():
        for name, weight in drafter.named_parameters():
            if name.endswith("bias") or (weight.requires_grad and weight.dim() > 1):
                weight += 0.1 * torch.randn_like(weight)
    drafter.export(path, {})
    part = Shard(read.held_out.texts[:1], read.held_out.top, read.held_out.hidden)
    (batch,) = _batches(part)
    with torch.no_grad():
        found = [(each.total, each.rows) for each in drafter.agreement(batch)]
    tokens = list(part.texts[0].tokens)
    step = BLOCK if kind == "dflash" else 1
    # The row of the first place has an empty text before it; drafts need a token with a row.
    pending = [place for place in range(1, LENGTH) if place >= PROMPT - 1 and place % step == 0]
    if kind == "medusa":
        pending = [place + 1 for place in pending]  # the first step behind a prompt has no row
    totals, rows = [0.0] * len(found), [0] * len(found)
    with ExitStack() as undo:
        oracle = ORACLES[kind](read.target, path, undo)
        for place in pending:
            depth = min(len(found), LENGTH - place)
            if place >= LENGTH:
                continue
            drafted = [*tokens[place + 1 :], 0][:depth]
            for number, logits in enumerate(oracle.draft_logits(tokens[: place + 1], drafted)):
                own = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
                top = place - (PROMPT - 1) + number
                right = part.top.log_probs[top].astype(np.float64)
                totals[number] += float(np.exp(np.minimum(own[part.top.ids[top]], right)).sum())
                rows[number] += 1
    assert [count for _, count in found] == rows
    np.testing.assert_allclose([total for total, _ in found], totals, rtol=3e-3)


@pytest.mark.parametrize("kind", HEADS)
def test_training_makes_more_drafts_right(kind: str, read: Read, tmp_path: Path) -> None:
    drafter, path = _created(kind, read, KindOptions()), tmp_path / "head.gguf"
    rounds, rise = RISES[kind]
    history = _trained(drafter, read, WorkFolder([kind, "rises"]), rounds).history
    assert max(each[0] for each in history) > history[0][0] + rise, history
    drafter.export(path, {"general.name": "head"})
    options: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "temperature": 0.7, "seed": 3}
    with localspec.load(read.target, str(path), **EXACT) as engine:
        drafted = engine.generate([1, 259, 30, 266, 271], depth=3, **options)
        plain = engine.generate([1, 259, 30, 266, 271], depth=0, **options)
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.accepted


@pytest.mark.parametrize("kind", HEADS)
def test_one_seed_gives_one_file_also_when_resumed(kind: str, read: Read, tmp_path: Path) -> None:
    files = []
    for number, rounds in enumerate(((2,), (2,), (1, 2))):
        folder = WorkFolder([kind, number])
        for count in rounds:
            drafter = _created(kind, read)
            cache = RowCache(folder, [read.learnt], lambda _: read.shard, 1 << 30)
            training = Rounds(
                drafter, cache, [read.held_out], folder, rounds=count, steps=50, seed=1, width=32
            )
            training.resume()
            training.run(lambda _: None)
        drafter.export(tmp_path / "head.gguf", {})
        files.append((tmp_path / "head.gguf").read_bytes())
    assert files[0] == files[1] == files[2]


class _Recorded:
    """The rows that a drafter reads while the target writes."""

    def __init__(self, patch: pytest.MonkeyPatch, layers: Sequence[int]) -> None:
        self.rows: dict[int, dict[int, Any]] = {layer: {} for layer in layers}
        usual = RowReader.read

        def reading(drafter: RowReader, evaluated: Evaluated) -> Any:
            for layer, own in self.rows.items():
                for number in range(len(evaluated.tokens)):
                    own[evaluated.start + number] = evaluated.hidden[layer][number].copy()
            return usual(drafter, evaluated)

        patch.setattr(RowReader, "read", reading)


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
@pytest.mark.parametrize("quantised", [False, True])
def test_the_rows_of_training_are_those_of_drafting(
    kind: str, read: Read, quantised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, options = read.target, dict(EXACT)
    if quantised:
        target = tmp_path / "target.gguf"
        if kind == "mtp":
            quantize(read.target, target, "Q8_0", threads=1)
        else:
            words = write_tokenizer(tmp_path / "tokenizer.json", SIZES.vocabulary)
            write_trained_target(target, words)
    trained, prompt = KINDS[kind], [1, 5, 17, 44, 5]
    layers = trained.layers(TargetFile(target), FLOATS)
    with localspec.load(target, "none", reproducible=True, **options) as engine:
        text = Text((*prompt, *range(6, 60)), len(prompt))
        sample = Shard.of([TargetReader(engine.slots.own.target, layers).read(text)])
        torch.manual_seed(1)
        drafter = trained.create(TargetFile(target), FLOATS, _batches(sample))
    drafter.export(tmp_path / "head.gguf", {})
    with localspec.load(
        target, str(tmp_path / "head.gguf"), reproducible=True, **options
    ) as engine:
        recorded = _Recorded(monkeypatch, layers)
        done = engine.generate(prompt, max_tokens=40, depth=3, temperature=0, ignore_eos=True)
        again = Text((*prompt, *done.token_ids), len(prompt))
        learnt = TargetReader(engine.slots.own.target, layers).read(again)
    for layer in layers:
        mine = np.array([recorded.rows[layer][place] for place in range(len(again.tokens) - 1)])
        np.testing.assert_allclose(mine, learnt.hidden[layer][: len(mine)], rtol=1e-5, atol=1e-5)


def test_a_target_without_such_rows_is_refused_with_the_kinds_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "LAYERS", 4)
    for kind in ("eagle3", "dflash"):
        target = TargetFile(write_tiny(tmp_path / "gemma.gguf", "gemma3"))
        with pytest.raises(DrafterMismatchError, match=r"hidden rows of gemma3.*--kind medusa$"):
            KINDS[kind].layers(target, FLOATS)
        assert KINDS["medusa"].layers(target, FLOATS) == (OUTPUT,)


def test_a_target_of_two_layers_is_refused(tmp_path: Path) -> None:
    target = TargetFile(write_tiny(tmp_path / "llama.gguf", "llama"))
    with pytest.raises(
        DrafterMismatchError, match=r"it has 2 layers, .*--kind medusa or draft-model$"
    ):
        KINDS["eagle3"].layers(target, FLOATS)


def test_medusa_has_types_that_its_drafter_multiplies(read: Read) -> None:
    with pytest.raises(InvalidValueError, match="type is 'Q4_0'"):
        KINDS["medusa"].layers(TargetFile(read.target), KindOptions(type_name="Q4_0"))


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_is_trained_further_from_its_file(kind: str, read: Read, tmp_path: Path) -> None:
    drafter, path = _created(kind, read), tmp_path / "head.gguf"
    _trained(drafter, read, WorkFolder([kind, "first"]), 3)
    drafter.export(path, {})
    options = KindOptions(type_name="F32", head=path)
    assert KINDS[kind].layers(TargetFile(read.target), options) == KINDS[kind].layers(
        TargetFile(read.target), FLOATS
    )
    again, known = _created(kind, read, options), drafter.state_dict()
    assert all(torch.equal(weight, known[name]) for name, weight in again.state_dict().items())
    history = _trained(again, read, WorkFolder([kind, "further"]), 1).history
    best = max(each[0] for each in _trained(drafter, read, WorkFolder([kind, "none"]), 0).history)
    assert history[0][0] == pytest.approx(best)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dflash", "head.gguf is eagle3, not dflash; name a head of the kind"),
        ("medusa", "head.gguf is eagle3, not medusa; name a head of the kind"),
        ("eagle3", "cannot be trained further: its embedding_length is 24, not 32"),
    ],
)
def test_other_heads_are_not_trained_further(
    kind: str, message: str, read: Read, tmp_path: Path
) -> None:
    path = write_head(tmp_path / "head.gguf")
    with pytest.raises(DrafterMismatchError, match=message):
        _created(kind, read, KindOptions(head=path))


@pytest.mark.parametrize("kind", HEADS)
def test_options_of_draft_models_are_refused(kind: str, read: Read) -> None:
    message = f"which is for draft models; leave it out for {kind}"
    for options in (KindOptions(layers=2), KindOptions(cut="first")):
        with pytest.raises(InvalidValueError, match=message):
            KINDS[kind].layers(TargetFile(read.target), options)


def test_a_draft_model_is_not_trained_from_a_head(read: Read) -> None:
    with pytest.raises(InvalidValueError, match="a draft model begins with its target's layers"):
        KINDS["draft-model"].layers(TargetFile(read.target), KindOptions(head=read.target))


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_for_a_large_vocabulary_knows_the_frequent_tokens(
    kind: str, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, path, target = _created(kind, read), tmp_path / "head.gguf", TargetFile(read.target)
    tokens = [token for text in read.learnt for token in text.tokens]

    def exported() -> set[int] | None:
        counts = count_ids(target.n_vocab, tokens)
        result.export(drafter, path, target, "texts", [0.5], counts=lambda: counts)
        table = read_header(path).tensor("d2t")
        return {*Weights(path).data(table).view("<i8").tolist()} if table else None

    assert exported() is None
    monkeypatch.setattr(result, "LARGE_VOCABULARY", 256)
    known = exported()
    if kind in ("medusa", "mtp"):  # their files have a row for each token
        assert known is None
        return
    assert known is not None
    assert len(known) == target.n_vocab // 4
    frequent = [token for token, _ in Counter(tokens).most_common(20)]
    assert known >= {*frequent, 1, 2}
    with localspec.load(read.target, str(path), **EXACT) as engine:
        options: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "temperature": 0}
        drafted = engine.generate([1, 259, 30], depth=3, **options)
        assert engine.generate([1, 259, 30], depth=0, **options).token_ids == drafted.token_ids
    assert drafted.stats.drafted
    again = _created(kind, read, KindOptions(head=path)).state_dict()
    for name, weight in drafter.state_dict().items():
        assert (again[name] - weight).abs().max() <= 0.02 * weight.abs().max()


@pytest.mark.skipif(not TOOL, reason="LLAMA_SPECULATIVE_SIMPLE names no tool to compare with")
@pytest.mark.parametrize("kind", ["eagle3", "dflash", "mtp"])
def test_llama_cpps_own_tool_drafts_the_same(
    kind: str, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, path = _created(kind, read), tmp_path / "head.gguf"
    _trained(drafter, read, WorkFolder([kind, "tool"]), 4)
    drafter.export(path, {"general.name": "head"})
    if kind == "dflash":
        run = Run(read.target, path, "hello an en", 60)
        own, depth, name = own_steps(run)
        steps, equal, accepted = compared(own, peers_steps(Path(TOOL), run, depth, name))
        assert steps == equal == accepted > 10
        return
    said: dict[str, Any] = {"prompt": "hello an en", "tokens": 60, "depth": 3}
    exact = {name: value for name, value in EXACT.items() if name != "context"}
    drafting = Mtp if kind == "mtp" else Eagle3
    mine = own_drafts(read.target, path, **said, patch=monkeypatch, drafter=drafting, **exact)
    theirs = tools_drafts(TOOL, read.target, path, **said, kind=f"draft-{kind}", flags=EXACT_FLAGS)
    same_drafts(mine, theirs, end=2)


@pytest.mark.slow
@pytest.mark.usefixtures("short_texts")
def test_a_head_becomes_the_targets_own_also_when_the_training_was_stopped(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf")
    made = replace(request(target, options=KindOptions()), kind="medusa")
    done = OwnTraining(made, lambda _: None, lambda _: None, threading.Event()).run()
    assert done.finished and max(each[0] for each in done.history) > done.history[0][0]
    own = own_drafters(target)[0]
    assert own.file == done.path and bool(own.objection) == (not done.pays)
    with localspec.load(target, **RUNTIME) as engine:
        assert any(done.path.stem in name for name in engine.drafter_set.names) == done.pays
    whole, cancel = done.path.read_bytes(), threading.Event()

    def stop(progress: Progress) -> None:
        if progress.phase == "training" and progress.share >= 0.5:
            cancel.set()

    stopped = OwnTraining(made, stop, lambda _: None, cancel).run()
    assert not stopped.finished
    again = replace(made, resume=True)
    assert OwnTraining(again, lambda _: None, lambda _: None, threading.Event()).run().finished
    assert done.path.read_bytes() == whole
