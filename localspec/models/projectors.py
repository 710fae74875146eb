"""Projectors of models on this disk: the one that a user names, or the one beside the model."""

from pathlib import Path

from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.gguf.projectors import ProjectorFile, check_projector, choose_projector
from localspec.models.beside import files_beside

# What a user names for none.
NO_PROJECTOR = "none"


def find_projector(
    named: str | Path | None, target: Path
) -> tuple[ProjectorFile | None, str | None]:
    """The projector of a model, if there is any, and why the one beside it is left out.

    named: NO_PROJECTOR, or a file; None: the one beside the model. Raises ModelNotFoundError and
    ModelLoadError for a named file that is none.
    """
    if named == NO_PROJECTOR:
        return None, None
    if named is not None:
        return check_projector(Path(named)), None
    if (path := projector_beside(target)) is None:
        return None, None
    try:
        return check_projector(path), None
    except (ModelNotFoundError, ModelLoadError) as error:
        return None, f"images are not read: {error}"


def projector_beside(target: Path) -> Path | None:
    """The projector that is made for a model, by its name: of its repository, or in its folder."""
    root, files = files_beside(target)
    name = choose_projector(files, target.absolute().relative_to(root).as_posix())
    return root / name if name else None
