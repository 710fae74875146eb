"""Acceptance check: a head of another model is found out, once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.eagle3 import SHAPES, write_head, write_target
from fakes.lora import write_lora

from localspec.drafters.eagle3 import Eagle3
from localspec.engine.engine import load
from localspec.gguf.facts import facts_of
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.reader import read_header
from localspec.gguf.weights import Weights
from localspec.gguf.writer import write_gguf
from localspec.loading import acceptance_check, drafter_plan
from localspec.loading.head_trial import head_trial
from localspec.memory.available import FreeMemory
from localspec.models import own_drafters
from localspec.models.trained_drafters import TARGET
from localspec.models.vocabulary_match import CheckResult
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Passes
from localspec.utils.paths import cache_folder
from localspec.utils.stored_json import store_json

OPTIONS = {"threads": 1, "context": 256}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("heads")
    return {
        "target": write_target(folder / "target.gguf"),
        "head": write_head(folder / "head.gguf"),
        "foreign": write_head(
            folder / "foreign.gguf", SHAPES["whole vocabulary"], likely=(100, 101)
        ),
    }


def test_a_head_of_this_target_is_taken_without_a_word(files: dict[str, Path]) -> None:
    with load(files["target"], draft=files["head"], **OPTIONS) as engine:
        assert not engine.notes


def test_a_head_is_tried_with_these_adapters(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    adapter = write_lora(tmp_path / "a.gguf", files["target"])
    for count, lora in enumerate([(), adapter, f"{adapter}:0.5"], start=1):
        for _ in range(2):
            load(files["target"], draft=files["head"], lora=lora, **OPTIONS).close()
            assert len([*cache_folder("acceptance_checks").iterdir()]) == count


@pytest.mark.parametrize("context", [2, 16, 48, 63])
def test_a_context_too_small_to_try_a_head_loads_it(
    files: dict[str, Path], context: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    with load(files["target"], draft=files["foreign"], threads=1, context=context) as engine:
        assert not engine.notes
        assert engine.generate([5], max_tokens=20, ignore_eos=True).stop_reason in "length context"
    assert acceptance_check.remembered_rate(files["target"], files["foreign"]) is None


def test_a_head_of_another_model_is_named_with_its_rate(files: dict[str, Path]) -> None:
    with load(files["target"], draft=files["foreign"], **OPTIONS) as engine:
        assert any(
            "foreign seems to be made for another model than target.gguf" in note
            and "accepts 0% of its tokens" in note
            for note in engine.notes
        )
        # It was asked for, so it drafts.
        found = engine.generate([1, 5, 9], max_tokens=12, depth=2, ignore_eos=True)
        assert found.stats.drafted


def test_a_head_that_was_trained_for_this_target_is_no_other_models(
    files: dict[str, Path], tmp_path: Path
) -> None:
    for of, is_named in (("target", False), ("head", True)):
        trained = tmp_path / f"trained-{of}.gguf"
        header, weights = read_header(files["foreign"]), Weights(files["foreign"])
        metadata = {**header.metadata, TARGET: fingerprint(files[of])}
        tensors = [weights.stored(each) for each in header.tensors]
        write_gguf(trained, header.architecture, metadata, tensors)
        with load(files["target"], draft=trained, **OPTIONS) as engine:
            assert any("another model" in note for note in engine.notes) == is_named
        # As an earlier version has remembered it.
        store_json(acceptance_check._file([files["target"], trained]), {"rate": 0.0})
        last = head_trial(facts_of(files["target"]), facts_of(trained))[-1]
        expected = CheckResult.UNFIT if is_named else CheckResult.HARMLESS
        assert last.verdict is expected and ("learnt too little" in last.detail) != is_named


def test_the_rate_is_measured_once(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    measured: list[float | None] = []
    usual = acceptance_check._measured

    def counted(*arguments: object) -> float | None:
        measured.append(usual(*arguments))  # type: ignore[arg-type]
        return measured[-1]

    monkeypatch.setattr(acceptance_check, "_measured", counted)
    for _ in range(2):
        load(files["target"], draft=files["head"], **OPTIONS).close()
    assert len(measured) == 1 and (measured[0] or 0) > acceptance_check.LEAST_RATE
    # Under other rotations fewer drafts are right, which says nothing of the files.
    for _ in range(2):
        load(files["target"], draft=files["head"], rope_scale=8, **OPTIONS).close()
    assert len(measured) == 2
    rate = acceptance_check.remembered_rate(files["target"], files["head"])
    assert rate == pytest.approx(measured.pop(0), abs=1e-3)
    for record in cache_folder("acceptance_checks").glob("*"):
        record.write_text('{"rate": "damaged"}')
    load(files["target"], draft=files["head"], **OPTIONS).close()
    assert len(measured) == 2


def test_a_head_that_drafted_nothing_is_not_judged(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))

    def nothing(_head: Eagle3, _limit: Limit) -> Passes[Draft]:
        yield from ()
        return NOTHING

    with monkeypatch.context() as silent:
        silent.setattr(Eagle3, "passes", nothing)
        with load(files["target"], draft=files["foreign"], **OPTIONS) as engine:
            assert not engine.notes
    assert acceptance_check.remembered_rate(files["target"], files["foreign"]) is None
    # At the next load it is tried again.
    with load(files["target"], draft=files["foreign"], **OPTIONS) as engine:
        assert any("made for another model" in note for note in engine.notes)


def test_a_text_in_the_cache_stays(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    options = {"max_tokens": 8, "seed": 2, "ignore_eos": True}
    with load(files["target"], draft="none", **OPTIONS) as engine:
        first = engine.generate([1, 5, 9], **options)
        engine.switch(draft=files["head"])
        longer = [1, 5, 9, *first.token_ids]
        again = engine.generate(longer, **options)
        engine.switch(draft="none")
        assert engine.generate(longer, **options).token_ids == again.token_ids


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path]) -> Callable[..., None]:
    """Makes heads the target's own drafters, which were never tried before."""
    shutil.rmtree(cache_folder("acceptance_checks"), ignore_errors=True)

    def are(*names: str) -> None:
        known = [own_drafters.OwnDrafter("eagle3", files[name], files[name]) for name in names]
        monkeypatch.setattr(own_drafters, "own_drafters", lambda _target: known)

    return are


