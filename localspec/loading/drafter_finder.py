"""Drafter finder: finds the drafters of a draft request, and reads and checks their headers."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.drafters.spec import NAMES, PARD, DrafterSpec, DraftRequest
from localspec.errors import DrafterMismatchError, LocalspecError, ModelNotFoundError
from localspec.gguf.check import check_drafter
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.heads import MTP, Head, kind_of
from localspec.gguf.mask_token import mask_token
from localspec.gguf.matrix_heads import KINDS as MATRIX_KINDS
from localspec.gguf.matrix_heads import MatrixHead
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.loading.acceptance_check import LEAST_RATE, remembered_rate
from localspec.loading.head_check import checked_head
from localspec.loading.load_check import require_loadable
from localspec.loading.matrix_heads import checked_matrix_head
from localspec.models import heads_elsewhere, locate, own_drafters, pair_finder
from localspec.models.own_drafters import OwnDrafter
from localspec.models.vocabulary_match import Vocabulary, mismatch, translates
from localspec.utils.option_names import option, options

_SUFFIX = DrafterSpec("suffix")


class _UnacceptedError(DrafterMismatchError):
    """A head of whose tokens the target accepts next to none."""


@dataclass(frozen=True, slots=True)
class FoundDrafter:
    """A drafter whose files exist.

    facts: of a draft model's file; None for other drafters. head: what a head reads of its target.
    If the heads are inside the target, the facts are the target's. matrices: what a
    head is that llama.cpp does not run. origin: as in OwnDrafter.
    """

    spec: DrafterSpec
    facts: Facts | None = None
    head: Head | None = None
    matrices: MatrixHead | None = None
    origin: str | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its model or heads."""
        return tuple(self.facts.files) if self.facts else ()


@dataclass(frozen=True, slots=True)
class FoundDrafters:
    """The drafters of a request for one target, before any model is loaded.

    reason: why there are no drafters, or why the target's own drafter is missing. optional: whether
    the draft model was added by `auto`, so that it may be left out. notes: one line for each head
    that is left out because its target accepts too little of it, where another drafter drafts.
    """

    request: DraftRequest
    drafters: tuple[FoundDrafter, ...] = ()
    reason: str | None = None
    optional: bool = False
    notes: tuple[str, ...] = ()

    @property
    def branches(self) -> int:
        """The most branches of a draft; 1 if all drafts are chains."""
        shapes = [each.spec.custom.traits.branches for each in self.drafters if each.spec.custom]
        return max([1, *shapes])

    @property
    def inside(self) -> bool:
        """Whether the heads inside the target draft."""
        return any(each.spec.is_inside for each in self.drafters)

    @property
    def has_heads(self) -> bool:
        """Whether heads of any kind draft, inside the target or beside it."""
        return self.inside or any(each.head or each.matrices for each in self.drafters)

    @property
    def models(self) -> tuple[Facts, ...]:
        """The facts of all draft models and heads that run in a cache of their own."""
        return tuple(each.facts for each in self.drafters if each.facts and not each.matrices)

    @property
    def matrix_heads(self) -> tuple[Facts, ...]:
        """The facts of heads that have no cache."""
        return tuple(each.facts for each in self.drafters if each.facts and each.matrices)

    def without_models(self, reason: str) -> "FoundDrafters":
        """Leave out the draft model that `auto` added."""
        kept = tuple(each for each in self.drafters if not each.facts)
        return replace(self, drafters=kept, reason=reason, optional=False)


def find_drafters(request: DraftRequest, target: Path) -> FoundDrafters:
    """Find all drafters of a request; `auto` adds suffix, and the target's own drafter if known.

    Heads inside the target are its own drafter.

    Raises ModelNotFoundError or ModelLoadError for a model that was named, and
    DrafterMismatchError for the name of the target.
    """
    if request.is_off:
        return FoundDrafters(request, reason="drafting was turned off")
    found = FoundDrafters(request, tuple(_found(spec, target) for spec in request.specs))
    if not request.auto:
        return found
    if _SUFFIX.kind not in (spec.name for spec in request.specs):
        found = replace(found, drafters=(*found.drafters, FoundDrafter(_SUFFIX)))
    return found if found.models or found.matrix_heads else with_own_drafter(found, target)


def require_drafters(request: DraftRequest, target: Path) -> None:
    """Raise as `load` does for a named drafter that does not fit, as far as headers tell."""
    vocabulary = HeaderVocabulary(facts_of(target).header)
    for each in find_drafters(replace(request, auto=False), target).drafters:
        own = each.facts and HeaderVocabulary(each.facts.header)
        if own and own.n_vocab:  # heads have none where they draft their target's tokens
            is_translated(each, target, vocabulary, own)


