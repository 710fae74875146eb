"""Whether a quantised KV cache makes a drafter's drafts worse is measured and reported."""

import json
from pathlib import Path

import numpy as np
import pytest
from fakes.lora import write_lora
from fakes.tiny import write_tiny

from localspec.gguf.check import check_generative
from localspec.gguf.lora import Lora
from localspec.gguf.reader import Header
from localspec.gguf.writer import TensorData, TensorType, write_gguf
from localspec.llama.model import Model
from localspec.loading.config import RuntimeConfig
from localspec.loading.kv_precision import agreement, choose_kv_type
from localspec.scaling.source_model import ARCHITECTURE, SourceModel
from localspec.utils.paths import cache_folder

RUNTIME = RuntimeConfig(threads=1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return cache_folder("kv")


@pytest.fixture(scope="module")
def header(drafter_path: Path) -> Header:
    return check_generative(drafter_path)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory, drafter_path: Path) -> Path:
    """The drafter with the same results, but with some keys 64 times as large as others."""
    source = SourceModel(drafter_path)
    tensors = []
    for name in source.tensors:
        values = source.rows(name)
        if ".attn_k." in name or ".attn_q." in name:
            # Two rows of each quantised block, which are rotated together.
            blocks = values.reshape(-1, 32, values.shape[-1]).copy()
            blocks[:, :2] *= 64 if ".attn_k." in name else 1 / 64
            values = blocks.reshape(values.shape)
        type_ = TensorType.F16 if values.ndim > 1 else TensorType.F32
        tensors.append(TensorData.of(name, values, type_))
    path = tmp_path_factory.mktemp("models") / "uneven.gguf"
    write_gguf(path, ARCHITECTURE, source.metadata, tensors)
    return path


def test_a_cache_agrees_with_itself(drafter_model: Model, header: Header) -> None:
    assert agreement(drafter_model, RUNTIME, header, "f16") == 1.0


def test_fewer_bits_agree_less(drafter_model: Model, header: Header) -> None:
    eight, four = (agreement(drafter_model, RUNTIME, header, each) for each in ("q8_0", "q4_0"))
    assert 0.95 < eight < 1
    assert 0.9 < four < eight


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "mamba", "qwen35"])
def test_whatever_a_model_keeps_of_a_text(family: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / f"{family}.gguf", family)
    with Model(path) as model:
        header = check_generative(path)
        assert agreement(model, RUNTIME, header, "f16") == 1.0
        agreed = agreement(model, RUNTIME, header, "bf16")
    # A running state has 32 bits with every type.
    assert agreed == 1 if family == "mamba" else 0.95 < agreed < 1


def test_a_type_that_agrees_is_chosen(drafter_model: Model, header: Header) -> None:
    for kv_type in ("q8_0", "q4_0"):
        assert choose_kv_type(drafter_model, RUNTIME, header, kv_type) == (kv_type, None)


def test_it_is_measured_for_these_adapters(
    drafter_path: Path, header: Header, cache: Path, tmp_path: Path
) -> None:
    adapter = write_lora(tmp_path / "a.gguf", drafter_path)
    for count, loras in enumerate([(), [Lora(adapter)], [Lora(adapter, 0.5)]], start=1):
        for _ in range(2):
            with Model(drafter_path, loras=loras) as model:
                choose_kv_type(model, RUNTIME, header, "q8_0")
            assert len([*cache.iterdir()]) == count


def test_bits_too_few_for_these_keys_are_rejected(uneven: Path) -> None:
    header = check_generative(uneven)
    with Model(uneven) as model:
        agreed = agreement(model, RUNTIME, header, "q4_0")
        assert 0.3 < agreed < 0.8
        kv_type, line = choose_kv_type(model, RUNTIME, header, "q4_0")
        assert kv_type == "f16"
        assert line == (
            "the drafter's cache is kept as f16: "
            f"as q4_0 it would agree with itself only {agreed:.0%}"
        )
        assert choose_kv_type(model, RUNTIME, header, "q8_0") == ("q8_0", None)


def test_a_type_that_the_model_cannot_have_is_rejected(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "llama")
    with Model(path) as model:
        # The heads of this model are narrower than a quantised block.
        kv_type, line = choose_kv_type(model, RUNTIME, check_generative(path), "q4_0")
    assert kv_type == "f16"
    assert line == "the drafter's cache is kept as f16: this one cannot be q4_0"


def test_a_type_that_is_not_quantised_is_not_measured(
    drafter_path: Path, header: Header, cache: Path
) -> None:
    with Model(drafter_path) as model:
        pass
    # The model is closed, so nothing can be measured.
    for kv_type in ("f16", "bf16", "f32"):
        assert choose_kv_type(model, RUNTIME, header, kv_type) == (kv_type, None)
    assert not cache.exists()


def test_it_is_measured_once(uneven: Path, cache: Path) -> None:
    header = check_generative(uneven)
    with Model(uneven) as model:
        first = {each: choose_kv_type(model, RUNTIME, header, each) for each in ("q8_0", "q4_0")}
        assert len(list(cache.iterdir())) == 2
    # The model is closed, so the result can only be a stored one.
    for kv_type, chosen in first.items():
        assert choose_kv_type(model, RUNTIME, header, kv_type) == chosen
    # Another setting of flash attention, or a changed file, is measured again.
    with Model(uneven) as model:
        choose_kv_type(model, RuntimeConfig(threads=1, flash_attention=True), header, "q8_0")
        assert len(list(cache.iterdir())) == 3
        uneven.touch()
        choose_kv_type(model, RUNTIME, header, "q8_0")
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"agreement": "x"}'])
def test_a_damaged_result_is_measured_again(
    content: str, drafter_model: Model, header: Header, cache: Path
) -> None:
    choose_kv_type(drafter_model, RUNTIME, header, "q8_0")
    [file] = cache.iterdir()
    before = file.read_text()
    file.write_text(content)
    assert choose_kv_type(drafter_model, RUNTIME, header, "q8_0") == ("q8_0", None)
    assert np.isclose(*(json.loads(each)["agreement"] for each in (before, file.read_text())))


def test_a_cache_that_cannot_be_written_is_no_error(
    drafter_model: Model, header: Header, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    assert choose_kv_type(drafter_model, RUNTIME, header, "q8_0") == ("q8_0", None)
