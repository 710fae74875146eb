"""Convert: a published head, as safetensors, to a GGUF for one target."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.conversion.eagle3 import eagle3_head
from localspec.conversion.eagle3_layout import is_eagle3
from localspec.conversion.head import ConvertedHead
from localspec.conversion.matrix_heads import matrix_heads, require_right_target
from localspec.conversion.published import TYPES, Checkpoint, file_type, require_type
from localspec.conversion.target import TargetFile
from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf import matrix_heads as matrix_files
from localspec.gguf.files import ModelFiles
from localspec.gguf.fingerprint import fingerprint as content_of
from localspec.gguf.heads import EAGLE3, kind_of, require_fitting
from localspec.gguf.reader import display_name, read_header
from localspec.gguf.writer import TensorType, write_gguf
from localspec.hub.store import repository_of
from localspec.loading.fingerprints import fingerprint
from localspec.loading.matrix_heads import require_target
from localspec.models.trained_drafters import TrainedDrafter, add_trained, default_folder
from localspec.utils.format import format_bytes
from localspec.utils.paths import make_private_folder, real_path, written_whole

# Metadata of a converted file: what it was made from, the sha256 of its files, what it was made
# for, and the whole request.
SOURCE, HASHES, TARGET, RECIPE = (
    f"localspec.converted.{key}" for key in ("source", "sha256", "target", "recipe")
)
_REPOSITORY = "general.source.huggingface.repository"
# Goes up when the same request makes another file.
_REVISION = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a checkpoint is from. repository: of the Hub, None for a folder. commit: of it."""

    name: str
    repository: str | None = None
    commit: str | None = None

    @property
    def metadata(self) -> dict[str, object]:
        """What a converted file says of it."""
        said = f"{self.repository}@{self.commit}" if self.repository else self.name
        found: dict[str, object] = {"general.name": self.name, SOURCE: said}
        return found | ({_REPOSITORY: self.repository} if self.repository else {})


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `convert` did. kind: the architecture. written: False where the file was there."""

    path: Path
    kind: str
    notes: Sequence[str]
    written: bool


def convert(
    source: Path,
    target: Path,
    out: Path | None = None,
    type_name: str = "Q8_0",
    *,
    origin: Origin | None = None,
    own_output: bool = True,
    layers: Sequence[int] | None = None,
) -> Conversion:
    """Write the head in `source` to a GGUF.

    source: a folder with config.json and *.safetensors, or one such file. target: the GGUF of the
    model that the head was made for. out: None is a file beside the target with a name by which it
    is found; for a target of the Hub's cache, one among localspec's own drafters, which is listed
    as this target's. type_name: of the matrices. origin: None is the source itself. own_output: of
    Medusa heads and MLP speculators; False leaves their output matrices out, so that the target's
    is used. layers: of the target, as in `eagle3_head`.

    A file that another request made is never replaced, and one that is not finished never has this
    name. Raises LocalspecError: ModelLoadError for a checkpoint that cannot be converted,
    DrafterMismatchError for one of another target, InvalidValueError for options.
    """
    checkpoint, model = Checkpoint(source), TargetFile(target)
    eagle3 = is_eagle3(checkpoint)
    type_ = require_type(type_name, TYPES if eagle3 else matrix_files.TYPES)
    _require_options_of(checkpoint.name, is_eagle3=eagle3, own_output=own_output, layers=layers)
    if eagle3:
        head = eagle3_head(checkpoint, model, type_, layers)
    else:
        head = matrix_heads(checkpoint, type_, own_output=own_output)
        # Before anything is written, by the name that the user knows.
        require_right_target(head, checkpoint, model.facts)
    path = out or default_path(model, head.architecture, type_)
    hashes = checkpoint.sha256()
    request = [_REVISION, hashes, dict(checkpoint.config), type_name, own_output, layers]
    recipe = hashlib.sha256(json.dumps([*request, fingerprint(model.path)]).encode()).hexdigest()
    listed = out is None and repository_of(model.path) is not None
    if is_here(path, recipe):
        if listed:
            _list(path, head, model)
        return Conversion(path, head.architecture, head.notes, written=False)
    about = (origin or Origin(real_path(source).name)).metadata | {
        "general.type": "model",
        "general.file_type": file_type(type_),
        HASHES: hashes,
        TARGET: model.name,
        RECIPE: recipe,
    }
    with new_file(path, head.size) as part:
        write_gguf(part, head.architecture, {**about, **head.metadata}, head.tensors)
        _require_usable(part, head, model)
    if listed:
        _list(path, head, model)
    return Conversion(path, head.architecture, head.notes, written=True)


def _require_options_of(
    name: str, *, is_eagle3: bool, own_output: bool, layers: Sequence[int] | None
) -> None:
    """Raise InvalidValueError for an option of the other kind of heads."""
    if is_eagle3 and not own_output:
        raise InvalidValueError(
            f"{name} is an EAGLE-3 head, and --targets-output is for Medusa heads and MLP "
            "speculators; leave it out"
        )
    if not is_eagle3 and layers is not None:
        raise InvalidValueError(
            f"{name} is no EAGLE-3 head, and no other head reads layers that --layers names; leave "
            "it out"
        )


def default_path(target: TargetFile, architecture: str, type_: TensorType) -> Path:
    """The file beside the target that belongs to it by its name.

    For a target of the Hub's cache, into which nothing is written, one among localspec's drafters.
    """
    of = ModelFiles((target.path.name,)).base_name
    if repository_of(target.path):
        name = f"{architecture}-{of}-{content_of(target.path)[:8]}-{type_.name}.gguf"
        return default_folder() / name
    return target.path.parent / f"{architecture}-{of}-{type_.name}.gguf"


def _list(path: Path, head: ConvertedHead, target: TargetFile) -> None:
    """Make a head one of its target's own drafters."""
    kind = kind_of(read_header(path)) or head.architecture
    add_trained(target.path, TrainedDrafter(kind, path.absolute(), target.name, False))


