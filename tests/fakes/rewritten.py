"""GGUFs of a Llama written anew with another tokenizer."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np


def rewritten(source: Path, path: Path, *, padding: int = 0, **changes: Any) -> Path:
    """A model's GGUF with `changes` to its tokenizer and `padding` more tokens."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        short = name.removeprefix("tokenizer.ggml.")
        value = changes[short](value) if short in changes else value
        if padding and short == "tokens":
            value = [*value, *(f"<padding {i}>" for i in range(padding))]
        if padding and short == "token_type":
            value = [*value, *[gguf.TokenType.UNUSED] * padding]
        if padding and name == "llama.vocab_size":
            value += padding
        sub_type = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, value, field.types[0], sub_type)
    for tensor in reader.tensors:
        rows = np.asarray(tensor.data)
        if tensor.name in ("token_embd.weight", "output.weight"):
            rows = np.concatenate([rows, np.repeat(rows[:1], padding, axis=0)])
        writer.add_tensor(tensor.name, rows, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
