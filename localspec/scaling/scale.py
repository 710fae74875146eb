"""A small model at the cost of a large one: `python -m localspec.scaling.scale`.

Writes a GGUF of any size that computes the function of a small llama-architecture model: what a
pair accepts stays real, and a pass costs what it costs at that size. In F32, F16, Q8_0 and Q4_0 the
weights are as good as the source's (Q4_0 spends spare width on that); in the other types they are
what the library's quantiser makes of them.
"""

import argparse
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf.reader import read_header
from localspec.llama import quantize
from localspec.loading.fingerprints import fingerprint
from localspec.memory.available import free_memory
from localspec.scaling.layout import ALIGNMENT, MOST_COPIES, lay_out
from localspec.scaling.shape import Shape, Size, grown
from localspec.scaling.source import ARCHITECTURE, Kind, Source, write
from localspec.scaling.tensors import Plan, padded_tokens
from localspec.utils.paths import cache_folder

# The types written here, with llama.cpp's number for a file of each.
_DIRECT = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}
_RECIPE = "localspec.scaled.recipe"
# Goes up when the same request makes another file.
_REVISION = 1
_GIB = 2**30


def scaled(
    source: Path,
    size: str | Size,
    type_name: str = "Q4_0",
    folder: Path | None = None,
    *,
    vocabulary: int | None = None,
) -> Path:
    """The scaled model in a folder (by default the user's cache), written if it is not there.

    size: a number of parameters such as "0.9B", or its own figures. type_name: such as Q4_0 or
    Q4_K_M. vocabulary: pad it to so many tokens. Raises InvalidValueError, ModelNotFoundError or
    ModelLoadError.
    """
    small = Source(source)
    shape, recipe = _request(small, size, type_name, vocabulary)
    target = _place(source, shape, type_name, recipe, folder)
    _ensure(target, small, shape, type_name, recipe)
    return target


def outlook(source: Path, size: str | Size, type_name: str, folder: Path) -> tuple[Path, int]:
    """Where `scaled` puts the model, and how many bytes it has to write for that: 0 if it is there.

    Raises what `scaled` raises, and writes nothing.
    """
    small = Source(source)
    shape, recipe = _request(small, size, type_name, None)
    target = _place(source, shape, type_name, recipe, folder)
    if target.exists():
        return target, 0
    plan = _plan(small, shape, type_name)
    _require_room(plan, next(each for each in target.parents if each.exists()), type_name)
    return target, plan.size


def _place(source: Path, shape: Shape, type_name: str, recipe: str, folder: Path | None) -> Path:
    name = f"{source.stem}-{shape.label}-{type_name}-{recipe[:12]}.gguf"
    return (folder or cache_folder("scaled")) / name


def scale(
    source: Path,
    target: Path,
    size: str | Size,
    type_name: str = "Q4_0",
    *,
    vocabulary: int | None = None,
) -> None:
    """Write the scaled model to `target`, unless that is what is there. Otherwise as `scaled`."""
    small = Source(source)
    shape, recipe = _request(small, size, type_name, vocabulary)
    _ensure(target, small, shape, type_name, recipe)


def _request(
    source: Source, size: str | Size, type_name: str, vocabulary: int | None
) -> tuple[Shape, str]:
    """The shape asked for, and what tells this request from every other."""
    shape = grown(source.shape, size, vocabulary)
    _require_type(shape, type_name)
    what = [_REVISION, fingerprint(source.path), asdict(shape), type_name]
    return shape, hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _ensure(target: Path, source: Source, shape: Shape, type_name: str, recipe: str) -> None:
    """Write the file unless it is there."""
    if target.exists():
        if read_header(target).metadata.get(_RECIPE) == recipe:
            return
        raise InvalidValueError(
            f"{target} exists and is another model; delete it or name another file"
        )
    plan = _plan(source, shape, type_name)
    target.parent.mkdir(parents=True, exist_ok=True)
    _require_room(plan, target.parent, type_name)
    with _whole(target) as part:
        if type_name in _DIRECT:
            write(part, source, _metadata(plan, recipe, type_name), plan.tensors)
        else:
            with _whole(part.with_suffix(".f16"), keep=False) as half:
                write(half, source, _metadata(plan, recipe, "F16"), plan.tensors)
                quantize.quantize(half, part, type_name)