def test_auto_leaves_a_head_of_another_model_out(
    files: dict[str, Path], own: Callable[..., None]
) -> None:
    own("foreign")
    with load(files["target"], **OPTIONS) as engine:
        drafting = engine.drafter_set
        assert drafting.names == ["suffix"]
        assert "made for another model" in str(drafting.reason)


def test_auto_tries_the_next_drafter_where_one_cannot_be_loaded(
    files: dict[str, Path], own: Callable[..., None]
) -> None:
    own("foreign", "head")
    with load(files["target"], **OPTIONS) as engine:
        assert engine.drafter_set.names == ["suffix", "head"]
        assert engine.drafter_set.reason is None
        [note] = [note for note in engine.notes if "foreign.gguf cannot be used" in note]
        assert "made for another model" in note and note.endswith("head drafts instead")


def test_a_head_that_was_not_accepted_before_is_said_at_each_load(
    files: dict[str, Path],
    own: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    load(files["target"], draft=files["foreign"], **OPTIONS).close()
    own("foreign", "head")
    left_out = "foreign.gguf is left out: target.gguf accepted 0% of its tokens at its first use"
    for _ in range(2):
        with load(files["target"], **OPTIONS) as engine:
            assert engine.drafter_set.names == ["suffix", "head"]
            [note] = engine.notes
            assert left_out in note and note.endswith("name it with draft to use it anyway")
    own("foreign")
    with load(files["target"], **OPTIONS) as engine:
        assert engine.drafter_set.names == ["suffix"] and not engine.notes
        assert left_out in str(engine.drafter_set.reason)


def test_the_next_drafter_must_fit_beside_the_target(
    files: dict[str, Path], own: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    own("foreign", "head")
    monkeypatch.setattr(drafter_plan, "free_memory", lambda *_: FreeMemory({"CPU": 1000}))
    with load(files["target"], **OPTIONS) as engine:
        assert engine.drafter_set.names == ["suffix"]
        assert "head.gguf is left out: it would need" in str(engine.drafter_set.reason)
