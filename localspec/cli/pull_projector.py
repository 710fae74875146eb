"""The projector that `localspec pull` fetches: what reads images and sounds for a target."""

from pathlib import Path

from localspec.cli.pull_member import PROJECTOR, Member
from localspec.errors import ModelNotFoundError
from localspec.hub.listing import BadFileError, RemoteRepository
from localspec.models.own_drafters import is_no_target
from localspec.models.projectors import projector_beside

AUTO, NONE = "auto", "none"


def projector_of(
    own: Member, wanted: str, listing: RemoteRepository | None
) -> tuple[list[Member], list[str]]:
    """Return what reads images for a target, if there is anything, and why it is left out."""
    if wanted == NONE or (wanted == AUTO and is_no_target(own.path_in_repository)):
        return [], []
    if listing is None or own.remote is None:
        return _projector_here(own.paths[0], wanted), []
    try:
        remote = listing.projector(own.remote, None if wanted == AUTO else wanted)
    except BadFileError as error:
        if wanted != AUTO:
            raise
        return [], [f"the file that reads images is left out: {error}"]
    return [Member(PROJECTOR, own.name, remote)] if remote else [], []


def _projector_here(target: Path, wanted: str) -> list[Member]:
    """Return the projector of a target on this disk. Raises ModelNotFoundError for a named one."""
    path = projector_beside(target)
    if path and (wanted == AUTO or path.as_posix().endswith(f"/{wanted}")):
        return [Member(PROJECTOR, target.name, None, (path,))]
    if wanted == AUTO:
        return []
    raise ModelNotFoundError(f"there is no mmproj file {wanted!r} beside {target.name} here")
