"""Scaled models compute what their source computes, whatever their size and type."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
from fakes.mamba import write_mamba
from fakes.prompts import PROMPTS
from fakes.pycode import load

from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.gguf.check import check_generative
from localspec.gguf.reader import read_header
from localspec.llama import quantize
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.memory.available import FreeMemory
from localspec.scaling import scale as command
from localspec.scaling.experts import write_experts
from localspec.scaling.scale import scale_model, scaled_model
from localspec.scaling.shape import Size, scaled_shape
from localspec.scaling.source_model import SourceModel
from localspec.speculation.draft import Draft

SIZE = Size(width=512, layers=10, ffn=1536)
# The largest difference of a logit from the source in F32, about twice what is measured. (The
# source itself, in Q8_0 or Q4_0, is 0.17 away: there llama.cpp rounds activations to 8 bits.)
BOUNDS = {"F32": 1e-3, "F16": 0.02, "Q8_0": 0.4, "Q4_0": 0.4, "Q4_K_M": 2.0}


@cache
def logits(path: Path, begin: int = 0) -> np.ndarray:
    """A row for each token of a real prompt, or of those from `begin` on."""
    with Model(path) as model:
        text = model.tokenize(" ".join(PROMPTS))
        tokens = [*range(begin, begin + 66)] if begin else text[:66]
        with single_sequence(
            model, ContextParams(n_ctx=128, threads=1, flash_attention=False)
        ) as context:
            context.extend(tokens[:2])
            rows = []
            for start in range(2, len(tokens) - 15, 16):
                chain = tokens[start : start + 16]
                rows.append(context.score(chain[0], Draft(chain[1:])).logits.copy())
                context.commit(range(15))
    return np.concatenate(rows)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scaled")


@pytest.fixture(params=["target_path", "drafter_path"])
def source(request: pytest.FixtureRequest) -> Path:
    path = request.getfixturevalue(request.param)
    assert isinstance(path, Path)
    return path


def in_f32(source: Path, folder: Path) -> Path:
    """The source itself, its weights as 32-bit floats."""
    shape = SourceModel(source).shape
    return scaled_model(source, Size(shape.width, shape.layers, shape.ffn), "F32", folder)


@pytest.mark.parametrize("type_name", BOUNDS)
def test_logits_are_those_of_the_target(target_path: Path, folder: Path, type_name: str) -> None:
    large = scaled_model(target_path, SIZE, type_name, folder)
    assert distance(logits(large), logits(in_f32(target_path, folder))) < BOUNDS[type_name]


@pytest.mark.parametrize("type_name", ["F32", "Q4_0"])
def test_logits_are_those_of_the_drafter(drafter_path: Path, folder: Path, type_name: str) -> None:
    large = scaled_model(drafter_path, SIZE, type_name, folder)
    assert distance(logits(large), logits(in_f32(drafter_path, folder))) < BOUNDS[type_name]


def test_copies_make_up_for_four_bits(target_path: Path, folder: Path) -> None:
    small = logits(in_f32(target_path, folder))
    one = scaled_model(target_path, Size(512, 8, 1024), "Q4_0", folder)
    two = scaled_model(target_path, Size(512, 8, 1536), "Q4_0", folder)
    assert distance(logits(one), small) > 4 * distance(logits(two), small)


def test_the_same_text_in_the_type_of_the_source(
    target_path: Path, drafter_path: Path, folder: Path
) -> None:
    for source, type_name in (target_path, "Q8_0"), (drafter_path, "Q4_0"):
        texts = []
        for path in source, scaled_model(source, SIZE, type_name, folder):
            with load(path, "none", threads=1) as engine:
                result = engine.generate(PROMPTS[0], temperature=0, max_tokens=48)
                texts.append(result.token_ids)
        assert texts[0] == texts[1]
        assert len(texts[0]) == 48


def test_extra_tokens_never_win(source: Path, folder: Path) -> None:
    held = SourceModel(source).shape.vocabulary
    small = logits(in_f32(source, folder))
    # Room for the constant and two copies; their mean square is no power of two, so the cache's
    # 16-bit floats are rounded otherwise.
    size = Size(768, 8, 1536)
    for type_name, bound in ("F32", 0.01), ("Q4_0", BOUNDS["Q4_0"]):
        padded = scaled_model(source, size, type_name, folder, vocabulary=held + 100)
        rows = logits(padded)
        assert rows.shape[1] == held + 100
        assert distance(rows[:, :held], small) < bound
        assert rows[:, held:].max() < -1000
        with Model(padded) as model:
            assert model.token_text(held + 7) == b"<|extra_%d|>" % (held + 7)


@pytest.mark.parametrize("head_dim", [32, 24])
def test_every_part_of_the_architecture(tmp_path: Path, target_path: Path, head_dim: int) -> None:
    """Shared key-value heads, odd sizes, biases, rope factors, an output matrix of its own."""
    small = write_random(tmp_path / "small.gguf", target_path, head_dim)
    assert logits(small, 40).std() > 0.5
    for type_name, bound in ("F32", 1e-3), ("Q8_0", 0.3):
        large = tmp_path / f"{type_name}.gguf"
        scale_model(small, large, Size(768, 3, 1024), type_name)
        assert distance(logits(large, 40), logits(small, 40)) < bound


def write_random(
    path: Path, vocabulary: Path, head_dim: int, *, without: str = "", extra: str = ""
) -> Path:
    """Two layers of random weights, four heads and two key-value heads.

    without, extra: the names of a tensor left out and of one too many.
    """
    heads, kv_heads, ffn = 4, 2, 96
    width = heads * head_dim
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in gguf.GGUFReader(vocabulary).fields.items():
        if key.startswith("tokenizer."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)
    writer.add_context_length(256)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-2)
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int, mean: float = 0) -> None:
        values = mean + rng.standard_normal(shape) / shape[-1] ** 0.5
        if name != without:
            writer.add_tensor(name, values.astype(np.float32))

    add("token_embd.weight", 4096, width)
    add("output.weight", 4096, width)
    add("output_norm.weight", width, mean=1)
    if extra:
        add(extra, width, width)
    add("rope_freqs.weight", head_dim // 2, mean=2)
    for layer in ("blk.0", "blk.1"):
        add(f"{layer}.attn_norm.weight", width, mean=1)
        add(f"{layer}.ffn_norm.weight", width, mean=1)
        outputs = {"attn_q": width, "attn_k": width // 2, "attn_v": width // 2}
        for part, rows in {**outputs, "attn_output": width}.items():
            add(f"{layer}.{part}.weight", rows, width)
            add(f"{layer}.{part}.bias", rows)
        add(f"{layer}.ffn_gate.weight", ffn, width)
        add(f"{layer}.ffn_up.weight", ffn, width)
        add(f"{layer}.ffn_down.weight", width, ffn)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("count", ["60M", "100M", "0.5B", "0.9B", "1.5B", "3B", "8B"])
def test_a_number_of_parameters_names_a_shape(target_path: Path, count: str) -> None:
    source = SourceModel(target_path).shape
    asked = float(count[:-1]) * {"M": 1e6, "B": 1e9}[count[-1]]
    for vocabulary in (None, 16_000):
        shape = scaled_shape(source, count, vocabulary)
        assert shape.parameters == pytest.approx(asked, rel=0.06)
        assert shape.width % 256 == shape.ffn % 256 == 0


@pytest.mark.parametrize("type_name", ["F16", "Q4_0", "Q4_K_M"])
def test_the_file_says_what_it_is(target_path: Path, folder: Path, type_name: str) -> None:
    small = check_generative(target_path)
    path = scaled_model(target_path, SIZE, type_name, folder)
    large = check_generative(path)
    own = {
        "block_count": 10,
        "embedding_length": 512,
        "feed_forward_length": 1536,
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "rope.dimension_count": 64,
        "context_length": 2048,
    }
    for key, value in own.items():
        assert large.metadata[f"llama.{key}"] == value
    for key in small.metadata:
        if key.startswith("tokenizer."):
            assert list_of(large.metadata[key]) == list_of(small.metadata[key])
    assert large.metadata["general.name"] == f"{small.metadata['general.name']} scaled to 34M"
    expected = {"F16": 1, "Q4_0": 2, "Q4_K_M": 15}
    assert large.metadata["general.file_type"] == expected[type_name]
    assert len(large.tensors) == 2 + 9 * 10


def list_of(value: object) -> object:
    return value if isinstance(value, (str, int, float)) else list(value)


def test_no_matrix_can_be_skipped(target_path: Path, folder: Path) -> None:
    """Random numbers in every matrix that reads the hidden state, in the layers added, too."""
    reader = gguf.GGUFReader(scaled_model(target_path, SIZE, "F16", folder))
    matrices = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    for part in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"):
        assert np.count_nonzero(matrices[f"blk.9.{part}.weight"]) > 0.99 * 512 * 256
    for part in ("attn_output", "ffn_down"):
        assert np.count_nonzero(matrices[f"blk.9.{part}.weight"]) == 0
        assert np.count_nonzero(matrices[f"blk.0.{part}.weight"]) > 60_000


def test_a_second_request_finds_the_file(
    target_path: Path, drafter_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    size = Size(256, 8, 768)
    first = scaled_model(target_path, size)
    assert first.parent == tmp_path / "cache" / "scaled"
    written = first.stat().st_mtime_ns
    assert scaled_model(target_path, size) == first
    scale_model(target_path, first, size)
    assert first.stat().st_mtime_ns == written
    assert (
        scaled_model(target_path, Size(256, 9, 768))
        != first
        != scaled_model(target_path, size, "Q8_0")
    )
    for source, type_name in (target_path, "Q8_0"), (drafter_path, "Q4_0"):
        with pytest.raises(InvalidValueError, match="is another model"):
            scale_model(source, first, size, type_name)
    assert first.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ((Size(128, 10, 1024), "Q4_0", None), "width 128 is smaller than the source's 256"),
        ((Size(512, 7, 1024), "Q4_0", None), "layers 7 is smaller"),
        ((Size(512, 10, 512), "Q4_0", None), "ffn 512 is smaller"),
        ((SIZE, "Q4_0", 4000), "vocab 4000 is smaller"),
        ((Size(256, 8, 704), "F16", 5000), "width 256 leaves no place"),
        ((Size(520, 10, 1024), "Q8_0", None), "width 520 is no multiple of 32"),
        ((Size(512, 10, 1056), "Q4_K_M", None), "ffn 1056 is no multiple of 256"),
        ((SIZE, "Q9", None), "type 'Q9' is unknown"),
        (("1.5", "Q4_0", None), "'1.5' is no number of parameters"),
        (("5M", "Q4_0", None), "5M are too few parameters, .* the least for this model is 5.M"),
        (("B", "Q4_0", None), "'B' is no number of parameters"),
        (("200B", "Q4_0", None), "needs .* GiB .* are free; the most here is about .*B, or take"),
        (("9000B", "Q4_0", None), "'9000B' is no number of parameters below 1000B"),
    ],
)
def test_refusals(
    target_path: Path,
    tmp_path: Path,
    request_: tuple[str | Size, str, int | None],
    message: str,
) -> None:
    size, type_name, vocabulary = request_
    with pytest.raises(InvalidValueError, match=message):
        scaled_model(target_path, size, type_name, tmp_path, vocabulary=vocabulary)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(
    target_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "scaled.gguf"
    words = ["scale", str(target_path), str(path), "--params", "60M", "--type", "Q4_0"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="1"):
        command.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written: " in line and line.endswith("name another place")


def test_only_llama_models(target_path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="architecture 'mamba'"):
        scaled_model(write_mamba(tmp_path / "mamba.gguf", target_path), "60M", folder=tmp_path)
    lacking = write_random(
        tmp_path / "lacking.gguf", target_path, 32, without="blk.1.ffn_up.weight"
    )
    with pytest.raises(InvalidValueError, match=r"no tensor blk\.1\.ffn_up\.weight"):
        scaled_model(lacking, "60M", folder=tmp_path)
    more = write_random(tmp_path / "more.gguf", target_path, 32, extra="blk.0.gate.weight")
    with pytest.raises(
        InvalidValueError, match=r"tensor blk\.0\.gate\.weight, which cannot be scaled"
    ):
        scaled_model(more, "60M", folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(ModelNotFoundError):
        scaled_model(tmp_path / "none.gguf", "60M", folder=tmp_path)


@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_K_M"])
def test_room_is_asked_for_first(
    target_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_name: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
        with pytest.raises(InvalidValueError, match="on the disk"):
            scaled_model(target_path, SIZE, type_name, tmp_path)
    monkeypatch.setattr(command, "free_memory", lambda: FreeMemory({"CPU": 2**19, "GPU": 2**19}))
    with pytest.raises(InvalidValueError, match="in memory"):
        scaled_model(target_path, SIZE, type_name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_nothing(
    target_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def interrupt(*_: object, **__: object) -> None:
        seen.extend(path.stat().st_size for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(quantize, "quantize", interrupt)
    with pytest.raises(KeyboardInterrupt):
        scaled_model(target_path, SIZE, "Q4_K_M", tmp_path)
    read = SourceModel.rows

    def interrupted_reading(source: SourceModel, name: str, *which: object) -> object:
        return interrupt() if "blk.5.ffn_up" in name else read(source, name, *which)

    monkeypatch.setattr(SourceModel, "rows", interrupted_reading)
    with pytest.raises(KeyboardInterrupt):
        scaled_model(target_path, SIZE, "Q8_0", tmp_path)
    assert len(seen) == 2 and min(seen) > 2**20
    assert not list(tmp_path.iterdir())


def test_the_library_refuses_in_a_sentence(target_path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="Q9"):
        quantize.quantize(target_path, tmp_path / "a.gguf", "Q9")
    with pytest.raises(command.LocalspecError, match="cannot be written as Q4_K_M"):
        quantize.quantize(tmp_path / "none.gguf", tmp_path / "a.gguf", "Q4_K_M")


def test_the_command(target_path: Path, tmp_path: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "localspec.scaling.scale", str(target_path), *options],
            capture_output=True,
            text=True,
            check=False,
        )

    path = tmp_path / "large.gguf"
    done = run(str(path), "--width", "256", "--layers", "9", "--ffn", "768", "--type", "Q8_0")
    assert done.stdout.startswith(f"{path}  0.01 GB in ")
    assert check_generative(path).metadata["llama.block_count"] == 9
    refused = run(str(path), "--params", "60M", "--vocab", "9")
    assert refused.returncode == 2
    assert "vocab 9 is smaller" in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert "give either --params" in run("--params", "60M", "--width", "512").stderr


@pytest.mark.parametrize(("experts", "used"), [(2, 1), (5, 2)])
def test_a_mixture_of_experts_computes_what_its_source_does(
    target_path: Path, tmp_path: Path, experts: int, used: int
) -> None:
    mixture = tmp_path / "experts.gguf"
    write_experts(target_path, mixture, experts, used)
    header = read_header(mixture)
    assert (header.number("expert_count"), header.number("expert_used_count")) == (experts, used)
    assert distance(logits(mixture), logits(target_path)) < BOUNDS["Q8_0"]


def test_a_token_uses_some_of_the_experts(target_path: Path, tmp_path: Path) -> None:
    for used in (0, 5):
        with pytest.raises(InvalidValueError, match=f"{used} of 4 experts"):
            write_experts(target_path, tmp_path / "experts.gguf", 4, used)
    assert not any(tmp_path.iterdir())