def _require_type(shape: Shape, type_name: str) -> None:
    if type_name not in _DIRECT and type_name not in quantize.types():
        raise InvalidValueError(
            f"type {type_name!r} is unknown; try {', '.join(_DIRECT)} or one like Q4_K_M"
        )
    block = {"F32": 1, "F16": 1, "Q4_0": 32, "Q8_0": 32}.get(type_name, ALIGNMENT)
    for name in ("width", "ffn"):
        if getattr(shape, name) % block:
            raise InvalidValueError(
                f"{name} {getattr(shape, name)} is no multiple of {block}, which {type_name} "
                f"needs; multiples of {ALIGNMENT} always do"
            )


def _plan(source: Source, shape: Shape, type_name: str) -> Plan:
    kind = Kind[type_name] if type_name in _DIRECT else Kind.F16
    # The library quantises each weight for itself, so that copies would gain nothing.
    copies = MOST_COPIES if type_name in _DIRECT else 1
    return Plan(source, shape, lay_out(source.shape, shape, copies), kind)


def _metadata(plan: Plan, recipe: str, type_name: str) -> dict[str, object]:
    """What the scaled model says otherwise about itself."""
    shape = plan.shape
    own: dict[str, object] = {
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": plan.epsilon,
        "rope.dimension_count": shape.head_dim,
        "vocab_size": shape.vocabulary,
    }
    return {
        "general.name": f"{plan.source.name} scaled to {shape.label}",
        "general.size_label": shape.label,
        "general.file_type": _DIRECT[type_name],
        _RECIPE: recipe,
        **{f"{ARCHITECTURE}.{key}": value for key, value in own.items()},
        **padded_tokens(plan),
    }


def _require_room(plan: Plan, folder: Path, type_name: str) -> None:
    """Raise InvalidValueError unless the file fits on the disk, and the model in memory."""
    # Where the library quantises, its file comes beside the 16-bit one; none is larger than Q8_0.
    quantised = 0 if type_name in _DIRECT else plan.size * 17 // 32
    room = {
        f"on the disk of {folder}": (plan.size + quantised, shutil.disk_usage(folder).free),
        "in memory": (quantised or plan.size, sum(free_memory().values())),
    }
    for where, (needed, free) in room.items():
        if needed > free:
            raise InvalidValueError(
                f"{plan.shape.label} in {type_name} needs {needed / _GIB:.1f} GiB {where} and "
                f"{free / _GIB:.1f} GiB are free; ask for a smaller --params or --type"
            )


@contextmanager
def _whole(path: Path, *, keep: bool = True) -> Iterator[Path]:
    """Another name to write to, which becomes `path` at the end; nothing stays if it fails."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        if keep:
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="GGUF of a small llama-architecture model")
    parser.add_argument("target", type=Path, nargs="?", help="by default a file in the cache")
    parser.add_argument("--params", metavar="N", help="60M, 0.9B, 1.5B, 3B, 8B, ...")
    for name in ("width", "layers", "ffn"):
        parser.add_argument(f"--{name}", type=int, metavar="N", help="instead of --params")
    parser.add_argument("--type", default="Q4_0", help="F32, F16, Q8_0, Q4_0, Q4_K_M, ...")
    parser.add_argument("--vocab", type=int, metavar="N", help="pad the vocabulary to N tokens")
    return parser


def main() -> None:
    """Write one model and say what it took."""
    parser = _options()
    options = parser.parse_args()
    figures = (options.width, options.layers, options.ffn)
    if figures.count(None) != (3 if options.params else 0):
        parser.error("give either --params, or --width, --layers and --ffn")
    size = options.params or Size(*figures)
    began = perf_counter()
    try:
        if options.target:
            path = options.target
            scale(options.source, path, size, options.type, vocabulary=options.vocab)
        else:
            path = scaled(options.source, size, options.type, vocabulary=options.vocab)
    except LocalspecError as error:
        parser.exit(error.exit_code, f"{parser.prog}: {error}\n")
    gigabytes, seconds = path.stat().st_size / 1e9, perf_counter() - began
    print(f"{path}  {gigabytes:.2f} GB in {seconds:.1f} s")


if __name__ == "__main__":
    main()
