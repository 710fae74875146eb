"""What was read of a prompt goes on in another process, and changes no text."""

import os
import random
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.damaged_files import damage
from fakes.drafter_kinds import EXACT, FIRST, write_pair
from fakes.tiny import tiny_model

import localspec
from localspec.engine import kept_prompts, kept_store
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.engine.kept_prompts import KeptPrompts
from localspec.engine.kept_store import SavingTime, kept_folder
from localspec.generation_config import GenerationConfig
from localspec.llama.kv_cache import KVCache
from localspec.speculation.passes import WIDE, Pass, Scores

SETTINGS: dict[str, Any] = {"max_tokens": 12, "seed": 5, "temperature": 1, "ignore_eos": True}
LONG = [1, *(20 + number % 200 for number in range(180))]
FIRST_PROMPT, SECOND = [*LONG, *range(30, 45)], [*LONG, *range(60, 70)]
# A prompt's last token is evaluated with the first step.
LEFT = WIDE + 1


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return kept_folder()


@contextmanager
def loaded(model: Path, draft: str = "none", **options: Any) -> Iterator[Engine]:
    with localspec.load(model, draft, **{"threads": 1, "context": 512, **options}) as engine:
        yield engine


def written(engine: Engine, prompt: list[int], **options: Any) -> tuple[Result, list[str | None]]:
    """The text that `generate --keep` writes, and why something was not used or not kept."""
    kept, settings = KeptPrompts(engine.slots.own), GenerationConfig.of(**{**SETTINGS, **options})
    unused = kept.load(prompt, settings)
    result = engine.generate(prompt, **{**SETTINGS, **options})
    return result, [unused, kept.save(prompt, SavingTime(None))]


def in_process(
    model: Path, prompt: list[int], draft: str = "none", *, logprobs: bool = False, **options: Any
) -> Result:
    """The text that a new process writes, which has used and kept what it could."""
    with loaded(model, draft, **options) as engine:
        result, failures = written(engine, prompt, logprobs=logprobs)
        assert failures == [None, None]
    return result


def fresh(
    model: Path, prompt: list[int], draft: str = "none", *, logprobs: bool = False, **options: Any
) -> Result:
    with loaded(model, draft, **options) as engine:
        return engine.generate(prompt, **SETTINGS, logprobs=logprobs)


@pytest.mark.parametrize("draft", ["none", "suffix", "model"])
@pytest.mark.parametrize("family", ["llama", "mamba", "qwen35"])
def test_every_kind_of_memory(family: str, draft: str) -> None:
    """A state that cannot be cut has a mark before the place where the second prompt left it.

    All of each prompt is read in wide passes, so that no digit differs from one read in one piece.
    """
    model = tiny_model(family)
    drafter = str(model) if draft == "model" else draft
    assert in_process(model, FIRST_PROMPT, drafter).stats.prompt_cached == 0
    longer = [*LONG, *range(150, 200), *range(100, 200)]
    prompts = [SECOND, [*LONG, *range(90, 100)], [*LONG, *range(150, 190)], longer, [*longer, 70]]
    prompts.append([*longer, *range(20, 120)])
    found = [in_process(model, prompt, drafter, logprobs=True) for prompt in prompts]
    for prompt, result in zip(prompts, found, strict=True):
        expected = fresh(model, prompt, drafter, logprobs=True)
        assert result.token_ids == expected.token_ids
        assert draft != "none" or result.logprobs == expected.logprobs
        assert result.stats.prompt_evaluated >= LEFT
    cached = [each.stats.prompt_cached for each in found]
    assert all(each >= len(SECOND) - LEFT for each in cached[1:])
    assert cached[-1] == len(longer) - 1
    if family == "llama":
        assert found[0].stats.prompt_evaluated == LEFT


