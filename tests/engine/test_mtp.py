"""Heads of multi-token prediction in the engine: where they lie, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest
from fakes.command_line import localspec
from fakes.drafter_kinds import EXACT, PROMPT
from fakes.library_rows import LibraryRows
from fakes.mtp import TRUNK, MtpOracle, OfRows, write_sidecar, write_target
from fakes.pycode import load
from fakes.recorder import Recorder

from localspec.bench.configurations import Sweep
from localspec.bench.prompt_sets import Task
from localspec.drafters.mtp import Mtp
from localspec.engine.engine import Engine
from localspec.engine.state_store import StateStore
from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.llama.rollback import Rollback
from localspec.loading.config import RuntimeConfig


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target with a head inside, the same without one, and the head in a file of its own."""
    folder: Path = tmp_path_factory.mktemp("mtp")
    (folder / "far").mkdir()
    return {
        "inside": write_target(folder / "target.gguf"),
        "trunk": write_target(folder / "trunk.gguf", heads=0),
        "sidecar": write_sidecar(folder / "far" / "mtp-target.gguf"),
    }


@pytest.fixture(scope="module")
def plain(files: dict[str, Path]) -> Iterator[Engine]:
    with load(files["trunk"], draft="none", **EXACT) as engine:
        yield engine


@pytest.fixture
def drafts(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with LibraryRows(files["trunk"], (TRUNK,)) as rows:
        yield Recorder(Mtp, OfRows(MtpOracle(files["sidecar"]), rows), monkeypatch)


def test_without_snapshots_rows_of_tokens_evaluated_again_arrive_again(
    files: dict[str, Path], plain: Engine, drafts: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.loading.drafter_plan.SNAPSHOTS", 0)
    again = 0
    with load(files["inside"], draft="mtp", **EXACT) as engine:
        assert engine.slots.own.target.rollback is Rollback.FULL
        for seed, depth in enumerate((1, 2, 4, 8)):
            options = {"max_tokens": 30, "seed": seed, "ignore_eos": True}
            expected = plain.generate(PROMPT, **options)
            before = engine.slots.own.target.evaluated
            found = engine.generate(PROMPT, depth=depth, **options)
            assert found.token_ids == expected.token_ids
            rows = engine.slots.own.target.evaluated - before
            again += rows - found.stats.prompt_evaluated - found.stats.drafted - found.stats.steps
    assert again > 10
    drafts.check()


@pytest.mark.parametrize("counts", [(8, 2), (2, 8), (0, 4), (4, 0)])
def test_a_saved_text_goes_on_with_another_number_of_snapshots(
    files: dict[str, Path],
    plain: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int, int],
) -> None:
    """Memory chooses it at each start; what is saved is the same state."""
    saved, loaded = counts
    options = {"seed": 5, "ignore_eos": True, "depth": 4}
    whole = plain.generate(PROMPT, max_tokens=40, **options).token_ids
    store = StateStore(tmp_path)
    monkeypatch.setattr("localspec.loading.drafter_plan.SNAPSHOTS", saved)
    with load(files["inside"], draft="mtp", **EXACT) as engine:
        written = engine.generate(PROMPT, max_tokens=20, **options)
        text = [*PROMPT, *written.token_ids]
        assert engine.slots.own.save("text", store) is None
    monkeypatch.setattr("localspec.loading.drafter_plan.SNAPSHOTS", loaded)
    with load(files["inside"], draft="mtp", **EXACT) as engine:
        assert engine.slots.own.target.context.params.snapshots == loaded
        assert engine.slots.own.load("text", store) is None
        rest = engine.generate(text, max_tokens=20, **options)
    assert [*written.token_ids, *rest.token_ids] == whole
    # The head lacks the last row, and a running state goes back to a copy, that of the prompt.
    assert rest.stats.prompt_evaluated == 20 + 1 and rest.stats.accepted > 0


# Loading.


def test_auto_takes_the_head_inside(files: dict[str, Path]) -> None:
    with load(files["inside"], **EXACT) as engine:
        assert engine.drafter_set.names == ["suffix", "mtp"]
        assert engine.model.mtp
        assert engine.slots.own.target.rollback is Rollback.BOUNDED
        engine.generate(PROMPT, max_tokens=20)
    with load(files["trunk"], **EXACT) as engine:
        assert engine.drafter_set.names == ["suffix"]


def test_auto_takes_the_head_beside_with_snapshots_of_the_state(
    files: dict[str, Path], plain: Engine, tmp_path: Path
) -> None:
    target = Path(copy(files["trunk"], tmp_path / "hybrid.gguf"))
    copy(files["sidecar"], tmp_path / "mtp-hybrid.gguf")
    with load(target, **EXACT) as engine:
        assert engine.drafter_set.names == ["suffix", "mtp-hybrid"]
        assert engine.slots.own.target.rollback is Rollback.BOUNDED
        options = {"max_tokens": 20, "seed": 3, "ignore_eos": True}
        expected = plain.generate(PROMPT, **options)
        assert engine.generate(PROMPT, **options).token_ids == expected.token_ids
    # Copies of the prompt make plain passes no slower.
    (tmp_path / "mtp-hybrid.gguf").unlink()
    with load(target, **EXACT) as engine:
        assert engine.slots.own.target.rollback is Rollback.FULL


@pytest.mark.parametrize("draft", ["none", "suffix"])
def test_the_head_is_loaded_only_where_it_is_used(files: dict[str, Path], draft: str) -> None:
    with load(files["inside"], draft=draft, **EXACT) as engine:
        assert not engine.model.mtp


def test_a_target_and_its_head_are_loaded_once(files: dict[str, Path]) -> None:
    with load(files["inside"], draft="mtp", **EXACT) as engine:
        [head] = engine.drafter_set.sequences.values()
        assert head.model is engine.model
        assert head.context in engine.slots.own.target.context.head_contexts


def test_drafters_are_exchanged(files: dict[str, Path], plain: Engine, drafts: Recorder) -> None:
    options = {"max_tokens": 20, "temperature": 0, "depth": 3, "ignore_eos": True}
    expected = plain.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True).token_ids
    with load(files["inside"], draft="none", **EXACT) as engine:
        model = engine.model
        for draft in ("mtp", "suffix", "mtp", files["sidecar"], files["inside"], "none", "mtp"):
            engine.switch(draft=draft)
            found = engine.generate(PROMPT, **options)
            assert found.token_ids == expected
            assert (found.stats.drafted > 0) == (draft != "none")
            # It was loaded again once, for its head.
            assert engine.model is not model
            assert engine.model.mtp
            gives_rows = bool(engine.slots.own.target.context.hidden.layers)
            assert gives_rows == (draft not in ("suffix", "none"))
            before = engine.model
            engine.switch(draft=draft)
            assert engine.model is before
    drafts.check()


