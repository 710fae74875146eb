"""What `localspec pull` fetches: a target, the drafter that is chosen for it, its projector."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from localspec.cli.pull_member import Member, Members, drafters_of
from localspec.cli.pull_projector import AUTO, NONE, projector_of
from localspec.errors import HubError, LocalspecError, ModelNotFoundError
from localspec.gguf.facts import facts_of
from localspec.gguf.files import NotListedError, bytes_of, files_of
from localspec.hub import removal, store
from localspec.hub.download import bytes_on_disk
from localspec.hub.error_messages import NotShownError, RefusedError
from localspec.hub.listing import (
    BadFileError,
    RemoteModel,
    RemoteRepository,
    list_files,
    look_up,
    require_access,
)
from localspec.hub.reference import Reference, Repository
from localspec.imports import links
from localspec.models import locate
from localspec.models.drafter_choice import of_kind, promising
from localspec.models.heads_elsewhere import heads_elsewhere
from localspec.models.kinds import KINDS, is_kind
from localspec.models.own_drafters import (
    OwnDrafter,
    drafters_elsewhere,
    is_drafter,
    is_no_target,
    listed_drafters,
    own_drafters,
    pulled_with,
    sidecar_drafters,
    with_others,
)
from localspec.models.pair_finder import lacks_heads, names_of, pair_of
from localspec.models.pulled_pairs import add_pulled
from localspec.models.registry import pair_named
from localspec.utils.format import format_bytes

_OFFLINE = "; the Hub could not be asked for anything newer"
_GONE, _HIDDEN = "; the Hub has it no longer", "; the Hub does not show it"


def chosen_members(name: str, wanted: str, mmproj: str = AUTO) -> Members:
    """Return the target and what goes with it as the Hub has them, else as they are on this disk.

    wanted: of the drafter: AUTO, NONE, a kind, a model, or a file of the target's repository.
    mmproj: of the projector: AUTO, NONE, or a file there. Raises HubError if the Hub cannot be
    asked and something is missing, and ModelNotFoundError for what there is not.
    """
    target = _reference(name)
    try:
        return _on_hub(name, target, wanted, mmproj)
    except BadFileError:
        raise
    except HubError:
        if (here := _all_on_disk(name, target, wanted, mmproj)) is None:
            raise
        return Members(here, remark=_OFFLINE)
    except (NotListedError, NotShownError) as error:
        if (here := _all_on_disk(name, target, wanted, mmproj)) is None:
            raise
        remark = _GONE if isinstance(error, NotListedError) else _HIDDEN
        return Members(here, [str(error)], remark)


def remove_outdated(members: Sequence[Member]) -> Iterator[str]:
    """Delete what no download continues, because the Hub has replaced it; yield what to tell."""
    hashes = {each.remote.repository.id: each.remote.hashes for each in members if each.remote}
    for repository, current in hashes.items():
        if freed := removal.remove_outdated(repository, current):
            yield (
                f"{repository}: {format_bytes(freed)} of an interrupted download were deleted, "
                "because the Hub has replaced the file since"
            )


def record_name(name: str, members: Sequence[Member]) -> None:
    """Let a name without a quantisation mean from now on what was fetched under it."""
    wanted, model = _reference(name), members[0].remote
    if isinstance(wanted, Repository) and wanted.quant is None and model:
        store.record_choice(wanted.id, model.names.first)


def record_pair(wanted: str, members: Sequence[Member]) -> str | None:
    """Make a drafter that the user named one of its target's own; say so where that is new."""
    drafter = drafters_of(members) if wanted not in (AUTO, NONE, *KINDS) else ()
    if not drafter or not add_pulled(members[0].paths[0], drafter[0].paths[0]):
        return None
    target = members[0].remote.repository.id if members[0].remote else members[0].name
    return f"{drafter[0].name} drafts for {target} from now on (--draft auto)"


def heads_note(members: Sequence[Member]) -> str | None:
    """Say where the heads are that a fetched target lacks; None if it has a drafter, or heads."""
    if drafters_of(members) or not members[0].paths:
        return None
    try:
        return heads_elsewhere(facts_of(members[0].paths[0]))
    except LocalspecError:
        return None  # no model; the command that loads it explains why


