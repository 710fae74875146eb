"""Files of heads that only a fork of llama.cpp loads."""

from pathlib import Path

import gguf
import numpy as np

FORKS = ("dflash-draft", "qwen35-dflash-draft", "gemma4-dflash-draft", "gemma4_assistant")


def write_fork_head(path: Path, architecture: str = FORKS[0]) -> Path:
    """A sound file of such an architecture."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_tensor("fc.weight", np.ones((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def split_in_two(path: Path) -> tuple[Path, Path]:
    """The same model in two files beside this one, named as parts are."""
    reader = gguf.GGUFReader(path)
    architecture = str(reader.fields["general.architecture"].contents())
    parts = tuple(path.with_name(f"{path.stem}-{number:05}-of-00002.gguf") for number in (1, 2))
    half = len(reader.tensors) // 2
    for number, part in enumerate(parts):
        writer = gguf.GGUFWriter(part, architecture)
        if number == 0:
            _copy_metadata(reader, writer)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[half:] if number else reader.tensors[:half]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return parts


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type)
