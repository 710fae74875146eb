"""Other tools: which of the models that they have on this disk can be used here, and why not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, ModelNotFoundError
from localspec.gguf.check import check_drafter
from localspec.gguf.files import ModelFiles, bytes_of, missing_parts, sidecar_kind
from localspec.gguf.heads import kind_of
from localspec.gguf.projectors import check_projector, choose_projector
from localspec.gguf.reader import display_name
from localspec.imports import links
from localspec.imports.collection import DRAFT, Collection
from localspec.models.kinds import DRAFT_MODEL, MTP
from localspec.models.summaries import summary_of
from localspec.utils.paths import real_path

MODEL = "model"
_ENCODER = "is an image or audio encoder, not a model"
_IN_ONE = "is part of a model that is here in one file, too"
_NO_MODEL = "is no model; only language models and their drafters are imported"


@dataclass(frozen=True, slots=True)
class OtherModel:
    """A model that another tool has on this disk.

    name: to use once it is imported. kind: MODEL, MODEL with heads inside, or the kind of a
    drafter. problem: why it cannot be imported; None if it can. names: of its files in the
    collection; None where there is no file to import. imported: whether it is here already.
    projector: the file of the collection that reads images or sounds for it.
    """

    name: str
    collection: Collection
    kind: str = MODEL
    problem: str | None = None
    names: ModelFiles | None = None
    imported: bool = False
    projector: str | None = None

    @property
    def files(self) -> Sequence[Path]:
        """Its files, where the other tool has them; its projector is the last."""
        names = [*self.names.paths, self.projector] if self.names else []
        return [self.collection.files[each] for each in names if each]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return bytes_of(self.files)

    @property
    def is_drafter(self) -> bool:
        """Whether it drafts for the models of its collection."""
        return not self.kind.startswith(MODEL)


def other_models(collections: Iterable[Collection]) -> list[OtherModel]:
    """Return everything in these collections, each with its kind or why it cannot be used."""
    here = {each.name: real_path(each.files[0]) for each in links.imported()}
    return [found for each in collections for found in _models_of(each, here)]


def wanted_models(found: Sequence[OtherModel], name: str) -> list[OtherModel]:
    """Return the models that a user names, and the drafters that lie beside them.

    name: with or without the tool; of a whole collection, or of one model in it, in any case.
    """
    wanted = name.lower()
    chosen = [each for each in found if wanted in _ways_to_say(each)]
    beside = [each.collection for each in chosen]
    return [
        each for each in found if each in chosen or (each.is_drafter and each.collection in beside)
    ]


def _ways_to_say(model: OtherModel) -> set[str]:
    collection, tool = model.collection, f"{model.collection.tool}:"
    names = {model.name, collection.name_of(), model.name.removesuffix(":latest")}
    return {each.removeprefix(start).lower() for each in names for start in ("", tool)}


def _models_of(collection: Collection, here: Mapping[str, Path]) -> list[OtherModel]:
    """Return the models of a collection. here: the files of those that are imported, by name."""
    found = [_examined(name, collection, names) for name, names in collection.models().items()]
    found = [
        replace(each, imported=here.get(each.name) == real_path(each.files[0])) for each in found
    ]
    grouped = {path for each in found if each.names for path in each.names.paths}
    grouped |= {each.projector for each in found if each.projector}
    left = [file for file in collection.files if file not in grouped]
    found += [
        OtherModel(collection.name_of(file), collection, problem=_why_left(file, left))
        for file in left
    ]
    found += [
        OtherModel(name, collection, problem=problem)
        for name, problem in collection.problems.items()
    ]
    return sorted(found, key=lambda each: each.name)


def _examined(name: str, collection: Collection, names: ModelFiles) -> OtherModel:
    """Read the header of a model, or what is remembered of it."""
    files = [collection.files[each] for each in names.paths]
    kind, problem = sidecar_kind(names.first) or MODEL, None
    if summary := summary_of(files):
        if summary.has_mtp:
            kind = f"{MODEL} with {MTP} heads"
        if names.first.startswith(DRAFT):
            kind = DRAFT_MODEL
    else:
        try:
            kind = kind_of(check_drafter(files[0])) or kind
        except ModelNotFoundError:
            problem = "is a link to a file that is gone; fetch it there again"
        except LocalspecError as error:
            shown, said = display_name(files[0]), str(error)
            named = said.startswith(shown)
            problem = said.removeprefix(shown).strip() if named else f"cannot be used: {said}"
    projector = _projector(collection, names) if kind.startswith(MODEL) and not problem else None
    return OtherModel(name, collection, kind, problem, names, projector=projector)


def _projector(collection: Collection, names: ModelFiles) -> str | None:
    """Return what reads images for a model, if there is anything that can be used."""
    file = choose_projector(collection.files, names.first)
    try:
        return file if file and check_projector(collection.files[file]) else None
    except LocalspecError:
        return None


def _why_left(file: str, left: Sequence[str]) -> str:
    """Say why a file is in no model."""
    name = file.rpartition("/")[2].lower()
    missing = missing_parts(file, left)
    if missing is not None:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        return f"lacks {missing[0]}{more}" if missing else _IN_ONE
    return _ENCODER if "mmproj" in name else _NO_MODEL
