"""Tiny projectors with random weights, which turn images into rows for the tiny models."""

import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from fakes import tiny
from fakes.families import DEAF
from fakes.tiny import WIDTH, tiny_folder, tiny_model

_SIDE, _PATCH, _LAYERS, _HEADS, _OWN, _HIDDEN = 56, 14, 2, 2, 32, 48
# By the family of the model: the kind of its projector.
KINDS = {
    "llama": "mlp",
    "gemma3": "gemma3",
    "qwen2vl": "qwen3vl_merger",
    "qwen35": "qwen3vl_merger",
}


@cache
def seeing_model(family: str) -> Path:
    """A tiny model for which there is a projector; written once."""
    own = {"qwen2vl": _qwen2vl, "gemma3": _gemma3}
    if family not in own:
        return tiny_model(family)
    return tiny.write_tiny(
        tiny_folder() / f"{family}-F32.gguf",
        family,
        layers=own[family],
        quantised=False,
        template=tiny.TURNS,
        context=512,
    )


def _qwen2vl(writer: tiny._Writer) -> None:
    """Attention alone, with rotations by rows and columns."""
    DEAF["qwen2"].layers(writer)
    writer.gguf.add_rope_dimension_sections([2, 1, 1, 0])


def _gemma3(writer: tiny._Writer) -> None:
    """The second layer looks back over the whole text: images are far behind the last word."""
    tiny.FAMILIES["gemma3"](writer)
    writer.gguf.add_uint32("gemma3.attention.sliding_window_pattern", 2)


@cache
def tiny_projector(family: str) -> Path:
    """The projector of a tiny model of this family; written once."""
    return write_projector(tiny_folder() / f"mmproj-{family}.gguf", KINDS[family])


class _Lacking(gguf.GGUFWriter):
    """Leaves one tensor out."""

    lost: str

    def add_tensor(self, name: str, *args: Any, **options: Any) -> None:
        if name != self.lost:
            super().add_tensor(name, *args, **options)


