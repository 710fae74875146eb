"""What a trial of digits finds is stored, and found again for the same kernels only."""

from pathlib import Path

import pytest
from fakes.lora import write_lora
from fakes.pycode import load
from fakes.tiny import tiny_model

from localspec.errors import ModelLoadError, WorkerError
from localspec.gguf.facts import facts_of
from localspec.gguf.reader import Header
from localspec.llama.model import Model
from localspec.llama.placement import Placement
from localspec.loading import equal_digits
from localspec.loading.config import RuntimeConfig
from localspec.loading.equal_digits import measured, remembered
from localspec.memory.available import HOST, FreeMemory
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.paths import cache_folder

FOUND = EqualDigits(((1, 2, 4),), 640, company=True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return cache_folder("digits")


@pytest.fixture(scope="module")
def header(target_path: Path) -> Header:
    return facts_of(target_path).header


def test_without_memory_it_is_not_tried(
    target_model: Model, header: Header, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise ModelLoadError("no room")

    monkeypatch.setattr(equal_digits.estimate, "require_room", refuse)
    assert measured(target_model, header, RuntimeConfig()) is None
    assert not cache.exists()


@pytest.mark.parametrize("lost", [True, False])
def test_on_a_gpu_its_memory_counts(
    lost: bool,
    target_model: Model,
    header: Header,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def free_memory(placement: Placement) -> FreeMemory:
        asked.append(placement)
        if lost:
            raise WorkerError("it is gone")
        return FreeMemory({HOST: 1000})

    monkeypatch.setattr(target_model, "is_offloaded", True)
    monkeypatch.setattr(equal_digits, "free_memory", free_memory)
    assert measured(target_model, header, RuntimeConfig()) is None
    assert not cache.exists()
    assert asked == [target_model.placement]


def test_it_is_tried_once(
    target_model: Model, header: Header, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    monkeypatch.setattr(
        equal_digits, "find_equal_digits", lambda *_, **options: tries.append(options) or FOUND
    )
    assert remembered(target_model.path, RuntimeConfig()) is None
    for runtime in (RuntimeConfig(), RuntimeConfig(), RuntimeConfig(context=64)):
        assert measured(target_model, header, runtime) == FOUND
        assert remembered(target_model.path, runtime) == FOUND
    assert len(tries) == 1
    for other in (RuntimeConfig(threads=2), RuntimeConfig(reproducible=True)):
        measured(target_model, header, other)
    assert len(tries) == 3 and tries[2]["budget"] > tries[1]["budget"]
    assert len([*cache.iterdir()]) == 3


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_an_adapter_of_floats_gives_one_row_other_digits_whatever_a_trial_finds(
    kind: str,
    target_model: Model,
    header: Header,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(equal_digits, "find_equal_digits", lambda *_, **_options: FOUND)
    paths = [
        write_lora(tmp_path / f"{each}.gguf", tiny_model("llama"), kind=each, rank=32)
        for each in ("Q8_0", kind)
    ]
    runtime = RuntimeConfig.of(lora=paths)
    found = measured(target_model, header, runtime)
    assert found == remembered(target_model.path, runtime)
    assert found and found.groups == (((1, 2, 4),) if kind == "Q8_0" else ((1,), (2, 4)))
    assert measured(target_model, header, RuntimeConfig()) == FOUND


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"equal_widths": [[1]], "behind": 3}'])
def test_a_damaged_file_is_tried_again(
    content: str, target_model: Model, header: Header, cache: Path
) -> None:
    first = measured(target_model, header, RuntimeConfig())
    [file] = cache.iterdir()
    file.write_text(content)
    assert remembered(target_model.path, RuntimeConfig()) is None
    assert measured(target_model, header, RuntimeConfig()) and first


def test_a_cache_that_cannot_be_written_is_no_error(
    target_model: Model, header: Header, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    assert measured(target_model, header, RuntimeConfig())


def test_an_engine_that_drafts_knows_it() -> None:
    with load(draft="none", threads=1, context=64) as plain:
        assert plain.equal_digits is None
        plain.switch(draft="suffix")
        found = plain.equal_digits
    with load(draft="none", threads=1) as again:
        assert found and again.equal_digits == found