@pytest.mark.parametrize("family", ["llama", "mamba", "qwen35"])
def test_no_pass_over_a_prompt_is_narrow(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of a kept prompt and of its answer begins it."""
    model = tiny_model(family)
    widths, decode = list[int](), KVCache.decode

    def noted(cache: KVCache, passes: Sequence[Pass]) -> list[Scores]:
        widths.extend(len(each) for each in passes)
        return decode(cache, passes)

    answer = in_process(model, FIRST_PROMPT).token_ids
    monkeypatch.setattr(KVCache, "decode", noted)
    text = [*FIRST_PROMPT, *answer]
    for length in (140, 165, 186, len(FIRST_PROMPT) - 1, len(FIRST_PROMPT), len(text) - 1):
        widths.clear()
        in_process(model, [*text[:length], 33])
        assert all(each >= WIDE for each in widths[: -SETTINGS["max_tokens"]])


def test_of_sliding_windows_nothing_is_kept(folder: Path) -> None:
    """Their cells are in another order once they are loaded, and sums have other digits."""
    model = tiny_model("gemma3")
    for prompt in (FIRST_PROMPT, SECOND):
        with loaded(model) as engine:
            result, (unused, unkept) = written(engine, prompt)
        assert unused is None and unkept is not None and "sliding window" in unkept
        assert result.stats.prompt_cached == 0
        assert result.token_ids == fresh(model, prompt).token_ids
    assert not folder.exists()


def test_the_digits_are_those_of_a_prompt_read_at_once() -> None:
    """Though the last token of the first prompt was evaluated in a narrow pass, and its answer."""
    model = tiny_model("llama")
    first = in_process(model, LONG)
    for new in ([*range(40, 140)], [*first.token_ids, *range(40, 140)]):
        longer = [*LONG, *new]
        found = in_process(model, longer, logprobs=True)
        expected = fresh(model, longer, logprobs=True)
        assert found.stats.prompt_cached == len(LONG) - 1
        assert found.token_ids == expected.token_ids
        assert found.logprobs == expected.logprobs
        shutil.rmtree(kept_folder())
        in_process(model, LONG)


@pytest.mark.parametrize("pair", FIRST, ids=" on ".join)
def test_a_head_drafts_as_it_would(pair: tuple[str, str], tmp_path: Path) -> None:
    """It has the rows that it needs, or the target computes them again."""
    files = write_pair(*pair, tmp_path)
    options = {**EXACT, "context": 512}
    with loaded(files.target, files.draft, **options) as engine:
        _, (_, unkept) = written(engine, FIRST_PROMPT, depth=3)
        assert (unkept is not None) == (engine.model.sliding_window > 0)
    with loaded(files.target, files.draft, **options) as engine:
        expected = engine.generate(SECOND, **SETTINGS, depth=3)
        engine.slots.own.target.truncate(0)
    with loaded(files.target, files.draft, **options) as engine:
        found, failures = written(engine, SECOND, depth=3)
        can_be_cut = engine.slots.own.target.shares_cells
    assert failures[0] is None
    assert found.token_ids == expected.token_ids
    assert (found.stats.prompt_cached > 0) == can_be_cut
    assert found.stats.drafted == expected.stats.drafted > 0
    assert found.stats.accepted == expected.stats.accepted


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_other_settings(kv_type: str, reproducible: bool) -> None:
    options = {"kv_type": kv_type, "reproducible": reproducible}
    model = tiny_model("llama")
    in_process(model, FIRST_PROMPT, **options)
    found = in_process(model, SECOND, **options)
    assert found.token_ids == fresh(model, SECOND, **options).token_ids
    assert found.stats.prompt_evaluated == LEFT


def test_of_another_model_or_setting_nothing_is_used(tmp_path: Path) -> None:
    model = tiny_model("llama")
    in_process(model, FIRST_PROMPT)
    same_size = tmp_path / "other.gguf"
    data = bytearray(model.read_bytes())
    data[-40:-20] = bytes(20)
    same_size.write_bytes(data)
    assert in_process(same_size, SECOND).stats.prompt_cached == 0
    # In the place of the model itself, too.
    moved = tmp_path / "moved.gguf"
    shutil.copy(model, moved)
    in_process(moved, FIRST_PROMPT)
    moved.write_bytes(data)
    assert in_process(moved, SECOND).stats.prompt_cached == 0
    assert in_process(model, SECOND, kv_type="f32").stats.prompt_cached == 0
    assert in_process(model, SECOND, context=256).stats.prompt_cached > 0  # it fits


@pytest.mark.parametrize("ubatch", [64, 100])
def test_where_fresh_prompts_have_narrow_passes_nothing_is_kept(ubatch: int, folder: Path) -> None:
    with loaded(tiny_model("llama"), ubatch=ubatch) as engine:
        _, (_, unkept) = written(engine, FIRST_PROMPT)
    assert unkept == f"ubatch is {ubatch}; it must be at least 128 for that"
    assert not folder.exists()
    in_process(tiny_model("llama"), FIRST_PROMPT, ubatch=128)
    with loaded(tiny_model("llama"), ubatch=ubatch) as engine:
        assert written(engine, SECOND)[0].stats.prompt_cached == 0


def test_of_another_place_nothing_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digits are others."""
    model = tiny_model("llama")
    in_process(model, FIRST_PROMPT)
    assert in_process(model, SECOND, cpu_moe=1).stats.prompt_cached == 0
    with monkeypatch.context() as patch:
        patch.setattr(kept_prompts, "gpus", lambda _: ["4 layers", "CUDA0 (a GPU)"])
        assert in_process(model, SECOND).stats.prompt_cached == 0
    with monkeypatch.context() as patch:
        patch.setattr(kept_prompts, "machine_signature", lambda: [["another"]])
        assert in_process(model, SECOND).stats.prompt_cached == 0
    assert in_process(model, SECOND).stats.prompt_cached > 0


def test_a_damaged_file_is_read_again(folder: Path) -> None:
    model = tiny_model("llama")
    expected = fresh(model, SECOND).token_ids
    in_process(model, FIRST_PROMPT)
    (path,) = folder.glob("*.state")
    whole = path.read_bytes()
    complaints = set()
    with loaded(model) as engine:
        for seed in range(40):
            damage(path, whole, random.Random(seed))
            engine.slots.own.target.truncate(0)
            kept = KeptPrompts(engine.slots.own)
            complaints.add(kept.load(SECOND, GenerationConfig.of(**SETTINGS)))
            assert engine.generate(SECOND, **SETTINGS).token_ids == expected
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert "the saved state is damaged; it was deleted" in complaints


def test_a_drafter_of_another_process_changes_nothing(folder: Path) -> None:
    """Two processes may write the files of one key at the same time."""
    model = tiny_model("llama")
    other = [*LONG[:140], *range(200, 230)]
    in_process(model, other, str(model))
    (part,) = folder.glob("*-*.state")
    kept = part.read_bytes()
    shutil.rmtree(folder)
    in_process(model, FIRST_PROMPT, str(model))
    (part,) = folder.glob("*-*.state")
    part.write_bytes(kept)
    assert in_process(model, SECOND, str(model)).token_ids == fresh(model, SECOND).token_ids


def test_what_is_nearly_there_is_not_written_again(folder: Path) -> None:
    model = tiny_model("llama")
    in_process(model, FIRST_PROMPT)
    (path,) = folder.glob("*.state")
    os.utime(path, (1, 1))
    in_process(model, [*LONG, *LONG[1:]])  # much longer: in the place of its beginning
    (path,) = folder.glob("*.state")
    size = path.stat().st_size
    assert path.stat().st_mtime > 1
    os.utime(path, (1, 1))
    in_process(model, [*LONG, *LONG[1:], 40, 41])
    (path,) = folder.glob("*.state")
    assert path.stat().st_mtime > 1 and path.stat().st_size == size
    in_process(model, [*LONG[:150], *range(100, 250)])  # half of it is another text
    assert len([*folder.glob("*.state")]) == 2


def test_short_prompts_are_not_kept(folder: Path) -> None:
    in_process(tiny_model("llama"), LONG[: kept_prompts.LEAST_KEPT])
    assert not folder.exists()


def test_the_prompts_used_last_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    monkeypatch.setattr(kept_prompts, "_MOST_PROMPTS", 2)
    texts = [[1, *(start + number % 50 for number in range(140))] for start in (20, 80, 150)]
    for moment, text in enumerate(texts[:2], 1):
        before = {*folder.glob("*.state")}
        in_process(model, text)
        (new,) = {*folder.glob("*.state")} - before
        os.utime(new, (moment, moment))
    assert in_process(model, texts[0]).stats.prompt_cached > 0
    in_process(model, texts[2])
    assert len([*folder.glob("*.state")]) == 2
    order = (texts[0], texts[2], texts[1])
    assert [in_process(model, text).stats.prompt_cached > 0 for text in order] == [
        True,
        True,
        False,
    ]


def test_only_the_owner_can_read_it(folder: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("modes are POSIX's")
    in_process(tiny_model("llama"), FIRST_PROMPT)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_prompt_is_kept_with_what_its_drafters_read_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("llama")
    stopped = SavingTime(None)
    monkeypatch.setattr(
        stopped, "over", lambda: "it was stopped" if any(folder.glob("*.state")) else None
    )
    with loaded(model, str(model)) as engine:
        kept = KeptPrompts(engine.slots.own)
        engine.generate(FIRST_PROMPT, **SETTINGS, depth=3)
        assert kept.save(FIRST_PROMPT, SavingTime(None)) is None
        size = sum(path.stat().st_size for path in folder.iterdir())
        shutil.rmtree(folder)
        why = kept.save(FIRST_PROMPT, stopped)
        assert why and why.endswith("was not saved: it was stopped")
        assert not [*folder.iterdir()]
        monkeypatch.setattr(kept_store, "_MOST_BYTES", size - 100)
        why = kept.save(FIRST_PROMPT, SavingTime(None))
        assert why and why.startswith("the states of a text and its drafters take more than ")
        assert not [*folder.iterdir()]
        monkeypatch.setattr(kept_store, "_MOST_BYTES", size)
        assert kept.save(FIRST_PROMPT, SavingTime(None)) is None
    assert len([*folder.iterdir()]) == 2


def test_saving_ends_when_it_takes_longer_than_reading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, time = tiny_model("llama"), [0.0]
    in_process(model, [*LONG[:150], *range(100, 120)])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(kept_store, "monotonic", lambda: time[0])
    with loaded(model) as engine:
        kept, settings = KeptPrompts(engine.slots.own), GenerationConfig.of(**SETTINGS)
        assert kept.load([*LONG, *LONG[1:]], settings) is None
        engine.generate([*LONG, *LONG[1:]], **SETTINGS)
        slow, stopped = SavingTime(3.0), SavingTime(None)
        time[0] = 4.0
        stopped.stop()
        whys = [kept.save([*LONG, *LONG[1:]], each) for each in (slow, stopped)]
    assert whys[0] is not None and whys[1] is not None
    assert whys[0].endswith("was not saved: that takes longer than to read the text again")
    assert whys[1].endswith("was not saved: it was stopped")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
