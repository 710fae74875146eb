"""Links: the imported models, in a folder of localspec's own; their files stay where they are.

A link has the name that its model has here, so that the parts of a split model and the drafters
beside a target are found as in any folder. Links are symbolic: the tool that fetched a file goes on
owning it, and deleting it there frees its space. Where the system allows none, a hard link is made:
then the content stays until both names are deleted.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ModelNotFoundError
from localspec.gguf.files import ModelFiles, choose_model
from localspec.hub.reference import Repository
from localspec.hub.store import StoredModel, stored_model
from localspec.imports.collection import FOLDER, OLLAMA, TOOLS, Collection, folders_of
from localspec.utils.paths import data_folder, make_private_folder
from localspec.utils.shell import command_line

# The tag that Ollama means by a name without one.
_LATEST = ":latest"


@dataclass(frozen=True, slots=True)
class LostModel:
    """An imported model of which a file is gone. name: to use. link: to it. file: what is gone."""

    name: str
    link: Path
    file: Path

    @property
    def reason(self) -> str:
        """One line: what is gone, and what to do."""
        tool, _, name = self.name.partition(":")
        # Ollama names its files by their content, so a newer one is another file.
        again = "fetch it there again"
        if tool == OLLAMA:
            again += f" and run localspec pull --from {tool} {name}"
        return (
            f"{self.name} is imported, and its file is gone ({self.file}); {again}, or let "
            f"{command_line(['localspec', 'rm', self.name])} forget it"
        )


def imports_folder() -> Path:
    """Return the folder of all links; it may not exist."""
    return data_folder("imports")


def link(collection: Collection, names: ModelFiles) -> list[Path]:
    """Link the files of a model, and return the links; links that are there already stay.

    Raises LocalspecError where no link can be made, ModelNotFoundError where a file has vanished.
    """
    above = imports_folder().joinpath(collection.tool, *collection.folders)
    made = []
    for name in names.paths:
        source, target = collection.files[name], above / name
        try:
            make_private_folder(target.parent)
            if _target_of(target) != source:
                _replace_link(source, target)
        except OSError as error:
            raise LocalspecError(
                f"cannot link {source} in {target.parent} ({error.strerror or error}); see to the "
                "folder's permissions, or set LOCALSPEC_HOME to one on the same disk"
            ) from error
        if not os.path.isfile(target):
            target.unlink(missing_ok=True)
            raise ModelNotFoundError(f"{source} has vanished meanwhile; fetch it again")
        made.append(target)
    return made


def imported() -> list[StoredModel]:
    """Return every imported model whose files are all there, by tool and name."""
    return [
        stored_model(name, names, [each.files[file] for file in names.paths])
        for each in _collections()
        for name, names in each.models().items()
    ]


def lost() -> list[LostModel]:
    """Return the imported models of which a file is gone."""
    return [
        LostModel(name, each.files[file], _target_of(each.files[file]) or each.files[file])
        for each in _collections(with_lost=True)
        for name, names in each.models().items()
        for file in names.paths
        if not os.path.isfile(each.files[file])
    ]


def find(name: str) -> Path | None:
    """Return the (first) file of an imported model; None for a name that is none of an import.

    name: `tool:...` as `imported` names it, in any case; without a quantisation the best that is
    there. Raises ModelNotFoundError where nothing, or too much, is imported under this name.
    """
    tool, colon, wanted = name.lower().partition(":")
    if not colon or tool not in TOOLS:
        return None
    if tool == OLLAMA and ":" not in wanted:
        wanted += _LATEST
    for each in _collections():
        models = {key.lower(): names for key, names in each.models().items()}
        if names := models.get(f"{tool}:{wanted}"):
            return each.files[names.first]
    if gone := next((each for each in lost() if each.name.lower() == f"{tool}:{wanted}"), None):
        raise ModelNotFoundError(gone.reason)
    for each in _collections():
        start = each.name_of().lower()
        if each.id and (f"{tool}:{wanted}" == start or f"{tool}:{wanted}".startswith(f"{start}:")):
            quant = name[len(start) + 1 :]
            return each.files[choose_model(each.files, quant or None, each.name_of()).first]
    source = "FOLDER (its path)" if tool == FOLDER else tool
    raise ModelNotFoundError(
        f"{name} is not imported; localspec ls --others lists what other tools have here, and "
        f"localspec pull --from {source} imports it"
    )


def find_repository(wanted: Repository) -> Path | None:
    """Return the (first) file of an imported model that is from a repository of the Hub.

    The beginning of a quantisation does not count.
    """
    for each in _of_repository(wanted.id):
        with suppress(ModelNotFoundError):
            chosen = choose_model(each.files, wanted.quant, wanted.id, exact=True)
            return each.files[chosen.first]
    return None


def quants_of(repository: str) -> set[str | None]:
    """Return the quantisations of a repository of the Hub that are imported."""
    found = _of_repository(repository)
    return {names.quant for each in found for names in each.models().values()}


def repository_of(path: Path) -> str | None:
    """Return the repository that an imported file is from; None for any other file."""
    place = _place(path)
    return place and Collection(*place).repository


def root_of(path: Path) -> Path | None:
    """Return the folder of an imported file's collection; None for any other file."""
    place = _place(path)
    return imports_folder().joinpath(place[0], *place[1]) if place else None


