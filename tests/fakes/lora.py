"""LoRA adapters with random matrices for a GGUF, and the model that each makes of it, merged."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

RANK, ALPHA = 4, 8.0
# The matrices of a tiny model of most families.
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv")
MATRICES = (*ATTENTION, "ffn_gate", "ffn_up", "ffn_down", "output")


def write_lora(
    path: Path,
    target: Path,
    *,
    matrices: Collection[str] = MATRICES,
    alpha: float | None = ALPHA,
    kind: str = "F32",
    rank: int = RANK,
    seed: int = 1,
    size: float = 0.6,
    change: Callable[[gguf.GGUFWriter], Any] = lambda _: None,
    more: Sequence[tuple[str, Any]] = (),
) -> Path:
    """An adapter for a GGUF, as convert_lora_to_gguf writes them.

    matrices: the last parts of the names of what it changes. alpha: None is none. kind: the type of
    its tensors. size: of its numbers. change: adds further keys. more: further tensors.
    """
    reader = gguf.GGUFReader(target)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    if alpha is not None:
        writer.add_float32("adapter.lora.alpha", alpha)
    change(writer)
    random = np.random.default_rng(seed)
    dtype = gguf.GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        name = tensor.name.removesuffix(".weight")
        if name.rpartition(".")[2] not in matrices or name == tensor.name:
            continue
        columns, rows, *experts = map(int, tensor.shape)
        if name == "token_embd":
            shapes = (rows, rank), (columns, rank)
        else:
            shapes = (rank, columns), (rows, rank)
        for end, shape in zip("ab", shapes, strict=True):
            values = random.standard_normal((*experts, *shape)).astype(np.float32) * size
            values = gguf.quants.quantize(values, dtype)
            writer.add_tensor(f"{tensor.name}.lora_{end}", values, raw_dtype=dtype)
    for name, values in more:
        writer.add_tensor(name, values)
    _write(writer)
    return path


def write_merged(path: Path, target: Path, *adapters: tuple[Path, float]) -> Path:
    """A copy of a GGUF of 32-bit floats, to which adapters at some scales are added."""
    reader = gguf.GGUFReader(target)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kinds = field.types
            sub = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kinds[0], sub)
    values = {
        each.name: gguf.quants.dequantize(each.data, each.tensor_type).astype(np.float32)
        if each.tensor_type != gguf.GGMLQuantizationType.F32
        else each.data.astype(np.float32)
        for each in reader.tensors
    }
    for adapter, scale in adapters:
        for name, change in _changes(adapter).items():
            values[name] = (values[name] + scale * change).astype(np.float32)
    for name, each in values.items():
        writer.add_tensor(name, each)
    _write(writer)
    return path


def _changes(adapter: Path) -> dict[str, Any]:
    """What an adapter adds to each matrix at scale 1, in 64-bit floats."""
    reader = gguf.GGUFReader(adapter)
    tensors = {
        each.name: gguf.quants.dequantize(each.data, each.tensor_type).astype(np.float64)
        for each in reader.tensors
    }
    alpha = reader.fields.get("adapter.lora.alpha")
    found = {}
    for name in tensors:
        if not name.endswith(".lora_a"):
            continue
        matrix = name.removesuffix(".lora_a")
        a, b = tensors[name], tensors[f"{matrix}.lora_b"]
        change = a @ b.T if matrix == "token_embd.weight" else b @ a
        rank = b.shape[-1]
        found[matrix] = change * (alpha.contents() / rank if alpha and alpha.contents() else 1)
    return found


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