def is_translated(
    found: FoundDrafter, target: Path, vocabulary: Vocabulary, own: Vocabulary
) -> bool:
    """Whether a drafter has another vocabulary than its target, and its drafts are spelled anew.

    Raises DrafterMismatchError where they cannot be.
    """
    differs = mismatch(vocabulary, own, head=found.head is not None)
    # A mask token is one of the drafter's own, and a head writes no text.
    if differs and (found.head or found.spec.kind == PARD or not translates(vocabulary, own)):
        raise DrafterMismatchError(
            f"{found.files[0].name} cannot draft for {target.name}: {differs}; "
            f"use a drafter of the same family, or {options(draft=_SUFFIX.kind)}"
        )
    return differs is not None


def _found(spec: DrafterSpec, target: Path) -> FoundDrafter:
    if spec.is_inside:
        return _inside(target)
    if spec.model is None:
        return FoundDrafter(spec)
    path = _located(spec.model, target)
    is_path = os.path.exists(spec.model)
    # Whoever types a path twice means it.
    named_twice = is_path and os.path.abspath(path) == os.path.abspath(target)
    if spec.kind != PARD and not named_twice:
        own_drafters.require_another(str(spec.model), path, target)
    return checked_drafter(spec, path, target)


def _located(name: str | Path, target: Path) -> Path:
    """The file of a named drafter, by what lines call the target's own, too.

    Raises ModelNotFoundError.
    """
    try:
        return locate.locate(name, NAMES)
    except ModelNotFoundError:
        own = own_drafters.own_drafter_called(target, str(name))
        if own is None:
            raise
    if own.file is None:
        raise ModelNotFoundError(own.missing)
    return own.file


def _inside(target: Path) -> FoundDrafter:
    """The heads inside the target. Raises DrafterMismatchError if there are none that draft."""
    facts = facts_of(target)
    if not facts.has_mtp:
        raise DrafterMismatchError(heads_elsewhere.missing(facts))
    return FoundDrafter(DrafterSpec(MTP), facts, checked_head(facts, facts))


def checked_drafter(spec: DrafterSpec, path: Path, target: Path) -> FoundDrafter:
    """Check a drafter's file by its header, and try it out once in a child process.

    Raises ModelLoadError or DrafterMismatchError.
    """
    header = check_drafter(path)
    facts, kind = facts_of(path, header), kind_of(header)
    if spec.kind != PARD and path.samefile(target) and facts.has_mtp:
        return _inside(target)
    if kind is None:
        if spec.kind == PARD:
            spec = replace(spec, mask_token=mask_token(path, header, spec.mask_token))
        require_loadable(path, header)
        return FoundDrafter(spec, facts)
    if spec.kind == PARD:
        raise DrafterMismatchError(
            f"{path.name} is a head of kind {kind}, not a PARD model; name it without pard:"
        )
    spec = replace(spec, kind=kind)
    if header.architecture in MATRIX_KINDS:
        return FoundDrafter(spec, facts, matrices=checked_matrix_head(facts_of(target), facts))
    return FoundDrafter(spec, facts, checked_head(facts_of(target), facts))


def with_own_drafter(
    found: FoundDrafters, target: Path, unfit: Collection[Path] = ()
) -> FoundDrafters:
    """Add the first of the target's own drafters that can be used; else `reason` says why not.

    unfit: files that do not fit in memory.
    """
    own, problems = own_drafter(target, unfit)
    if own:
        notes = tuple(str(each) for each in problems if isinstance(each, _UnacceptedError))
        return replace(
            found, drafters=(*found.drafters, own), reason=None, optional=True, notes=notes
        )
    pair = pair_finder.pair_of(target)
    unknown = (pair and pair.no_drafter) or f"no drafter is known for {target.name}"
    return replace(found, reason="; ".join(map(str, problems)) or unknown)


def own_drafter(
    target: Path, without: Collection[Path], *, inside: bool = True
) -> tuple[FoundDrafter | None, list[LocalspecError]]:
    """Return the first of the target's own drafters that can be used, and why others cannot.

    without: files that cannot be used. inside: whether heads inside the target can be: they are
    loaded with it.
    """
    problems: list[LocalspecError] = []
    for each in own_drafters.own_drafters(target):
        if each.reference is None and not inside:
            continue
        try:
            own = _usable(each, target)
        except LocalspecError as error:
            problems.append(error)
            continue
        if own.files and own.files[0] not in without:
            return own, problems
    return None, problems


def _usable(own: OwnDrafter, target: Path) -> FoundDrafter:
    """Check a drafter of the target's own. Raises LocalspecError where it cannot draft."""
    if own.objection:
        raise DrafterMismatchError(own.objection)
    if own.file is None:
        raise ModelNotFoundError(own.missing)
    rate = remembered_rate(target, own.file)
    if rate is not None and rate < LEAST_RATE:
        raise _UnacceptedError(
            f"{own.name} is left out: {target.name} accepted {rate:.0%} of its tokens at its first "
            f"use; name it with {option('draft')} to use it anyway"
        )
    kind = own.kind if own.kind == PARD else "draft-model"
    try:
        found = checked_drafter(DrafterSpec(kind, model=own.file), own.file, target)
        return replace(found, origin=own.origin)
    except LocalspecError as error:
        what = own.typed if own.reference else "the heads inside"
        raise DrafterMismatchError(f"{what} cannot be used: {error}") from error
