"""Published heads are converted: their drafts are those of the published weights."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.eagle3 import WIDTH, write_target
from fakes.numpy_llama import Tensors
from fakes.published import published, write_safetensors
from fakes.tiny import N_VOCAB
from fuzz.campaign import Campaign
from fuzz.checkpoints import checkpoints

from localspec.conversion import convert as conversion
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    LocalspecError,
    ModelLoadError,
)
from localspec.gguf.facts import facts_of
from localspec.gguf.matrix_heads import MEDUSA, MLP, MatrixHead, matrix_head_of
from localspec.gguf.reader import read_header
from localspec.loading.matrix_heads import LoadedMatrixHead

TOKENS, INNER = N_VOCAB, 64
RNG = np.random.default_rng(0)


def convert(source: Path, out: Path, type_name: str = "F16", **options: Any) -> Path:
    """The heads for a tiny target that lies beside their folder."""
    target = source.parent / "tiny.gguf"
    if not target.exists():
        write_target(target)
    return conversion.convert(source, target, out, type_name, **options).path


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def medusa(prefix: str = "", heads: int = 3, blocks: int = 1) -> dict[str, np.ndarray]:
    """As FasterDecoding/Medusa saves the state of its heads."""
    found = {}
    for k in range(heads):
        for i in range(blocks):
            found[f"{prefix}{k}.{i}.linear.weight"] = random(WIDTH, WIDTH)
            found[f"{prefix}{k}.{i}.linear.bias"] = random(WIDTH)
        found[f"{prefix}{k}.{blocks}.weight"] = random(TOKENS, WIDTH)
    return found


def vllm_medusa(heads: int = 2) -> dict[str, np.ndarray]:
    found = {}
    for k in range(heads):
        found[f"blocks.{k}.layers.0.weight"] = random(WIDTH, WIDTH)
        found[f"lm_heads.{k}.weight"] = random(TOKENS, WIDTH)
    return found


def mlp(heads: int = 3, *, tied: bool = False) -> dict[str, np.ndarray]:
    """As IBM's accelerators are saved."""
    found = {}
    for k in range(heads):
        if not tied or k < 2:
            found[f"speculator.proj.{k}.weight"] = random(INNER, INNER if k else WIDTH)
        if not tied or not k:
            found[f"speculator.emb.{k}.weight"] = random(TOKENS, INNER)
            found[f"speculator.head.{k}.weight"] = random(TOKENS, INNER)
            found[f"speculator.ln.{k}.weight"] = random(INNER)
            found[f"speculator.ln.{k}.bias"] = random(INNER)
    return found


MLP_CONFIG = {
    "n_predict": 3,
    "scale_input": True,
    "inner_dim": INNER,
    "model_type": "mlp_speculator",
}


def head_in(path: Path) -> MatrixHead:
    return matrix_head_of(path, read_header(path))


@pytest.mark.parametrize("prefix", ["", "medusa_head."])
@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_medusa_heads(tmp_path: Path, prefix: str, stored: str) -> None:
    tensors = medusa(prefix, blocks=2)
    source = published(tmp_path / "heads", tensors, kind=stored)
    out = convert(source, tmp_path / "out.gguf", "F32")
    assert head_in(out) == MatrixHead(MEDUSA, 3, WIDTH, WIDTH, TOKENS, blocks=2)
    found = Tensors(out)
    tolerance = {"F32": 0, "F16": 2e-3, "BF16": 4e-2}[stored]
    for name, new in (
        ("1.0.linear.weight", "head.1.block.0.weight"),
        ("2.1.linear.bias", "head.2.block.1.bias"),
        ("0.2.weight", "head.0.output.weight"),
    ):
        assert np.abs(found[new] - tensors[prefix + name]).max() <= tolerance


class Recorded:
    """Keeps the logits that heads draw from; token 7 is drawn each time."""

    def __init__(self) -> None:
        self.logits: list[np.ndarray] = []

    def draw(self, logits: np.ndarray) -> bool:
        self.logits.append(logits.copy())
        self.tokens = [7] * len(self.logits)
        return True


