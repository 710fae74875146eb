"""The GGUF reader on real files, on files built to be refused, and on thousands of damaged ones."""

import os
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import localspec.bundled
from localspec.errors import LocalspecError, ModelLoadError, ModelNotFoundError
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.reader import Header, read_header
from localspec.gguf.types import SCALARS

BUNDLED = sorted(Path(localspec.bundled.__path__[0]).glob("*.gguf"))
SMALL = min(BUNDLED, key=lambda path: path.stat().st_size)

# Loads each file named, tokenizes, decodes once and reads the logits: all that can abort.
Change = Callable[[gguf.GGUFWriter], object]


def build(
    path: Path, *changes: Change, arch: str = "llama", tokenizer: str = "gpt2", weights: bool = True
) -> Path:
    """A tiny file of the right form; `changes` add what a test is about."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_head_count(4)
    if tokenizer:
        writer.add_tokenizer_model(tokenizer)
        writer.add_token_list(["a", "b", "é", "", ""])
    if weights:
        writer.add_tensor("token_embd.weight", np.zeros((5, 32), np.float32))
        writer.add_tensor("blk.0.attn_norm.weight", np.ones(32, np.float32))
    for change in changes:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(call: Callable[[Path], object], path: Path, kind: type[LocalspecError]) -> str:
    with pytest.raises(kind) as caught:
        call(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def raw_header(*entries: bytes, tensors: Sequence[bytes] = ()) -> bytes:
    counts = struct.pack("<IQQ", 3, len(tensors), len(entries))
    return b"GGUF" + counts + b"".join(entries) + b"".join(tensors)


def tensor(name: str, *shape: int, kind: int = 0, offset: int = 0) -> bytes:
    shape_bytes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + shape_bytes + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.name)
def test_agrees_with_the_gguf_package(path: Path) -> None:
    header = check_generative(path)
    reference = gguf.GGUFReader(path)
    fields = {k: f.contents() for k, f in reference.fields.items() if not k.startswith("GGUF.")}
    assert header.version == 3
    assert header.metadata.keys() == fields.keys()
    for key, value in fields.items():
        ours: Any = header.metadata[key]
        assert (list(ours) if isinstance(value, list) else ours) == value, key
    assert [(t.name, t.shape, t.type, t.offset, t.size) for t in header.tensors] == [
        (t.name, tuple(t.shape.tolist()), t.tensor_type, t.data_offset, t.n_bytes)
        for t in reference.tensors
    ]
    assert (header.architecture, header.context_length) == ("llama", 2048)


def test_every_metadata_type_is_read(tmp_path: Path) -> None:
    values = {k: SCALARS[k].unpack(b"\1" * SCALARS[k].size)[0] for k in SCALARS if k != 7}
    entries = [text(f"k{kind}") + struct.pack("<I", kind) for kind in values]
    entries = [
        entry + SCALARS[k].pack(v) for entry, (k, v) in zip(entries, values.items(), strict=True)
    ]
    array = struct.pack("<IIQ", 9, 8, 2) + text("x") + struct.pack("<Q", 1) + b"\xff"
    entries += [text("flag") + b"\7\0\0\0\2", text("list") + array]
    path = tmp_path / "types.gguf"
    path.write_bytes(raw_header(*entries))
    metadata = dict(read_header(path).metadata)
    assert list(metadata.pop("list")) == ["x", "\udcff"]  # type: ignore[call-overload]
    assert metadata.pop("flag") is True
    assert metadata == {f"k{kind}": value for kind, value in values.items()}


def test_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "v2.gguf"
    path.write_bytes(b"GGUF\2" + SMALL.read_bytes()[5:])
    assert check_generative(path).version == 2


def test_a_large_vocabulary_is_read_quickly(tmp_path: Path) -> None:
    path = build(
        tmp_path / "large.gguf",
        lambda w: w.add_array("tokenizer.ggml.merges", [f"m{i} n{i}" for i in range(280_000)]),
        lambda w: w.add_array("tokenizer.ggml.extra", [f"token{i}" for i in range(150_000)]),
    )
    began = time.thread_time()
    header = read_header(path)
    assert time.thread_time() - began < 0.5
    merges: Any = header.metadata["tokenizer.ggml.merges"]
    assert (len(merges), merges[-1]) == (280_000, "m279999 n279999")


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    refusal(read_header, tmp_path / "none.gguf", ModelNotFoundError)
    (tmp_path / "file").write_bytes(b"x")
    refusal(read_header, tmp_path / "file" / "inner.gguf", ModelNotFoundError)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "directory" in refusal(read_header, tmp_path, ModelLoadError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "regular file" in refusal(read_header, tmp_path / "pipe.gguf", ModelLoadError)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*args: object, **options: object) -> object:
        raise PermissionError(13, "Permission denied")

    path = build(tmp_path / "secret.gguf")
    monkeypatch.setattr("builtins.open", forbid)
    assert "Permission denied" in refusal(read_header, path, ModelLoadError)


def test_a_name_with_a_line_break_stays_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"a\?b\.gguf"):
        read_header(tmp_path / "a\nb.gguf")


KEY = text("k") + struct.pack("<I", 4) + b"\0\0\0\0"
BROKEN = {
    "empty": (b"", "is empty"),
    "zip": (b"PK\3\4" + bytes(90), r"begins with b'PK\\x03\\x04'"),
    "short": (b"GG", "not a GGUF file"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
    "page": (b"<!DOCTYPE html>", "web page"),
    "magic-only": (b"GGUF", "truncated"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(16), "big-endian"),
    "version-1": (b"GGUF\1\0\0\0" + bytes(16), "version 1"),
    "version-9": (b"GGUF\x09\0\0\0" + bytes(16), "version 9"),
    "many-tensors": (b"GGUF\3\0\0\0" + b"\xff" * 8 + bytes(8), "tensors"),
    "many-keys": (b"GGUF\3\0\0\0" + bytes(8) + b"\xff" * 8, "metadata entries"),
    "key-length": (raw_header(struct.pack("<Q", 1 << 60) + bytes(20)), "metadata key 0"),
    "key-empty": (raw_header(text("") + bytes(20)), "has 0 bytes"),
    "key-not-utf8": (raw_header(struct.pack("<Q", 1) + b"\xff" + bytes(20)), "not UTF-8"),
    "key-control": (raw_header(text("a\nb") + bytes(20)), "unprintable"),
    "key-twice": (raw_header(KEY, KEY), "occurs twice"),
    "key-type": (raw_header(text("k") + struct.pack("<IQ", 13, 0)), "unknown type 13"),
    "string-length": (raw_header(text("k") + struct.pack("<IQ", 8, 1 << 63)), "'k' needs"),
    "array-count": (raw_header(text("k") + struct.pack("<IIQ", 9, 4, 1 << 60)), "'k' needs"),
    "strings-count": (raw_header(text("k") + struct.pack("<IIQ", 9, 8, 1 << 60)), "'k' needs"),
    "strings-cut": (raw_header(text("k") + struct.pack("<IIQQ", 9, 8, 1, 99)), "'k' needs"),
    "nested": (raw_header(text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(99)), "type 9"),
    "alignment-type": (
        raw_header(text("general.alignment") + struct.pack("<IQ", 10, 32)),
        "has type 10",
    ),
    "alignment": (raw_header(text("general.alignment") + struct.pack("<II", 4, 24)), "24 is not"),
    "alignment-0": (raw_header(text("general.alignment") + struct.pack("<II", 4, 0)), "0 is not"),
}
BROKEN_TENSORS = {
    "name-long": ([tensor("n" * 64, 1)], "64 bytes"),
    "twice": ([tensor("t", 8), tensor("t", 8, offset=32)], "occurs twice"),
    "five-dimensions": ([tensor("t", 1, 1, 1, 1, 1)], "5 dimensions"),
    "zero": ([tensor("t", 4, 0)], "impossible shape"),
    "overflow": ([tensor("t", 1 << 32, 1 << 31)], "impossible shape"),
    "type": ([tensor("t", 32, kind=99)], "'t' has the unknown type 99"),
    "withdrawn-type": ([tensor("t", 32, kind=4)], "'t' has the unknown type 4"),
    "block": ([tensor("t", 33, kind=2)], "not a multiple of 32"),
    "offset": ([tensor("t", 8, offset=7)], "'t' is at byte"),
    "overlap": ([tensor("t", 32), tensor("u", 32, offset=32)], "'u' is at byte"),
    "outside": ([tensor("t", 1 << 20)], "its tensors need 4194368 bytes and the file has 192"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused(case: str, tmp_path: Path) -> None:
    content, problem = BROKEN[case]
    path = tmp_path / f"{case}.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=problem):
        read_header(path)
    refusal(read_header, path, ModelLoadError)


@pytest.mark.parametrize("case", BROKEN_TENSORS)
def test_a_broken_tensor_table_is_refused(case: str, tmp_path: Path) -> None:
    table, problem = BROKEN_TENSORS[case]
    path = tmp_path / f"{case}.gguf"
    path.write_bytes(raw_header(tensors=table).ljust(192, b"\0"))
    assert problem in refusal(read_header, path, ModelLoadError)


@pytest.mark.parametrize("size", [10, 30, 1000, 100_000, 1_000_000, -1])
def test_a_cut_download_is_refused(size: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(SMALL.read_bytes()[:size])
    message = refusal(read_header, path, ModelLoadError)
    assert "truncated" in message or "claims" in message
    assert "download it again" in message


@pytest.mark.parametrize(
    ("file", "named"), [("cut-Q4_K_M.gguf", "Q4_K_M"), ("gguf/cut.gguf", "gguf/cut.gguf")]
)
def test_a_cut_file_of_the_hub_is_fetched_anew_by_a_command(
    file: str, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "models--zoo--tiny-GGUF" / "snapshots" / "1" / file
    path.parent.mkdir(parents=True)
    for content in (b"", SMALL.read_bytes()[:1000], SMALL.read_bytes()[:1_000_000]):
        path.write_bytes(content)
        message = refusal(read_header, path, ModelLoadError)
        assert message.endswith(f"; localspec pull zoo/tiny-GGUF:{named} downloads it again")


def test_endless_strings_are_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "endless.gguf"
    path.write_bytes(raw_header(text("k") + struct.pack("<IIQ", 9, 8, (1 << 24) - 9)))
    os.truncate(path, 1 << 27)
    began = time.thread_time()
    assert "header larger" in refusal(read_header, path, ModelLoadError)
    assert time.thread_time() - began < 1


def add_pooling(kind: gguf.PoolingType) -> Change:
    return lambda writer: writer.add_pooling_type(kind)


def add_tensor(name: str, kind: Any, *shape: int) -> Change:
    return lambda writer: writer.add_tensor(name, np.ones(shape, kind))


def add_number(key: str, value: int) -> Change:
    return lambda writer: writer.add_uint32(f"llama.{key}", value)


def replace_tokens(*tokens: str) -> Change:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop("tokenizer.ggml.tokens")
        writer.add_token_list(list(tokens))

    return change


def without_heads(writer: gguf.GGUFWriter) -> None:
    writer.kv_data[0].pop("llama.attention.head_count")


def without_architecture(writer: gguf.GGUFWriter) -> None:
    writer.kv_data[0].pop("general.architecture")


def states(inner: int, heads: int, groups: int, head: int) -> Change:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_ssm_inner_size(inner)
        writer.add_ssm_time_step_rank(heads)
        writer.add_ssm_group_count(groups)
        writer.add_ssm_state_size(head)

    return change


UNFIT: dict[str, tuple[dict[str, Any], list[Change], str]] = {
    "vocabulary": ({"weights": False}, [], "vocabulary only"),
    "bert": ({"arch": "bert"}, [add_pooling(gguf.PoolingType.MEAN)], "embedding model"),
    "t5encoder": ({"arch": "t5encoder"}, [], "embedding model"),
    "pooling": ({"arch": "qwen3"}, [add_pooling(gguf.PoolingType.LAST)], "embedding model"),
    "two-way": ({}, [lambda w: w.add_causal_attention(False)], "embedding model"),
    "t5": ({"arch": "t5"}, [], "encoder-decoder models are not supported"),
    "clip": ({"arch": "clip"}, [], "mmproj"),
    "mmproj": ({}, [lambda w: w.add_type("mmproj")], "mmproj"),
    "adapter": ({}, [lambda w: w.add_type("adapter")], "adapter"),
    "diffusion": ({"arch": "dream"}, [], "diffusion"),
    "gptoss": ({"arch": "gptoss"}, [], "Ollama's own format (architecture gptoss)"),
    "encoder-inside": (
        {},
        [add_tensor("v.blk.0.attn_k.weight", np.float32, 5, 32)],
        "Ollama's own format (an image or audio encoder inside)",
    ),
    "rope-sections": (
        {},
        [lambda w: w.add_array("llama.rope.dimension_sections", [2, 1, 1])],
        "Ollama's own format (3 rope sections, not 4)",
    ),
    "draft-head": ({"arch": "eagle3"}, [], "draft head"),
    "no-architecture": ({}, [without_architecture], "architecture"),
    "no-tokenizer": ({"tokenizer": ""}, [], "no tokenizer"),
    "tokenizer-none": ({"tokenizer": "none"}, [], "no tokenizer"),
    "no-tokens": ({}, [lambda w: w.kv_data[0].pop("tokenizer.ggml.tokens")], "without tokens"),
    "same-token": ({}, [replace_tokens("a", "a")], "same token twice"),
    "same-until-nul": ({}, [replace_tokens("a", "a\0b")], "same token twice"),
    "f64-norm": ({}, [add_tensor("output_norm.weight", np.float64, 32)], "F64"),
    "f16-norm": ({}, [add_tensor("output_norm.weight", np.float16, 32)], "needs F32"),
    "f64-weight": ({}, [add_tensor("output.weight", np.float64, 5, 32)], "F64"),
    "i32-weight": ({}, [add_tensor("output.weight", np.int32, 5, 32)], "I32"),
    "integer-bias": ({}, [add_tensor("blk.0.attn_q.bias", np.int32, 32)], "I32"),
    "f16-convolution": ({}, [add_tensor("blk.0.ssm_conv1d.weight", np.float16, 8, 4)], "F16"),
    "wordpiece": ({"tokenizer": "bert"}, [], "embedding model"),
    "no-bytes": ({"tokenizer": "llama"}, [], "no token for the byte 0x00"),
    "no-heads": ({}, [without_heads], "no attention heads"),
    "key-length": (
        {},
        [add_number("embedding_length", 32), add_number("attention.key_length", 3)],
        "3 for keys and 8 for values",
    ),
    "rotation": (
        {},
        [add_number("embedding_length", 32), add_number("rope.dimension_count", 16)],
        "16 of the 8",
    ),
    "odd-rotation": (
        {},
        [add_number("embedding_length", 32), add_number("rope.dimension_count", 7)],
        "7 of the 8",
    ),
    "no-rotation": (
        {},
        [add_number("embedding_length", 32), add_number("rope.dimension_count", 0)],
        "0 of the 8",
    ),
    "half-rotation": (
        {"arch": "qwen3"},
        [lambda w: w.add_embedding_length(32), lambda w: w.add_rope_dimension_count(4)],
        "4 of the 8",
    ),
    "half-rotation-elsewhere": (
        {"arch": "gpt-oss"},
        [lambda w: w.add_embedding_length(32), lambda w: w.add_rope_dimension_count(4)],
        "4 of the 8",
    ),
    "unlike-lengths": (
        {"arch": "qwen3"},
        [lambda w: w.add_key_length(8), lambda w: w.add_value_length(16)],
        "8 for keys and 16 for values",
    ),
    **{
        f"states-{arch}-{number}": ({"arch": arch}, [states(*sizes)], "which cannot be")
        for arch, wrong in {
            "qwen35": [(256, 8, 4, 8), (64, 8, 3, 8), (64, 8, 0, 8)],
            "mamba2": [(64, 3, 1, 8), (64, 8, 3, 8), (64, 0, 1, 8)],
        }.items()
        for number, sizes in enumerate(wrong)
    },
    "no-interval": (
        {"arch": "qwen35"},
        [lambda w: w.add_full_attention_interval(0)],
        "full_attention_interval = 0",
    ),
    "no-step": (
        {"arch": "ernie4_5-moe"},
        [lambda w: w.add_interleave_moe_layer_step(0)],
        "interleave_moe_layer_step = 0",
    ),
    "no-sections": (
        {"arch": "qwen2vl"},
        [lambda w: w.add_rope_dimension_sections([0, 0, 0, 0])],
        "rotates no dimension",
    ),
    "shift": ({"arch": "rwkv7"}, [lambda w: w.add_token_shift_count(3)], "shifts 3 tokens"),
    "state-heads": (
        {"arch": "rwkv7"},
        [lambda w: w.add_embedding_length(32), lambda w: w.add_wkv_head_size(0)],
        "states of 32 in heads of 0",
    ),
    "short-convolution": (
        {"arch": "lfm2"},
        [lambda w: w.add_shortconv_l_cache(1)],
        "convolves 1 tokens",
    ),
    "layers": ({}, [add_number("nextn_predict_layers", 2)], "nextn_predict_layers = 2"),
    "wrapping": ({}, [add_number("attention.head_count_kv", 1 << 28)], "head_count_kv"),
    "heads": (
        {},
        [add_number("attention.head_count_kv", 3)],
        "3 key-value heads among 4",
    ),
    "epsilon": ({}, [lambda w: w.add_layer_norm_rms_eps(-1e-5)], "rms_epsilon = -"),
    "no-windowed-layer": (
        {"arch": "gpt-oss"},
        [
            lambda w: w.add_sliding_window(16),
            lambda w: w.add_sliding_window_pattern([False] * 2 + [True]),
        ],
        "16 tokens in none of its layers",
    ),
    "every-layer-without-window": (
        {"arch": "gemma3"},
        [lambda w: w.add_sliding_window(16), lambda w: w.add_sliding_window_pattern(1)],
        "16 tokens in none of its layers",
    ),
    "half-a-layer": (
        {"arch": "qwen35"},
        [
            lambda w: w.add_rope_dimension_count(8),
            add_tensor("blk.0.ssm_conv1d.weight", np.float32, 8, 4),
            add_tensor("blk.0.attn_qkv.weight", np.float32, 8, 32),
        ],
        "no tensor 'blk.0.attn_gate.weight'",
    ),
    "no-queries": (
        {"arch": "phi3"},
        [
            lambda w: w.add_rope_dimension_count(8),
            add_tensor("blk.0.attn_output.weight", np.float32, 8, 8),
            add_tensor("blk.0.attn_q.weight", np.float32, 8, 8),
        ],
        "no tensor 'blk.0.attn_qkv.weight'",
    ),
    "experts": ({}, [add_number("expert_count", 4)], "0 of 4 experts"),
    "no-experts": ({}, [add_number("expert_used_count", 2)], "2 of 0 experts"),
    "rope": ({}, [lambda w: w.add_string("llama.rope.scaling.type", "odd")], "rope scaling 'odd'"),
    "later-part": ({}, [lambda w: w.add_uint16("split.no", 1)], "first part"),
    "misnamed-part": ({}, [lambda w: w.add_uint16("split.count", 2)], "-00001-of-00002.gguf"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_file_that_cannot_generate_is_refused(case: str, tmp_path: Path) -> None:
    options, changes, problem = UNFIT[case]
    path = build(tmp_path / f"{case}.gguf", *changes, **options)
    assert isinstance(read_header(path), Header)
    assert problem in refusal(check_generative, path, ModelLoadError)


def test_what_can_generate_passes(tmp_path: Path) -> None:
    moe = [add_number("expert_count", 8), lambda w: w.add_array("llama.expert_used_count", [2])]
    for number, changes in enumerate(([], [add_pooling(gguf.PoolingType.NONE)], moe)):
        assert check_generative(build(tmp_path / f"{number}.gguf", *changes)).tensors


def test_a_split_model_is_checked_part_by_part(tmp_path: Path) -> None:
    def part(number: int) -> Change:
        def change(writer: gguf.GGUFWriter) -> None:
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", 2)

        return change

    first = build(tmp_path / "m-00001-of-00002.gguf", part(0), weights=False)
    second = tmp_path / "m-00002-of-00002.gguf"
    assert second.name in refusal(check_generative, first, ModelLoadError)
    build(second, part(1))
    assert check_generative(first).tensors == ()
    # Only the first part names the architecture.
    unnamed = second.read_bytes().replace(b"general.architecture", b"general.is_not_there")
    second.write_bytes(unnamed)
    for check in (check_generative, check_drafter):
        assert "pass the part named -00001-of-" in refusal(check, second, ModelLoadError)
    build(second, part(0))
    with pytest.raises(ModelLoadError, match="not part 2"):
        check_generative(first)
    build(second, part(1), add_tensor("output_norm.weight", np.float64, 32))
    assert "F64" in refusal(check_generative, first, ModelLoadError)


def mutations(seed: int) -> Iterator[bytes]:
    """Endless damaged copies of the small model's header, most of the damage in its structure."""
    draw = random.Random(seed)
    header = SMALL.read_bytes()[: read_header(SMALL).tensors[0].offset]
    before = header.index(b"tokenizer.ggml.tokens") + 40
    after = header.index(b"tokenizer.ggml.bos_token_id") - 20
    spans = [(0, before), (after, len(header)), (0, len(header))]
    sizes = [0, 1, 2, 5, 28, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 60, 1 << 63, (1 << 64) - 1]
    while True:
        damaged = bytearray(header)
        for _ in range(draw.choice((1, 1, 2, 4))):
            at = draw.randrange(*draw.choice(spans))
            size = draw.choice(sizes)
            damaged[at : at + 8] = draw.choice(
                (
                    bytes([header[at] ^ 1 << draw.randrange(8)]) + header[at + 1 : at + 8],
                    bytes([draw.randrange(256)]) + header[at + 1 : at + 8],
                    struct.pack("<I", size & 0xFFFFFFFF) + header[at + 4 : at + 8],
                    struct.pack("<Q", size),
                )
            )
        yield bytes(damaged[: len(header)])


def outcome(path: Path) -> Header | None:
    try:
        return check_generative(path)
    except LocalspecError as error:
        assert "\n" not in str(error)
        assert path.name in str(error)
        return None


@pytest.mark.slow
def test_damaged_headers_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    draw = random.Random(7)
    full = SMALL.stat().st_size
    slowest, read = 0.0, 0
    for number, header in zip(range(2000), mutations(11), strict=False):
        cut = number % 8 == 0
        path.write_bytes(header[: draw.randrange(len(header))] if cut else header)
        if not cut:
            os.truncate(path, full)
        began = time.thread_time()
        read += outcome(path) is not None
        slowest = max(slowest, time.thread_time() - began)
    assert 0 < read < 2000
    assert slowest < 0.5
