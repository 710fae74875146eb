"""Embedding models are tried out, fit in memory, and read texts of a length that they can."""

import sys
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import pytest
from fakes.tiny_embedders import write_bert, write_causal

from localspec.errors import InvalidValueError, ModelLoadError, OutOfMemoryError
from localspec.gguf.check import check_embedder
from localspec.llama import devices, unfit_gpus
from localspec.llama.devices import GPU, INTEGRATED_GPU, Device
from localspec.llama.placement import ON_PROCESSOR, Placement
from localspec.loading import embedder_loader, gpu_check
from localspec.loading.config import RuntimeConfig
from localspec.loading.embedder_loader import embedding_context, load_embedder
from localspec.memory.available import HOST, FreeMemory
from localspec.utils.child_process import ChildExit


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any file."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("made_for", "asked", "found"),
    [(64, None, 64), (64, 2, 2), (64, 65, 64), (4096, None, 2048), (4096, 4096, 4096)],
)
def test_the_length_of_texts(made_for: int, asked: int | None, found: int, tmp_path: Path) -> None:
    header = check_embedder(write_bert(tmp_path / "a.gguf", context=made_for))
    assert embedding_context(header, asked) == found


@pytest.mark.parametrize("asked", [-1, 0, 1])
def test_a_length_that_it_cannot_read(asked: int, tmp_path: Path) -> None:
    header = check_embedder(write_bert(tmp_path / "a.gguf"))
    with pytest.raises(InvalidValueError, match=rf"embed_ctx is {asked}; it must be 2 or more"):
        embedding_context(header, asked)


@pytest.mark.parametrize(("asked", "found"), [(1, 1), (2, 1), (7, 3)])
def test_half_of_the_threads_are_the_chat_models(asked: int, found: int, tmp_path: Path) -> None:
    with load_embedder(write_bert(tmp_path / "a.gguf"), 64, RuntimeConfig(threads=asked)) as loaded:
        assert llama_cpp.llama_n_threads_batch(loaded._handle) == found


def test_a_file_is_tried_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, runtime = write_causal(tmp_path / "a.gguf"), RuntimeConfig()
    load_embedder(path, 64, runtime).close()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with load_embedder(path, 64, runtime) as loaded:
        assert loaded.model.placement == ON_PROCESSOR
    path.touch()
    with pytest.raises(ModelLoadError, match="no process could be started for it"):
        load_embedder(path, 64, runtime)


def test_a_file_that_lacks_a_tensor(tmp_path: Path) -> None:
    path = write_bert(tmp_path / "a.gguf", lost="token_embd.weight")
    with pytest.raises(ModelLoadError, match=r"a\.gguf cannot be used: .*another with embed$"):
        load_embedder(path, 64, RuntimeConfig())


def test_where_memory_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long text, the library keeps a row as wide as the vocabulary for each token."""
    free = FreeMemory({HOST: 20_000_000})
    monkeypatch.setattr(embedder_loader, "free_memory", lambda _placement: free)
    path = write_bert(tmp_path / "a.gguf", context=65_536)
    load_embedder(path, 512, RuntimeConfig()).close()
    said = r"a\.gguf would need .* and 20.0 MB are free; close .* or lower embed_ctx"
    with pytest.raises(OutOfMemoryError, match=said):
        load_embedder(path, 65_536, RuntimeConfig())


@pytest.mark.parametrize(
    ("named", "ended", "found"),
    [
        (None, 0, ("Own0",)),
        (None, -6, ("Shared0",)),
        (["Shared0"], 0, ("Shared0",)),
        (["none"], -6, ()),
    ],
)
def test_it_is_on_a_gpu_that_works(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: list[str] | None,
    ended: int,
    found: tuple[str, ...],
) -> None:
    """One in the processor, which counts only without others, is as good where it is named."""
    gpus = [Device("Own0", "a GPU", GPU, 1 << 33, 1 << 33)]
    gpus += [Device("Shared0", "in the processor", INTEGRATED_GPU, 1 << 33, 1 << 33)]

    def here() -> Iterator[tuple[Device, int]]:
        yield from ((gpu, 0) for gpu in gpus)  # the library takes a pointer of 0 for none

    def trial(_path: Path, device: str, **_options: object) -> ChildExit:
        return (
            ChildExit(ended, "begun", "")
            if ended and device == "Own0"
            else ChildExit(0, "right", "")
        )

    monkeypatch.setattr(devices, "_found", here)
    monkeypatch.setattr(gpu_check, "run_gpu_trial", trial)
    monkeypatch.setattr(gpu_check, "_tried", set())
    monkeypatch.setattr(unfit_gpus, "_reasons", {})
    runtime = RuntimeConfig.of(device=named)
    with load_embedder(write_bert(tmp_path / "a.gguf"), 64, runtime) as loaded:
        assert loaded.model.placement == Placement(devices=found)
