"""Damaged checkpoints of published heads: converted, or refused in one line; nothing is left."""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from fakes.damaged_files import damage, odd_json, remove
from fakes.eagle3 import SHAPES, WIDTH, write_head, write_target
from fakes.published import eagle3_config, eagle3_tensors, published
from fakes.tiny import N_VOCAB

from localspec.conversion.convert import convert
from localspec.errors import LocalspecError

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_INNER = 32
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def _eagle3(folder: Path) -> Path:
    tensors = eagle3_tensors(write_head(folder / "head.gguf", SHAPES["own"]))
    config = eagle3_config(WIDTH, target_hidden_size=WIDTH, rope_scaling=_LLAMA3, head_dim=8)
    return published(folder / "eagle3", tensors, config)


def _medusa(folder: Path) -> Path:
    shapes = {"0.0.linear.weight": (WIDTH, WIDTH), "0.0.linear.bias": (WIDTH,)}
    shapes |= {"0.1.weight": (N_VOCAB, WIDTH), "1.0.linear.weight": (WIDTH, WIDTH)}
    shapes |= {"1.0.linear.bias": (WIDTH,), "1.1.weight": (N_VOCAB, WIDTH)}
    return published(folder / "medusa", _ones(shapes), {"medusa_num_heads": 2})


def _mlp(folder: Path) -> Path:
    shapes = {"proj.0.weight": (_INNER, WIDTH), "emb.0.weight": (N_VOCAB, _INNER)}
    shapes |= {"head.0.weight": (N_VOCAB, _INNER), "ln.0.weight": (_INNER,)}
    shapes |= {"ln.0.bias": (_INNER,)}
    config = {"n_predict": 1, "scale_input": True, "inner_dim": _INNER}
    return published(folder / "mlp", _ones(shapes), config)


def _ones(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


def _with_other_header(path: Path, written: bytes, random: Random) -> None:
    """Another value in the list of tensors, whose length is right."""
    length = struct.unpack_from("<Q", written)[0]
    header = odd_json(random, written[8 : 8 + length]) or b""
    remove(path)
    path.write_bytes(struct.pack("<Q", len(header)) + header + written[8 + length :])


@contextmanager
def checkpoints() -> Iterator[Callable[[int], str]]:
    """The cases: heads of each kind in turn, of whose two files one is another."""
    with TemporaryDirectory(prefix="localspec-fuzz-") as name:
        folder = Path(name)
        target = write_target(folder / "target.gguf")
        heads = []
        for make in (_eagle3, _medusa, _mlp):
            head = make(folder)
            heads.append((head, {each: (head / each).read_bytes() for each in (_CONFIG, _WEIGHTS)}))

        def case(number: int) -> str:
            random = Random(number)
            head, files = heads[number % len(heads)]
            for each, written in files.items():
                remove(head / each)
                (head / each).write_bytes(written)
            which = random.choice([_CONFIG, _CONFIG, _WEIGHTS])
            if which == _WEIGHTS and random.random() < 0.6:
                _with_other_header(head / which, files[which], random)
            elif which == _CONFIG and random.random() < 0.6:
                odd = odd_json(random, files[which])
                (head / which).write_bytes(odd or json.dumps(None).encode())
            else:
                damage(head / which, files[which], random)
            out = folder / "out.gguf"
            try:
                convert(head, target, out)
            except LocalspecError as error:
                message = str(error)
                assert "\n" not in message and len(message) < 800, message
                assert not out.exists() and not [*folder.glob("*.part")]
                return "refused"
            out.unlink()
            return "converted"

        yield case