def links_of(name: str) -> list[Path]:
    """Return the links of an imported model, also those to files that are gone.

    name: as `imported` or `lost` names it, in any case.
    """
    found = [
        each.files[file]
        for each in (*_collections(), *_collections(with_lost=True))
        for key, names in each.models().items()
        for file in names.paths
        if key.lower() == name.lower()
    ]
    return [*dict.fromkeys(found)]


def remove(paths: Sequence[Path]) -> None:
    """Delete links; the files that they lead to stay. Raises LocalspecError."""
    try:
        for path in paths:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)
        for each in _collections(with_lost=True):
            if not each.models():
                # What reads images for the models that were there.
                for path in each.files.values():
                    path.unlink(missing_ok=True)
                    _remove_empty(path.parent)
    except OSError as error:
        raise LocalspecError(
            f"{error.filename} cannot be deleted ({error.strerror}); check its permissions"
        ) from error


def name_for(folder: Path) -> str:
    """Return what to call a folder of models: its name, with a number if that is another's."""
    name = re.sub(r"[^\w.-]+", "-", folder.name).strip("-.") or "models"
    names = (f"{name}-{number}" if number > 1 else name for number in range(1, 1000))
    return next((each for each in names if _is_free(each, folder)), name)


def _is_free(name: str, folder: Path) -> bool:
    """Whether no link in a folder of this name leads out of another folder than this."""
    links = [path for path in (imports_folder() / FOLDER / name).rglob("*") if path.is_symlink()]
    return not links or any((_target_of(path) or path).is_relative_to(folder) for path in links)


def _collections(*, with_lost: bool = False) -> Iterator[Collection]:
    """Yield the imports as collections of links. with_lost: links to files that are gone, too."""
    for tool in TOOLS:
        found: dict[tuple[str, ...], dict[str, Path]] = {}
        root = imports_folder() / tool
        for path in sorted(root.rglob("*.gguf")):
            folders, name = folders_of(tool, path.relative_to(root).as_posix())
            if os.path.isfile(path) or (with_lost and path.is_symlink()):
                found.setdefault(folders, {})[name] = path
        yield from (Collection(tool, folders, files) for folders, files in found.items())


def _of_repository(repository: str) -> Iterator[Collection]:
    """Yield the imports that are from a repository of the Hub."""
    for each in _collections():
        if (each.repository or "").lower() == repository.lower():
            yield each


def _place(path: Path) -> tuple[str, tuple[str, ...]] | None:
    """Return the tool and the folders of the collection that a link is in."""
    try:
        below = Path(os.path.abspath(path)).relative_to(imports_folder())
    except ValueError:
        return None
    tool, *rest = below.parts
    return (tool, folders_of(tool, "/".join(rest))[0]) if rest and tool in TOOLS else None


def _replace_link(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.symlink_to(source)
    except (OSError, NotImplementedError):
        # Without its developer mode, Windows makes hard links only.
        os.link(source, part)
    os.replace(part, target)


def _target_of(path: Path) -> Path | None:
    try:
        return path.readlink()
    except OSError:
        return None


def _remove_empty(folder: Path) -> None:
    """Delete a folder of links, and those above it, as far as they are empty."""
    with suppress(OSError):
        while folder != imports_folder():
            folder.rmdir()
            folder = folder.parent