def _on_hub(name: str, target: Reference, wanted: str, mmproj: str) -> Members:
    """Choose among what the Hub lists."""
    if isinstance(target, Path):
        listing, own = None, Member("target", name, None, _on_disk(target))
        known = own_drafters(own.paths[0]) if wanted in (AUTO, *KINDS) else []
    else:
        listing = list_files(target)
        model = listing.model(target.quant)
        own = _here_or_on_hub("target", name, model)
        known = _known(name, target, listing, model)
    chosen = _with_drafter(target, wanted, own, known, listing)
    projector, left_out = projector_of(own, mmproj, listing)
    return replace(chosen, found=[*chosen.found, *projector], notes=[*chosen.notes, *left_out])


def _with_drafter(
    target: Reference,
    wanted: str,
    own: Member,
    known: Sequence[OwnDrafter],
    listing: RemoteRepository | None,
) -> Members:
    """Add the drafter that is wanted."""
    name = own.name
    if wanted == NONE:
        return Members([own])
    if wanted == AUTO and is_no_target(own.path_in_repository):
        return Members([own], [f"no drafter: {name} is {_what(own)}"])
    if wanted == AUTO:
        return _with_best(name, target, own, known, listing)
    if wanted in KINDS:
        chosen = of_kind(known, wanted, name)
        if chosen.reference is None:
            return Members([own], [f"drafter: {chosen.name}"])
        notes = [chosen.objection] if chosen.objection else []
        return Members([own, _member(chosen, listing)], notes)
    return Members([own, _named(wanted, listing)], _of_other_pair(name, target))


def _what(member: Member) -> str:
    if is_drafter(member.path_in_repository):
        return "a drafter itself"
    return "no model that others draft for"


def _here_or_on_hub(role: str, name: str, model: RemoteModel, kind: str | None = None) -> Member:
    """Return a model of the Hub, or the same one as another tool fetched it and it was imported.

    That is told by its name and size; what the Hub's cache has of it comes first.
    """
    if not bytes_on_disk(model) and (path := links.find_repository(model.repository)):
        files = files_of(path)
        if bytes_of(files) == model.size:
            return Member(role, name, None, files, kind)
    return Member(role, name, model, kind=kind)


def _known(
    name: str, target: Repository, listing: RemoteRepository, model: RemoteModel
) -> list[OwnDrafter]:
    """Return the drafters of a target on the Hub: those of models.toml, then its sidecars.

    Before them come those on this disk that the user named for any quantisation of the target.
    """
    pair = pair_of(target, name)
    listed = listed_drafters(pair) if pair else []
    if pair and lacks_heads(target, pair):
        listed = [each for each in listed if each.reference]
    beside = sidecar_drafters(listing.siblings, model.names, listing.id)
    names = names_of(PurePosixPath(model.names.first), None)
    elsewhere = [] if pair else drafters_elsewhere(target, names)
    found = with_others(with_others(listed, beside), elsewhere)
    named = [each for each in pulled_with(target.id, found) if each.file]
    return with_others(named, found)


def _with_best(
    name: str,
    target: Reference,
    own: Member,
    known: Sequence[OwnDrafter],
    listing: RemoteRepository | None,
) -> Members:
    """Add the first drafter that nothing speaks against and that is there."""
    usable, notes = promising(known)
    if pair := _twin(target):
        notes.append(f"{name} has no MTP heads inside; the file with heads is in {pair}")
    for each in usable:
        if each.reference is None:
            return Members([own], [*notes, f"drafter: {each.name}"])
        try:
            drafter = _member(each, listing)
        except (ModelNotFoundError, BadFileError, RefusedError) as error:
            notes.append(f"{each.name} is left out: {error}")
            continue
        notes += [*_of_other_pair(name, target, each), *_other_revision(each, drafter)]
        return Members([own, drafter], notes)
    known_pair = pair_of(target, name)
    unknown = (known_pair and known_pair.no_drafter) or (
        f"none is known for {name}; --drafter names one"
    )
    return Members([own], notes or [f"no drafter: {unknown}"])


def _twin(target: Reference) -> Reference | None:
    """Return the target with heads, for one without."""
    pair = pair_of(target)
    return pair.target if pair and lacks_heads(target, pair) else None


