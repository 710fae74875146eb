"""Scale a model: a small model's function at the cost of a large model.

    python -m localspec.scaling.scale SOURCE.gguf [TARGET.gguf] --params 0.9B
    python -m localspec.scaling.scale SOURCE.gguf [TARGET.gguf] --params 0.9B --head HEAD.gguf

Writes a GGUF of any size that computes the function of a small llama-architecture model. So the
acceptance rates of a pair stay real, and a pass costs what it costs at that size. In F32, F16, Q8_0
and Q4_0 the weights are as exact as the source's (Q4_0 uses spare width for that); in other types
they are what llama.cpp's quantiser makes of them. With --head, what is written is the head of the
source (EAGLE-3 or DFlash) for the scaled model.
"""

import argparse
import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf.reader import read_header
from localspec.gguf.writer import TensorType, write_gguf
from localspec.llama import quantize
from localspec.loading.fingerprints import fingerprint
from localspec.memory.available import free_memory
from localspec.scaling.layout import ALIGNMENT, MAX_COPIES, lay_out
from localspec.scaling.scaled_head import ScaledHead
from localspec.scaling.scaled_model import ScaledModel
from localspec.scaling.shape import Shape, Size, scaled_shape
from localspec.scaling.source_model import HEADS, SourceModel
from localspec.utils.paths import cache_folder, written_whole

# The types written here, with llama.cpp's number for a file of each.
_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}
_RECIPE = "localspec.scaled.recipe"
# Goes up when the same request makes another file.
_REVISION = 1
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class ScaledFile:
    """The file of a scaled model. missing_bytes: still to be written, 0 for a file that exists."""

    path: Path
    missing_bytes: int


def scaled_model(
    source: Path,
    size: str | Size,
    type_name: str = "Q4_0",
    folder: Path | None = None,
    *,
    vocabulary: int | None = None,
    head: Path | None = None,
) -> Path:
    """The file of the scaled model in a folder; it is written if it does not exist.

    size: a number of parameters such as "0.9B", or the sizes themselves. type_name: such as Q4_0 or
    Q4_K_M. folder: None is one in the user's cache. vocabulary: pad it to so many tokens. head: a
    head of the source; then the file is that of the head for the scaled model.

    Raises InvalidValueError, ModelNotFoundError or ModelLoadError.
    """
    request = _Request.of(source, size, type_name, vocabulary, head)
    target = request.path_in(folder or cache_folder("scaled"))
    request.ensure(target)
    return target


def scaled_file(source: Path, size: str | Size, type_name: str, folder: Path) -> ScaledFile:
    """The file that `scaled_model` would return, and how much it would have to write.

    Writes nothing. Raises what `scaled_model` raises.
    """
    request = _Request.of(source, size, type_name, None)
    target = request.path_in(folder)
    if target.exists():
        return ScaledFile(target, 0)
    model = request.model()
    existing = next(parent for parent in target.parents if parent.exists())
    _require_room(model, existing, type_name)
    return ScaledFile(target, model.size)


def scale_model(
    source: Path,
    target: Path,
    size: str | Size,
    type_name: str = "Q4_0",
    *,
    vocabulary: int | None = None,
    head: Path | None = None,
) -> None:
    """Write the scaled model to `target`, unless `target` is that model. Else as `scaled_model`.

    Raises InvalidValueError also if `target` is another model.
    """
    _Request.of(source, size, type_name, vocabulary, head).ensure(target)


@dataclass(frozen=True, slots=True)
class _Request:
    """What to write. recipe: tells this request from every other. head: of the source."""

    source: SourceModel
    shape: Shape
    type_name: str
    recipe: str
    head: SourceModel | None = None

    @classmethod
    def of(
        cls,
        path: Path,
        size: str | Size,
        type_name: str,
        vocabulary: int | None,
        head: Path | None = None,
    ) -> "_Request":
        source = SourceModel(path)
        shape = scaled_shape(source.shape, size, vocabulary)
        _require_type(shape, type_name)
        what = [_REVISION, fingerprint(path), asdict(shape), type_name]
        what += [fingerprint(head)] if head else []
        recipe = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        own = SourceModel(head, HEADS) if head else None
        if own:
            _require_alike(own, source, type_name)
        return cls(source, shape, type_name, recipe, own)

    def path_in(self, folder: Path) -> Path:
        stem = (self.head or self.source).path.stem
        return folder / f"{stem}-{self.shape.label}-{self.type_name}-{self.recipe[:12]}.gguf"

    def model(self) -> ScaledModel | ScaledHead:
        """The tensors, as they are before llama.cpp quantises them."""
        direct = self.type_name in _FILE_TYPES
        type_ = TensorType[self.type_name] if direct else TensorType.F16
        # llama.cpp rounds each weight for itself, so that copies would gain nothing.
        layout = lay_out(self.source.shape, self.shape, MAX_COPIES if direct else 1)
        if self.head:
            return ScaledHead(self.head, self.shape, layout, type_)
        return ScaledModel(self.source, self.shape, layout, type_)

    def ensure(self, target: Path) -> None:
        """Write the file unless it exists."""
        if target.exists():
            if read_header(target).metadata.get(_RECIPE) == self.recipe:
                return
            raise InvalidValueError(
                f"{target} exists and is another model; delete it or name another file"
            )
        model = self.model()
        target.parent.mkdir(parents=True, exist_ok=True)
        _require_room(model, target.parent, self.type_name)
        with written_whole(target) as part:
            if self.type_name in _FILE_TYPES:
                self._write(model, part)
            else:
                with written_whole(part.with_suffix(".f16"), keep=False) as half:
                    self._write(model, half)
                    quantize.quantize(half, part, self.type_name)

    def _write(self, model: ScaledModel | ScaledHead, path: Path) -> None:
        own = {"general.file_type": _FILE_TYPES[model.type.name], _RECIPE: self.recipe}
        write_gguf(path, model.source.architecture, model.metadata() | own, model.tensors)