def test_the_logits_are_those_of_the_published_weights(tmp_path: Path) -> None:
    tensors = medusa(blocks=2)
    out = convert(published(tmp_path / "heads", tensors), tmp_path / "out.gguf", "F32")
    loaded = LoadedMatrixHead(out, head_in(out), facts_of(tmp_path / "tiny.gguf"), threads=1)
    row, drawn = random(WIDTH), Recorded()
    loaded.drafter(TOKENS).draw(drawn, row, 5)
    for k, logits in enumerate(drawn.logits):
        x = row.astype(float)
        for i in range(2):
            y = tensors[f"{k}.{i}.linear.weight"] @ x + tensors[f"{k}.{i}.linear.bias"]
            x = x + y / (1 + np.exp(-y))
        assert np.abs(logits - tensors[f"{k}.2.weight"] @ x).max() < 1e-4
    assert len(drawn.logits) == 3


def test_heads_as_vllm_has_them(tmp_path: Path) -> None:
    out = convert(published(tmp_path / "heads", vllm_medusa()), tmp_path / "out.gguf", "Q8_0")
    assert head_in(out) == MatrixHead(MEDUSA, 2, WIDTH, WIDTH, TOKENS, blocks=1)
    # Without biases there; zeros here.
    assert not Tensors(out)["head.1.block.0.bias"].any()


@pytest.mark.parametrize("tied", [False, True])
def test_an_mlp_speculator(tmp_path: Path, tied: bool) -> None:
    tensors, config = mlp(tied=tied), {**MLP_CONFIG, "tie_weights": tied}
    out = convert(published(tmp_path / "mlp", tensors, config), tmp_path / "out.gguf")
    assert head_in(out) == MatrixHead(MLP, 3, WIDTH, INNER, TOKENS, scale_input=True)
    found = Tensors(out)
    assert np.abs(found["head.1.proj.weight"] - tensors["speculator.proj.1.weight"]).max() < 5e-3
    assert ("head.2.token_embd.weight" in found) == (not tied)


def test_the_output_can_be_the_targets(tmp_path: Path) -> None:
    source = published(tmp_path / "heads", medusa())
    out = convert(source, tmp_path / "out.gguf", own_output=False)
    assert not head_in(out).has_output
    assert out.stat().st_size < convert(source, tmp_path / "own.gguf").stat().st_size


def test_several_files_are_one(tmp_path: Path) -> None:
    folder, tensors = tmp_path / "heads", medusa()
    folder.mkdir()
    names = list(tensors)
    for number, part in enumerate((names[:4], names[4:])):
        write_safetensors(
            folder / f"part-{number}.safetensors", {each: tensors[each] for each in part}
        )
    assert head_in(convert(folder, tmp_path / "out.gguf")).heads == 3


# What is refused.


def refusal(source: Path, **options: Any) -> str:
    out = source.parent / "out.gguf"
    with pytest.raises(LocalspecError) as found:
        convert(source, out, **options)
    assert "\n" not in str(found.value)
    assert not out.exists()
    return str(found.value)


def test_other_tensors(tmp_path: Path) -> None:
    said = refusal(published(tmp_path / "model", {"model.embed_tokens.weight": random(4, 32)}))
    assert "no EAGLE-3 head, no Medusa heads and no MLP speculator" in said
    assert "model.embed_tokens.weight" in said


def test_a_folder_without_safetensors(tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "medusa_lm_head.pt").write_bytes(b"x")
    said = refusal(tmp_path / "heads")
    assert "medusa_lm_head.pt is pickled" in said
    assert "save a .pt or .bin file as such first" in said


def test_heads_of_another_target(tmp_path: Path) -> None:
    tensors = {name: np.zeros((64, 64), np.float32) for name in ("0.0.linear.weight", "0.1.weight")}
    source = published(tmp_path / "heads", tensors)
    with pytest.raises(DrafterMismatchError, match="reads rows of 64 numbers"):
        convert(source, tmp_path / "out.gguf")