def test_a_switch_to_a_head_that_is_not_there_changes_nothing(files: dict[str, Path]) -> None:
    with load(files["trunk"], draft="suffix", **EXACT) as engine:
        before = engine.model
        with pytest.raises(DrafterMismatchError, match="has no MTP heads inside"):
            engine.switch(draft="mtp")
        assert engine.model is before
        assert engine.drafter_set.names == ["suffix"]
        engine.generate(PROMPT, max_tokens=3)


# What is refused.


def test_a_target_without_heads_says_where_there_are_some(
    files: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(DrafterMismatchError) as refusal:
        load(files["trunk"], draft="mtp", **EXACT)
    assert "trunk.gguf has no MTP heads inside" in str(refusal.value)
    assert "-MTP-GGUF" in str(refusal.value)
    target = write_target(tmp_path / "small-Q4_K_M.gguf", heads=0)
    (tmp_path / "MTP").mkdir()
    beside = write_sidecar(tmp_path / "MTP" / "mtp-small-Q8_0.gguf")
    with pytest.raises(DrafterMismatchError, match=f"pass draft='.*{beside.name}'"):
        load(target, draft="mtp", **EXACT)


def test_a_sidecar_is_no_target(files: dict[str, Path]) -> None:
    with pytest.raises(ModelLoadError, match="draft head, not a model; pass its target"):
        load(files["sidecar"], **EXACT)


def test_a_sidecar_of_another_model_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    other = write_sidecar(tmp_path / "mtp-other.gguf", trunk=4)
    with pytest.raises(DrafterMismatchError, match=r"models of 4 layers.*with 2"):
        load(files["trunk"], draft=other, **EXACT)
    wide = write_sidecar(tmp_path / "mtp-wide.gguf", width=48)
    with pytest.raises(DrafterMismatchError, match="48 numbers"):
        load(files["trunk"], draft=wide, **EXACT)


def test_bench_compares_the_head_inside(files: dict[str, Path]) -> None:
    tasks = [Task("chat", 1, "a b c")]
    sweep = Sweep(files["inside"], None, ["model", "auto"], [2])
    with sweep.load(RuntimeConfig(threads=1, context=256), tasks, 8) as loaded:
        assert [each.name for each in loaded.configurations] == [
            *("plain", "mtp, depth 2", "auto, depth 2")
        ]
        assert loaded.configurations[2].engine.drafter_set.names == ["suffix", "mtp"]


def test_a_plan_forecasts_the_head_inside(files: dict[str, Path]) -> None:
    options = ("--set", "chat", "--answers", "2", "-n", "8", "--all", "--json")
    done = localspec("plan", "-m", str(files["inside"]), *options)
    assert done.code == 0
    record = json.loads(done.out)
    assert 0 <= record["rates"]["mtp"] <= 1
    assert record["seconds"]["drafters"]["mtp"]["first"] > 0
    lines = [line for line in record["lines"] if line["drafter"] == "mtp"]
    assert {(line["rule"], line["depth"]) for line in lines} == {
        # A draft of eight tokens is noted, and an answer of eight has seven to draft.
        ("coupled", depth)
        for depth in range(1, 8)
    }
    assert record["plan"]["rates"]["mtp"] == record["rates"]["mtp"]
    assert any(line["drafter"] == "auto" for line in record["lines"])
