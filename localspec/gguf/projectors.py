"""Projectors: files that let a model read images and sounds ("mmproj"); named, or beside it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.files import ModelFiles
from localspec.gguf.reader import Header, display_name, read_header

# The architecture in their headers.
PROJECTOR = "clip"
_NAME = re.compile(r"mm-?proj(?:ector)?", re.IGNORECASE)
# Of several precisions the first of these is taken; what is quantised loses more than it saves.
_QUANTS = ("F16", "BF16", "Q8_0", "F32")
# Base names of files that do not say which model they are for.
_GENERIC = ("", "model")


@dataclass(frozen=True, slots=True)
class ProjectorFile:
    """A projector. images, sounds: what it reads."""

    path: Path
    images: bool
    sounds: bool
    header: Header = field(repr=False, compare=False)

    @property
    def kinds(self) -> str:
        """What it reads, in words."""
        named = ("images", self.images), ("sounds", self.sounds)
        return " and ".join(name for name, reads in named if reads)


def is_projector(file: str) -> bool:
    """Whether a file is a projector, by its name."""
    return file.lower().endswith(".gguf") and bool(_NAME.search(file.rpartition("/")[2]))


def check_projector(path: Path) -> ProjectorFile:
    """Read the header of a projector.

    Raises ModelNotFoundError, and ModelLoadError for a file that is none.
    """
    header = read_header(path)
    if header.architecture != PROJECTOR:
        kind = header.architecture or "of no architecture"
        raise ModelLoadError(
            f"{display_name(path)} is no mmproj file ({kind}); name the one that was made for the "
            "model"
        )
    images, sounds = (_reads(header, name) for name in ("vision", "audio"))
    if not (images or sounds):
        raise ModelLoadError(f"{display_name(path)} reads neither images nor sounds; take another")
    return ProjectorFile(path, images, sounds, header)


def choose_projector(files: Iterable[str], target: str) -> str | None:
    """The projector among the files of a repository that is made for a model; None without any.

    It is one of the model's folder, or of those above it. target: the model's path among the files.
    """
    wanted = ModelFiles((target,)).base_name
    bases = {file: _base(file) for file in files if is_projector(file) and _is_above(file, target)}
    named = [file for file, base in bases.items() if base == wanted]
    generic = [file for file, base in bases.items() if base in _GENERIC]
    return min(named or generic, key=_rank, default=None)


def _is_above(file: str, target: str) -> bool:
    """Whether a projector's folder is that of a model, or above it; one for projectors is none."""
    folders = file.split("/")[:-1]
    if folders and _NAME.fullmatch(folders[-1]):
        folders.pop()
    return target.split("/")[: len(folders)] == folders


def _base(file: str) -> str:
    """The name of the model that a projector is for, as its file says it."""
    folder, slash, name = file.rpartition("/")
    return ModelFiles((folder + slash + _NAME.sub("", name, count=1),)).base_name


def _rank(file: str) -> tuple[int, str]:
    quant = ModelFiles((file,)).quant or ""
    return _QUANTS.index(quant) if quant in _QUANTS else len(_QUANTS), file


def _reads(header: Header, what: str) -> bool:
    return header.metadata.get(f"clip.has_{what}_encoder") is True