def is_here(path: Path, recipe: str) -> bool:
    """Whether a file is what the same request wrote.

    Raises InvalidValueError for any other file of this name.
    """
    if not os.path.exists(path):
        return False
    try:
        metadata: Mapping[str, object] = read_header(path).metadata
    except LocalspecError:
        metadata = {}
    if metadata.get(RECIPE) == recipe:
        return True
    raise another_file(path)


def another_file(path: Path) -> InvalidValueError:
    """The error for a file or folder in the place of one that is to be written."""
    shown = display_name(path)
    if path.is_dir():
        return InvalidValueError(f"{shown} is a folder; name a file with -o")
    return InvalidValueError(f"{shown} exists and is another file; delete it, or name one with -o")


@contextmanager
def new_file(path: Path, size: int = 0, *, is_private: bool = False) -> Iterator[Path]:
    """Yield a temporary name that becomes `path` at the end. size: bytes, as far as known before.

    is_private: whether only this user may read the file, and folders that are made for it.
    Raises LocalspecError where there is no room, or nothing can be written.
    """
    shown = display_name(path)
    try:
        if is_private:
            make_private_folder(path.absolute().parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if size > free:
            raise LocalspecError(
                f"{shown} needs {format_bytes(size)}, and {format_bytes(free)} are free there; "
                "make room, or name another place with -o"
            )
        with written_whole(path) as part:
            if is_private:
                part.touch(0o600)
            yield part
    except LocalspecError:  # some of which are OSErrors as well
        raise
    except OSError as error:
        raise LocalspecError(
            f"{shown} cannot be written: {error.strerror or error}; make room, or name another "
            "place with -o"
        ) from error


def _require_usable(part: Path, head: ConvertedHead, target: TargetFile) -> None:
    """Check the file as it is checked before it drafts."""
    header = read_header(part)
    if head.architecture == EAGLE3:
        require_fitting(part, header, target.path, target.header)
    else:
        require_target(part, matrix_files.matrix_head_of(part, header), target.facts)