def _require_alike(head: SourceModel, source: SourceModel, type_name: str) -> None:
    """Raise InvalidValueError for a head that cannot be scaled like its target."""
    if replace(head.shape, layers=source.shape.layers) != source.shape:
        raise InvalidValueError(
            f"{head.path.name} has other sizes than {source.path.name}, and only a head with the "
            "width, the heads, the feed-forward length and the vocabulary of its target can be "
            "scaled"
        )
    if type_name not in _FILE_TYPES:
        raise InvalidValueError(
            f"a head cannot be scaled in {type_name}; choose {', '.join(_FILE_TYPES)}"
        )


def _require_type(shape: Shape, type_name: str) -> None:
    if type_name not in _FILE_TYPES and type_name not in quantize.types():
        raise InvalidValueError(
            f"type {type_name!r} is unknown; try {', '.join(_FILE_TYPES)} or one like Q4_K_M"
        )
    block = {"F32": 1, "F16": 1, "Q4_0": 32, "Q8_0": 32}.get(type_name, ALIGNMENT)
    for name in ("width", "ffn"):
        if getattr(shape, name) % block:
            raise InvalidValueError(
                f"{name} {getattr(shape, name)} is no multiple of {block}, which {type_name} "
                f"needs; multiples of {ALIGNMENT} always do"
            )


def _require_room(model: ScaledModel | ScaledHead, folder: Path, type_name: str) -> None:
    """Raise InvalidValueError unless the file fits on the disk, and the model in memory."""
    # llama.cpp writes its file beside the 16-bit one; none is larger than Q8_0.
    quantised = 0 if type_name in _FILE_TYPES else model.size * 17 // 32
    room = {
        f"on the disk of {folder}": (model.size + quantised, shutil.disk_usage(folder).free),
        "in memory": (quantised or model.size, free_memory().total),
    }
    # A little less than what fits: something else may need a part of it meanwhile.
    most = 0.9 * model.shape.parameters * min(free / needed for needed, free in room.values())
    remedy = f"the most here is about {most / 1e9:.1f}B" if most >= 0.1e9 else "free some"
    for where, (needed, free) in room.items():
        if needed > free:
            raise InvalidValueError(
                f"{model.shape.label} in {type_name} needs {needed / _GIB:.1f} GiB {where} and "
                f"{free / _GIB:.1f} GiB are free; {remedy}, or take a smaller "
                "--type"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localspec.scaling.scale", description=__doc__.splitlines()[0]
    )
    parser.add_argument("source", type=Path, help="GGUF of a small llama-architecture model")
    parser.add_argument("target", type=Path, nargs="?", help="by default a file in the cache")
    parser.add_argument("--params", metavar="N", help="60M, 0.9B, 1.5B, 3B, 8B, ...")
    for name in ("width", "layers", "ffn"):
        parser.add_argument(f"--{name}", type=int, metavar="N", help="instead of --params")
    parser.add_argument("--type", default="Q4_0", help="F32, F16, Q8_0, Q4_0, Q4_K_M, ...")
    parser.add_argument("--head", type=Path, metavar="FILE", help="scale this head of the source")
    parser.add_argument("--vocab", type=int, metavar="N", help="pad the vocabulary to N tokens")
    return parser


def main() -> None:
    """Write one model; print its file, its size and the seconds it took."""
    parser = _parser()
    options = parser.parse_args()
    sizes = (options.width, options.layers, options.ffn)
    if sizes.count(None) != (3 if options.params else 0):
        parser.error("give either --params, or --width, --layers and --ffn")
    size = options.params or Size(*sizes)
    own = {"vocabulary": options.vocab, "head": options.head}
    began = perf_counter()
    try:
        if options.target:
            path = options.target
            scale_model(options.source, path, size, options.type, **own)
        else:
            path = scaled_model(options.source, size, options.type, **own)
    except LocalspecError as error:
        parser.exit(error.exit_code, f"{parser.prog}: {error}\n")
    except OSError as error:
        place = error.filename or options.target or "the model"
        parser.exit(
            1, f"{parser.prog}: {place} cannot be written: {error.strerror}; name another place\n"
        )
    gigabytes, seconds = path.stat().st_size / 1e9, perf_counter() - began
    print(f"{path}  {gigabytes:.2f} GB in {seconds:.1f} s")


if __name__ == "__main__":
    main()