def write_projector(
    path: Path, kind: str, *, width: int = WIDTH, side: int = _SIDE, lost: str = ""
) -> Path:
    """A projector for a model of embeddings of this width; images of side by side pixels.

    lost: a tensor that it lacks.
    """
    writer = _Lacking(path, "clip")
    writer.lost = lost
    _add_header(writer, kind, width, side)
    _add_tensors(writer, kind, width, (side // _PATCH) ** 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_header(writer: gguf.GGUFWriter, kind: str, width: int, side: int) -> None:
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    for key, value in {
        "image_size": side,
        "patch_size": _PATCH,
        "embedding_length": _OWN,
        "feed_forward_length": _HIDDEN,
        "projection_dim": width,
        "block_count": _LAYERS,
        "attention.head_count": _HEADS,
        "projector.scale_factor": 2,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])


def _add_tensors(writer: gguf.GGUFWriter, kind: str, width: int, patches: int) -> None:
    random, is_qwen = np.random.default_rng(7), kind.startswith("qwen")

    def add(name: str, *shape: int, scale: float = 0.3) -> None:
        values = random.standard_normal(shape) * scale
        writer.add_tensor(name, values.astype(np.float32))

    def linear(name: str, rows: int, columns: int = _OWN) -> None:
        add(f"{name}.weight", rows, columns)
        add(f"{name}.bias", rows)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(_OWN, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(_OWN, np.float32))

    for name in ["v.patch_embd.weight", *["v.patch_embd.weight.1"] * is_qwen]:
        add(name, _OWN, 3, _PATCH, _PATCH)
    add("v.patch_embd.bias", _OWN)
    add("v.position_embd.weight", patches, _OWN)
    for layer in range(_LAYERS):
        block = f"v.blk.{layer}"
        norm(f"{block}.ln1")
        norm(f"{block}.ln2")
        for name in ["attn_qkv"] if is_qwen else ["attn_q", "attn_k", "attn_v"]:
            linear(f"{block}.{name}", 3 * _OWN if is_qwen else _OWN)
        linear(f"{block}.attn_out", _OWN)
        linear(f"{block}.ffn_up", _HIDDEN)
        linear(f"{block}.ffn_down", _OWN, _HIDDEN)
    if kind != "mlp":
        norm("v.post_ln")
    if kind == "gemma3":
        add("mm.input_projection.weight", _OWN, width, scale=3.0)
        writer.add_tensor("mm.soft_emb_norm.weight", np.ones(_OWN, np.float32))
        return
    merged = 4 * _OWN if is_qwen else _OWN
    linear("mm.0", merged, merged)
    linear("mm.2", width, merged)


def write_ears(path: Path) -> Path:
    """A projector that hears: each 640 samples of a sound become a row, by one matrix."""
    values = np.random.default_rng(9).standard_normal((WIDTH, 640)) * 0.1
    matrices = {"mm.a.input_projection.weight": values}
    return _write_layerless(path, "audio", "gemma4ua", {"num_mel_bins": 640}, matrices)


def write_mosaic(path: Path) -> Path:
    """A projector that makes a row of each 28 x 28 pixels; they attend to each other."""
    random, pixels = np.random.default_rng(11), 3 * (2 * _PATCH) ** 2
    matrices = {
        "v.patch_embd.weight": random.standard_normal((_OWN, pixels)) * 0.1,
        "v.patch_embd.bias": random.standard_normal(_OWN),
        "v.position_embd.weight": random.standard_normal((2, 64, _OWN)),
        "mm.input_projection.weight": random.standard_normal((WIDTH, _OWN)) * 0.3,
    }
    for number, size in enumerate((pixels, _OWN, _OWN), 1):
        matrices[f"v.patch_norm.{number}.weight"] = np.ones(size)
        matrices[f"v.patch_norm.{number}.bias"] = np.zeros(size)
    keys = {"image_size": _SIDE, "patch_size": _PATCH, "projector.scale_factor": 2}
    return _write_layerless(path, "vision", "gemma4uv", keys, matrices)


def _write_layerless(
    path: Path, sense: str, kind: str, keys: dict[str, int], matrices: dict[str, np.ndarray]
) -> Path:
    """A projector that makes each row of a part of its own, without attention."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool(f"clip.has_{sense}_encoder", True)
    writer.add_string("clip.projector_type", kind)
    for key, value in {
        "embedding_length": _OWN,
        "feed_forward_length": _HIDDEN,
        "projection_dim": WIDTH,
        "block_count": 0,
        "attention.head_count": _HEADS,
        **keys,
    }.items():
        writer.add_uint32(f"clip.{sense}.{key}", value)
    writer.add_float32(f"clip.{sense}.attention.layer_norm_epsilon", 1e-6)
    if sense == "vision":
        writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
        writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for name, values in matrices.items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sound(seconds: float = 0.5, rate: int = 16000, pitch: float = 440.0) -> bytes:
    """A WAV of one tone."""
    times = np.arange(int(seconds * rate)) / rate
    samples = (np.sin(2 * np.pi * pitch * times) * 20000).astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def picture(columns: int = 64, rows: int = 48, seed: int = 0) -> bytes:
    """A PNG of smooth random colours."""
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 6, columns), np.linspace(0, 6, rows))
    waves = [np.sin(a * across + b * down + c) for a, b, c in random.uniform(0, 3, (3, 3))]
    pixels = (np.stack(waves, axis=-1) * 127 + 128).astype(np.uint8)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, parts))


def photo(greys: np.ndarray, *, turned: int | None = None, order: str = ">") -> bytes:
    """A JPEG of blocks of 8 x 8 pixels. greys: (rows, columns), of the blocks.

    turned: its orientation, as EXIF has it. order: of the bytes of that.
    """
    rows, columns = greys.shape
    bits, last = "", 0
    for grey in greys.ravel().astype(int).tolist():
        change, last = grey - last, grey
        size = abs(change).bit_length()
        # Codes of four bits for the size of a change; one bit ends the block.
        bits += f"{size:04b}"
        bits += f"{change if change > 0 else change + (1 << size) - 1:0{size}b}" if size else ""
        bits += "0"
    bits += "1" * (-len(bits) % 8)
    pixels = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    segments = [
        (0xDB, b"\0" + bytes([8] * 64)),  # all levels are multiplied by 8
        (0xC0, struct.pack(">BHHB3B", 8, 8 * rows, 8 * columns, 1, 1, 0x11, 0)),
        (0xC4, b"\0" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12))),
        (0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"),
        (0xDA, bytes([1, 1, 0, 0, 63, 0])),
    ]
    if turned is not None:
        name = {">": b"MM", "<": b"II"}[order]
        width = struct.pack(f"{order}HHIHxx", 0x0100, 3, 1, 8)
        entry = struct.pack(f"{order}HHIHxx", 0x0112, 3, 1, turned)
        tiff = name + struct.pack(f"{order}HIH", 42, 8, 2) + width + entry
        segments.insert(0, (0xE1, b"Exif\0\0" + tiff + bytes(4)))
    written = [struct.pack(">BBH", 0xFF, at, len(body) + 2) + body for at, body in segments]
    return b"\xff\xd8" + b"".join(written) + pixels + b"\xff\xd9"


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    kind, data = part
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