def test_heads_for_a_part_of_the_vocabulary(tmp_path: Path) -> None:
    tensors = {**vllm_medusa(), "token_map": random(TOKENS)}
    assert "token_map" in refusal(published(tmp_path / "heads", tensors))


def test_a_speculator_without_its_config(tmp_path: Path) -> None:
    assert "n_predict and scale_input" in refusal(published(tmp_path / "mlp", mlp()))


@pytest.mark.parametrize("name", ["1.0.linear.weight", "1.1.weight", "1.0.linear.bias"])
@pytest.mark.parametrize("shape", [(WIDTH, 64), (1, 2, 3), ()])
def test_tensors_of_another_shape(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    tensors = {**medusa(), name: np.asarray(random(*shape), np.float32)}
    said = refusal(published(tmp_path / "heads", tensors))
    assert f"heads has '{name}' of shape " in said and ".part" not in said


@pytest.mark.parametrize(
    ("blocks", "missing"),
    [
        (1, "1.0.linear.weight"),
        (2, "0.0.linear.weight"),
        (2, "0.1.linear.weight"),
        (2, "2.1.linear.weight"),
        (1, "1.0.linear.bias"),
        (1, "1.1.weight"),
        (1, "2.1.weight"),
    ],
)
def test_medusa_heads_that_lack_a_tensor(tmp_path: Path, blocks: int, missing: str) -> None:
    tensors = medusa("medusa_head.", blocks=blocks)
    del tensors[f"medusa_head.{missing}"]
    source = published(tmp_path / "heads", tensors)
    assert refusal(source) == f"{source} has no tensor {missing}; download every part of it"


def test_medusa_heads_with_a_gap(tmp_path: Path) -> None:
    tensors = {
        name if not name.startswith("2.") else f"7{name[1:]}": each
        for name, each in medusa().items()
    }
    assert "has no tensor 2.0.linear.weight" in refusal(published(tmp_path / "heads", tensors))
    said = refusal(published(tmp_path / "few", medusa(heads=2), {"medusa_num_heads": 4}))
    assert "has no tensor 2.0.linear.weight" in said


@pytest.mark.parametrize(
    ("tied", "stages", "missing"),
    [
        (False, 3, "proj.2.weight"),
        (False, 3, "emb.1.weight"),
        (False, 5, "emb.3.weight"),
        (True, 3, "proj.1.weight"),
        (True, 3, "ln.0.bias"),
    ],
)
def test_a_speculator_that_lacks_a_tensor(
    tmp_path: Path, tied: bool, stages: int, missing: str
) -> None:
    tensors = mlp(tied=tied)
    tensors.pop(f"speculator.{missing}", None)
    config = {**MLP_CONFIG, "n_predict": stages, "tie_weights": tied}
    said = refusal(published(tmp_path / "mlp", tensors, config))
    assert f"has no tensor {missing}; download every part of it" in said


def test_a_type_that_cannot_be_read(tmp_path: Path) -> None:
    source = published(tmp_path / "heads", medusa())
    file = source / "model.safetensors"
    data = file.read_bytes()
    before, rest = data.split(b'"1.0.linear.weight"', 1)
    file.write_bytes(before + b'"1.0.linear.weight"' + rest.replace(b'"F32"', b' "F8"', 1))
    assert "stores '1.0.linear.weight' as F8; pass the checkpoint in floats" in refusal(source)


def test_a_tensor_that_the_index_names_and_no_file_has(tmp_path: Path) -> None:
    source = published(tmp_path / "heads", medusa())
    named = dict.fromkeys([*medusa(), "3.0.linear.weight"], "model.safetensors")
    index = source / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": named}))
    said = refusal(source)
    assert "has no tensor 3.0.linear.weight in model.safetensors, where its index names it" in said


def test_the_messages_of_another_target_name_the_checkpoint(tmp_path: Path) -> None:
    tensors = {name: np.zeros((64, 64), np.float32) for name in ("0.0.linear.weight", "0.1.weight")}
    source = published(tmp_path / "heads", tensors)
    assert refusal(source).startswith("heads reads rows of 64 numbers")


def test_an_unknown_type(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="Q4_0"):
        convert(published(tmp_path / "heads", medusa()), tmp_path / "out.gguf", "Q4_0")


@pytest.mark.parametrize("seed", range(5))
def test_damaged_files(tmp_path: Path, seed: int) -> None:
    source = published(tmp_path / "heads", medusa())
    file, rng = source / "model.safetensors", np.random.default_rng(seed)
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    refused = 0
    for _ in range(20):
        damaged = bytearray(data)
        damaged[int(rng.integers(0, 8 + length))] = int(rng.integers(0, 256))
        file.write_bytes(
            damaged[: int(rng.integers(0, len(data)))] if rng.random() < 0.3 else damaged
        )
        (tmp_path / "out.gguf").unlink(missing_ok=True)
        try:
            convert(source, tmp_path / "out.gguf")
        except LocalspecError as error:
            assert "\n" not in str(error)
            refused += isinstance(error, ModelLoadError)
    assert refused


def test_a_damaged_checkpoint_is_refused_or_converted() -> None:
    with checkpoints() as case:
        campaign = Campaign().run(case, range(90))
    assert not campaign.faults, campaign.report()
    assert campaign.ends["refused"] > 30 and campaign.ends["converted"] > 15, campaign.ends


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    tensors = medusa()
    tensors["1.1.weight"][3, 5] = np.nan
    said = refusal(published(tmp_path / "heads", tensors))
    assert "the values of tensor '1.1.weight' are no numbers" in said


def test_an_option_of_eagle3_heads(tmp_path: Path) -> None:
    source = published(tmp_path / "heads", medusa())
    said = refusal(source, layers=[1, 2, 3])
    assert said.startswith(f"{source} is no EAGLE-3 head") and said.endswith("leave it out")


def test_heads_without_output_matrices_are_named(tmp_path: Path) -> None:
    tensors = {name: each for name, each in medusa().items() if "linear" in name}
    source = published(tmp_path / "heads", tensors)
    assert refusal(source).startswith(f"{source} has no output matrix")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "a web page: download the file itself"),
    ],
)
def test_what_was_downloaded_in_place_of_weights(tmp_path: Path, content: bytes, said: str) -> None:
    source = published(tmp_path / "heads", medusa())
    (source / "model.safetensors").write_bytes(content)
    assert said in refusal(source)