def _of_other_pair(name: str, target: Reference, chosen: OwnDrafter | None = None) -> list[str]:
    """Say which pair a target is of that was not named by its pair. chosen: its drafter."""
    if chosen and chosen.origin:
        return [chosen.origin]
    pair = pair_of(target, name)
    if pair is None or isinstance(target, Path) or lacks_heads(target, pair):
        return []
    if pair_named(name) == pair:
        return []
    return [f"{name} is the target of {pair.name}, whose drafter comes with it"]


def _other_revision(chosen: OwnDrafter, member: Member) -> list[str]:
    """Say that a file is not the one that models.toml describes."""
    listed = chosen.listed
    if listed is None or member.remote is None or not listed.sha256:
        return []
    if member.remote.files[0].sha256 == listed.sha256:
        return []
    return [f"{chosen.reference} has another content than models.toml describes; it may be newer"]


def _member(chosen: OwnDrafter, listing: RemoteRepository | None) -> Member:
    """Return a chosen drafter. listing: of the target's repository, which is not asked again."""
    reference, name = chosen.reference, str(chosen.reference)
    if not isinstance(reference, Repository):
        path = chosen.file or reference
        return Member("drafter", name, None, _on_disk(path) if path else (), chosen.kind)
    return _drafter(reference, name, listing, chosen.kind)


def _drafter(
    reference: Repository, name: str, listing: RemoteRepository | None, kind: str | None = None
) -> Member:
    """Return a drafter of the Hub, or of this disk where the Hub has it no longer."""
    try:
        if listing and reference.id.lower() == listing.id.lower():
            remote = listing.model(reference.quant)
        else:
            remote = look_up(reference)
            if bytes_on_disk(remote) < remote.size:
                require_access(remote)
    except (NotListedError, NotShownError, RefusedError) as error:
        if not (paths := _on_disk(reference)):
            raise
        return Member("drafter", name, None, paths, kind, str(error))
    return _here_or_on_hub("drafter", name, remote, kind)


def _named(wanted: str, listing: RemoteRepository | None) -> Member:
    """Return the drafter that a user names: a model, or a file of the target's repository."""
    is_file = wanted.lower().endswith(".gguf") and not os.path.isfile(wanted)
    files = listing.siblings if listing and is_file else ()
    if listing and any(wanted in (path, path.rpartition("/")[2]) for path in files):
        return Member("drafter", f"{listing.id}:{wanted}", listing.model(wanted))
    reference = _reference(wanted, [AUTO, NONE, *KINDS])
    if isinstance(reference, Repository):
        return _drafter(reference, wanted, listing)
    return Member("drafter", wanted, None, _on_disk(reference))


def _all_on_disk(name: str, target: Reference, wanted: str, mmproj: str) -> list[Member] | None:
    """Return the target and what goes with it from this disk; None where something is not here."""
    if not (paths := _on_disk(target)):
        return None
    own = Member("target", name, None, paths)
    if (drafter := _drafter_on_disk(own, wanted)) is None:
        return None
    try:
        return [own, *drafter, *projector_of(own, mmproj, None)[0]]
    except ModelNotFoundError:
        return None


def _drafter_on_disk(own: Member, wanted: str) -> list[Member] | None:
    """Return the drafter of a target, if there is one; None where it is not here."""
    target = own.paths[0]
    if wanted == NONE or (wanted == AUTO and is_no_target(target.as_posix())):
        return []
    if wanted not in (AUTO, *KINDS):
        file = _on_disk(_reference(wanted, [AUTO, NONE, *KINDS]))
        return [Member("drafter", wanted, None, file)] if file else None
    known = own_drafters(target)
    if wanted == AUTO:
        known = promising(known)[0]
    fitting = [each for each in known if wanted == AUTO or is_kind(each.kind, wanted)]
    here = next((each for each in fitting if each.file), None)
    if here and here.file:
        drafter = Member("drafter", str(here.reference), None, files_of(here.file), here.kind)
        return [drafter] if here.reference else []
    return None if fitting or wanted != AUTO else []


def _reference(name: str, others: Sequence[str] = ()) -> Reference:
    return Path(name) if os.path.isfile(name) else locate.reference_of(name, others)


def _on_disk(reference: Reference) -> tuple[Path, ...]:
    """Return the files of a model that is complete on this disk (several if split), else none."""
    if isinstance(reference, Repository):
        first = locate.find_meant(reference)
        return files_of(first) if first else ()
    if not os.path.isfile(reference):
        raise ModelNotFoundError(f"there is no model file {reference}; check the path")
    return files_of(reference)
