"""Own drafters: those that a target has by models.toml, in its file, beside it, or by `pull`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from localspec.drafters.spec import PARD
from localspec.errors import DrafterMismatchError, LocalspecError
from localspec.gguf.facts import facts_of
from localspec.gguf.files import ModelFiles, group_files, sidecar_kind
from localspec.gguf.heads import kind_of
from localspec.gguf.mask_token import is_pard
from localspec.gguf.reader import read_header
from localspec.gguf.sidecars import best_sidecars, is_named_like
from localspec.hub import store
from localspec.hub.reference import Reference, Repository
from localspec.imports import links
from localspec.models.beside import files_beside
from localspec.models.bundled_files import name_of
from localspec.models.kinds import ASSISTANT, DRAFT_MODEL, KINDS, MTP
from localspec.models.listed_drafter import IN_TARGET, ListedDrafter
from localspec.models.locate import find_file
from localspec.models.pair_finder import names_of, pair_elsewhere, pair_named_like, pair_of
from localspec.models.pulled_pairs import pulled_drafters
from localspec.models.registry import Pair
from localspec.models.trained_drafters import TrainedDrafter, trained_drafters
from localspec.utils.paths import real_path

_LOSS = "it is no faster than plain decoding, by the acceptance measured when it was trained"
_GEMMA = "gemma-4-"
# What the name of a drafter's file says. Whole models may be called MTP.
_DRAFTER = re.compile(r"(?:^|[-._ ])(?:eagle-?3|dflash2?|dspark|pard)(?=[-._ ]|$)", re.IGNORECASE)
# And that of a model that writes no text.
_NO_TEXT = re.compile(r"(?:^|[-._ ])(?:embed(?:ding)?|rerank(?:er)?)(?=[-._ ]|$)", re.IGNORECASE)


class KnownTarget(Protocol):
    """What was read of a target before: whether heads are inside, and its name in the header."""

    @property
    def has_mtp(self) -> bool: ...
    @property
    def name(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class OwnDrafter:
    """A drafter that was made for a target.

    reference: where it is; None for heads inside the target. file: on this disk, None where it was
    not fetched; the target for heads inside. listed: what models.toml says of it. pair: the name of
    its pair there. origin: of a drafter of another target, why it drafts for this one. loss: why it
    does not pay, where it was trained here and tried. pulled: whether the user named it when
    pulling the target.
    """

    kind: str
    reference: Reference | None
    file: Path | None = None
    listed: ListedDrafter | None = None
    pair: str | None = None
    origin: str | None = None
    loss: str | None = None
    pulled: bool = False

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.kind} {name_of(self.reference) if self.reference else IN_TARGET}"

    @property
    def typed(self) -> str:
        """What to type after --draft for it."""
        return name_of(self.reference) if self.reference else self.kind

    @property
    def missing(self) -> str:
        """Why there is no file, and what fetches it."""
        if self.reference is None:
            return f"the file has no heads inside; localspec pull {self.pair} fetches one that has"
        if isinstance(self.reference, Path):
            return f"there is no file {self.reference}"
        whole = f"{self.pair} --drafter {self.kind}" if self.pair else self.reference
        return f"{self.reference} is not on this machine; localspec pull {whole} fetches it"

    @property
    def objection(self) -> str | None:
        """Why it does not draft unless the user names it; None where nothing speaks against it."""
        if loss := self.loss or (self.listed and self.listed.loses):
            return f"{self.name} is left out: {loss}"
        return None


def own_drafters(target: Path, known: KnownTarget | None = None) -> list[OwnDrafter]:
    """Return the drafters of a target: heads inside, of models.toml, sidecars, and trained here.

    One that the user named when pulling the target comes first. Those of models.toml keep their
    order; those of the same model in another repository come last. A drafter that was trained here
    comes before these if it was faster than the others, else behind them.
    known: of the target; None reads its header. Raises InvalidValueError for a user's models.toml
    that cannot be used, and ModelLoadError or ModelNotFoundError for a target that cannot be read.
    """
    pair, known = pair_of(target), known or facts_of(target)
    inside = known.has_mtp
    found = listed_drafters(pair, target if inside else None) if pair else []
    if inside and not any(each.reference is None for each in found):
        found.insert(0, OwnDrafter(MTP, None, target))
    trained = trained_drafters(target)
    before, after = (
        [_trained_here(each) for each in trained if each.preferred == first]
        for first in (True, False)
    )
    # What is known of a file that was trained here says more than its name beside the target.
    beside = [
        OwnDrafter(kind, path, path)
        for kind, path in _beside(target, [each.file for each in trained])
    ]
    names = names_of(target, known.name)
    last = [*after, *([] if pair else drafters_elsewhere(target, names))]
    found = with_others(with_others(with_others(before, found), beside), last)
    return with_others(pulled_with(target, found), found)


def own_drafter_called(target: Path, name: str) -> OwnDrafter | None:
    """Return the target's own drafter that a name means which is that of no model.

    It is what lines say of a drafter: its file's name, of a draft model without the quantisation,
    too. Raises as `own_drafters` does.
    """
    wanted = name.lower()
    return next((each for each in own_drafters(target) if wanted in _called(each)), None)


def _called(drafter: OwnDrafter) -> set[str]:
    """What a drafter is called, in lower case."""
    file, reference = drafter.file, drafter.reference
    if reference is None:
        return set()
    names = [file.name] if file else []
    if isinstance(reference, Repository):
        names.append(re.sub(r"-gguf$", "", reference.id.partition("/")[2], flags=re.IGNORECASE))
    whole = {name.lower().removesuffix(".gguf") for name in names}
    is_model = drafter.kind in (DRAFT_MODEL, PARD)
    return whole | ({ModelFiles((name,)).base_name for name in names} if is_model else set())


def pulled_with(target: Path | str, known: Sequence[OwnDrafter]) -> list[OwnDrafter]:
    """Return the drafters that the user pulled a target with; what is known of a file stays.

    target: its file, or its repository.
    """
    drafters = []
    for reference in pulled_drafters(target):
        file = find_file(reference)
        drafter = OwnDrafter(_kind_in(file), reference, file, pulled=True)
        same = (each for each in known if file and each.file and file.samefile(each.file))
        drafters.append(next(same, drafter))
    return drafters


def _kind_in(file: Path | None) -> str:
    """The kind of a drafter, by its file; that of a draft model where it cannot be read."""
    try:
        header = read_header(file) if file else None
    except LocalspecError:
        header = None
    if header is None:
        return DRAFT_MODEL
    return kind_of(header) or (PARD if is_pard(header) else DRAFT_MODEL)


def _trained_here(drafter: TrainedDrafter) -> OwnDrafter:
    loss = None if drafter.pays else _LOSS
    return OwnDrafter(drafter.kind, drafter.file, drafter.file, loss=loss)


def require_another(name: str, path: Path, target: Path) -> None:
    """Raise DrafterMismatchError if a name means the target, as that of its pair or a link does."""
    if not (path.is_file() and path.samefile(target)) or facts_of(target).has_mtp:
        return
    own = next((each for each in own_drafters(target) if each.file), None)
    way_out = (
        f"its drafter is {own.typed}, which auto takes by itself"
        if own
        else f"name a smaller model (localspec pair {name} lists them), or suffix"
    )
    raise DrafterMismatchError(f"{name} is the target, which cannot speed itself up; {way_out}")


def listed_drafters(pair: Pair, heads_in: Path | None = None) -> list[OwnDrafter]:
    """Return the drafters of a pair, in its order. heads_in: the target, if it has heads inside."""
    return [
        OwnDrafter(
            each.kind, each.file, find_file(each.file) if each.file else heads_in, each, pair.name
        )
        for each in pair.drafters
    ]


def drafters_elsewhere(target: Reference, names: Sequence[str]) -> list[OwnDrafter]:
    """Return those of the same model from another uploader, or of one that it is named after.

    The latter may be another model, trained further: a smaller one drafts for it all the same, and
    a head, which reads the states of its own target, badly. names: as `names_of` returns them.
    """
    same = pair_elsewhere(target)
    pair = same or pair_named_like(names)
    if pair is None:
        return []
    kinds = set(KINDS) if same else {DRAFT_MODEL, PARD}
    label = target.name if isinstance(target, Path) else target
    is_like = "is the same model as" if same else "is named after"
    why = f"is of the pair {pair.name}: {label} {is_like} {pair.target}"
    # Of no pair, so that what is missing is fetched alone.
    return [
        replace(each, pair=None, origin=f"{each.name} {why}")
        for each in listed_drafters(pair)
        if each.reference and each.kind in kinds
    ]


def is_no_target(file: str) -> bool:
    """Whether nothing drafts for a file: a drafter, or a model that writes no text, by its path."""
    return is_drafter(file) or _NO_TEXT.search(_stem(file)) is not None


def is_drafter(file: str) -> bool:
    """Whether a file is a drafter that drafts for its own target alone, by its path."""
    return sidecar_kind(file) is not None or _DRAFTER.search(_stem(file)) is not None


def _stem(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".gguf")


def sidecar_drafters(files: Iterable[str], target: ModelFiles, repository: str) -> list[OwnDrafter]:
    """Return the sidecars of a target in its repository on the Hub, the most promising kind first.

    files: the paths of all files of the repository.
    """
    return [
        OwnDrafter(kind, Repository(repository, each.first))
        for kind, each in _by_kind(best_sidecars(files, target), target)
    ]


def with_others(first: Sequence[OwnDrafter], others: Iterable[OwnDrafter]) -> list[OwnDrafter]:
    """Add the drafters that are not the file of one that is there already."""
    known = [each.file for each in first if each.file]
    named = {str(each.reference).lower() for each in first}
    return [
        *first,
        *(
            each
            for each in others
            if str(each.reference).lower() not in named
            and not (each.file and any(each.file.samefile(path) for path in known))
        ),
    ]


def _beside(target: Path, known: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the sidecars beside a target on this disk, by kind; without the files in `known`.

    A link to the target is none of them.
    """
    root, files = files_beside(target)
    others = {*map(real_path, (target, *known))}
    files = [
        file for file in files if not sidecar_kind(file) or real_path(root / file) not in others
    ]
    names = ModelFiles((target.absolute().relative_to(root).as_posix(),))
    of_one = store.repository_of(target) or links.repository_of(target)
    if not of_one and len(group_files(files)) > 1:
        # A folder of many models, where only the name tells what belongs together.
        files = [
            file
            for file in files
            if not sidecar_kind(file) or is_named_like(ModelFiles((file,)), names)
        ]
    found = _by_kind(best_sidecars(files, names), names)
    return [(kind, root / each.first) for kind, each in found]


def _by_kind(
    sidecars: Mapping[str, ModelFiles], target: ModelFiles
) -> list[tuple[str, ModelFiles]]:
    """Return sidecars with their kind, the most promising first."""
    found = {
        # Gemma 4 has no heads: what is called mtp there is its assistant.
        ASSISTANT if kind == MTP and _GEMMA in target.base_name else kind: each
        for kind, each in sidecars.items()
    }
    return [(kind, found[kind]) for kind in KINDS if kind in found]