def test_a_folder_in_place_of_the_output(tmp_path: Path) -> None:
    source = published(tmp_path / "heads", medusa())
    with pytest.raises(InvalidValueError, match=r"heads is a folder; name a file with -o"):
        convert(source, source)


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    folder = published(tmp_path / "heads", medusa())
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(LocalspecError, match=r"heads\.gguf cannot be written: "):
        convert(folder, tmp_path / "file" / "heads.gguf")


def test_nothing_is_left_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = published(tmp_path / "heads", medusa()), tmp_path / "heads.gguf"

    def full(part: Path, *_arguments: object) -> None:
        part.write_bytes(b"begun")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(conversion, "write_gguf", full)
    with pytest.raises(LocalspecError, match="No space left"):
        convert(folder, out)
    assert not out.exists()
    assert not list(tmp_path.glob(".*.part"))


def test_what_a_killed_conversion_left_is_deleted(tmp_path: Path) -> None:
    folder, out = published(tmp_path / "heads", medusa()), tmp_path / "heads.gguf"
    command = "import os; print(os.getpid())"
    dead = subprocess.check_output([sys.executable, "-c", command], text=True).strip()
    killed = tmp_path / f".heads.gguf.{dead}.part"
    killed.write_bytes(b"begun")
    other = tmp_path / f".heads.gguf.{os.getppid()}.part"
    other.write_bytes(b"still written")
    assert head_in(convert(folder, out)).heads == 3
    assert not killed.exists()
    assert other.exists()
