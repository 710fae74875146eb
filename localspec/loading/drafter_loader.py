"""Drafter loader: loads the drafters that were found for a target."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from localspec.drafters.spec import PARD
from localspec.drafters.translation import Translation
from localspec.errors import (
    DeviceError,
    DrafterMismatchError,
    InvalidValueError,
    LocalspecError,
    WorkerError,
)
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.heads import MTP_KINDS, Head
from localspec.gguf.mask_token import is_pard
from localspec.gguf.reader import Header
from localspec.llama.model import Model
from localspec.llama.rope import RopeScaling, position_table
from localspec.llama.sequence import KVSequence
from localspec.loading import drawing_ahead
from localspec.loading.acceptance_check import LEAST_RATE, acceptance_rate
from localspec.loading.config import RuntimeConfig
from localspec.loading.copy_sources import CopySources
from localspec.loading.drafter_finder import FoundDrafter, FoundDrafters, is_translated, own_drafter
from localspec.loading.drafter_plan import shortage
from localspec.loading.drafter_set import DrafterSet, SequenceDrafter
from localspec.loading.head_check import require_last_rows
from localspec.loading.kv_precision import choose_kv_type
from localspec.loading.loaded_drafter import LoadedDrafter
from localspec.loading.matrix_heads import LoadedMatrixHead, require_output_rows
from localspec.models.trained_drafters import is_trained_for
from localspec.models.vocabulary_match import THROUGH_TEXT_LINE
from localspec.utils.option_names import options


@dataclass(frozen=True, slots=True)
class LoadedDrafters:
    """The loaded drafters of one target.

    reason: as in DrafterSet. sources: what they may copy from. notes: the requests that could not
    be met in full, one line each.
    """

    drafters: tuple[LoadedDrafter, ...] = ()
    reason: str | None = None
    sources: CopySources = field(default_factory=CopySources)
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> str | None:
        """Which drafter is on a machine that is gone, and why, in words; None if none is."""
        for each in self.drafters:
            try:
                if each.model:
                    each.model.require_workers()
            except WorkerError as error:
                return f"{each.model.path.stem} drafts no more: {error}" if each.model else None
        return None

    def another_set(
        self, target: KVSequence, runtime: RuntimeConfig, beside: DrafterSet
    ) -> DrafterSet:
        """Make a drafter set for another text of the same target, in the caches of `beside`.

        Raises InvalidValueError for a Drafter object of the caller, which follows only one text.
        """
        for each in self.drafters:
            if each.spec.custom is not None:
                raise InvalidValueError(
                    f"drafter {each.spec.custom.name!r} is an object of yours and follows "
                    "one text; load another engine with another one of it"
                )
        members, lost = list[SequenceDrafter](), list[str]()
        with ExitStack() as undo:
            for each in [each for each in self.drafters if not each.is_lost]:
                sequence = beside.of_model(each.model) if each.model else None
                try:
                    members.append(each.for_sequence(target, runtime, self.sources, sequence))
                except DeviceError as error:  # memory is too small for what was lost with a device
                    name = each.model.path.stem if each.model else each.spec.kind
                    lost.append(f"{name} is left out: {error}")
                    continue
                except WorkerError:
                    if each.is_lost:
                        continue
                    raise
                undo.callback(members[-1].close)
            undo.pop_all()
        reason = "; ".join(filter(None, [self.reason, *lost])) or None
        return _drafter_set(target, _cheap_first(members), reason, self.sources)

    def close(self) -> None:
        """Free the models; close their caches before."""
        for each in self.drafters:
            each.close()


def load_drafters(
    found: FoundDrafters,
    target: KVSequence,
    runtime: RuntimeConfig,
    sources: CopySources | None = None,
    *,
    kv_type_fits: bool = False,
) -> tuple[LoadedDrafters, DrafterSet]:
    """Load all drafters or none, and make the drafter set for the text in `target`.

    sources: what they may copy from besides their texts; None: nothing yet. kv_type_fits: whether
    only the runtime's drafter_kv_type fits in memory. Otherwise f16 replaces a type that makes
    drafts worse. Raises DrafterMismatchError for a named drafter that cannot draft for this target.
    """
    sources = sources or CopySources()
    if found.drafters and not target.scores_drafts:
        why = f"this model's cache can forget {target.rollback.value}"
        if not found.request.is_only_auto:
            raise DrafterMismatchError(f"{why}; use {options(draft='none')}")
        found = FoundDrafters(found.request, reason=why)
    reason, notes, failures = found.reason, [*found.notes], dict[Path, str]()
    loaded: list[LoadedDrafter] = []
    members: list[SequenceDrafter] = []
    waiting = list(found.drafters)
    with ExitStack() as undo:
        while waiting:
            each = waiting.pop(0)
            optional = found.optional and each.facts is not None
            try:
                with ExitStack() as undo_each:
                    ready, note = _load(each, target, runtime, kv_type_fits=kv_type_fits)
                    undo_each.callback(ready.close)
                    member = ready.for_sequence(target, runtime, sources)
                    undo_each.callback(member.close)
                    foreign = _foreign(each, target, member, optional=optional)
                    undo.push(undo_each.pop_all())
            except LocalspecError as error:
                if not optional or each.facts is None:
                    raise
                file = each.facts.files[0]
                failures[file] = f"{file} cannot be used: {error}"
                waiting += _next_own_drafter(target, runtime, failures)
                continue
            loaded.append(ready)
            members.append(member)
            ahead = member.not_ahead and drawing_ahead.note(member.drafter.name, member.not_ahead)
            more = each.origin, note, foreign, _shorter(ready, target, member), ahead
            notes += [each for each in more if each]
            if optional and failures:
                notes.append(
                    "; ".join([*failures.values(), f"{member.drafter.name} drafts instead"])
                )
                failures.clear()
        ordered = _cheap_first(members)
        undo.pop_all()
    reason = "; ".join(failures.values()) or reason
    notes += filter(None, [sources.note([each.spec.kind for each in loaded])])
    every = LoadedDrafters(tuple(loaded), reason, sources, tuple(notes))
    return every, _drafter_set(target, ordered, reason, sources)


def _drafter_set(
    target: KVSequence,
    members: tuple[SequenceDrafter, ...],
    reason: str | None,
    sources: CopySources,
) -> DrafterSet:
    """Make the set; the target hands out only the hidden rows that its drafters read."""
    layers = {layer for each in members for layer in each.drafter.traits.reads_hidden}
    target.context.hidden.disable_all_but(layers)
    return DrafterSet(members, reason, sources.earlier)


def _next_own_drafter(
    target: KVSequence, runtime: RuntimeConfig, failures: dict[Path, str]
) -> list[FoundDrafter]:
    """The next of the target's own drafters that fits in memory, if there is one.

    failures: why files cannot be used; those that do not fit are added.
    """
    path, inside = target.model.path, target.model.mtp
    while own := own_drafter(path, [*failures], inside=inside)[0]:
        file = own.files[0]
        short = shortage(own, facts_of(path), target.n_ctx, runtime)
        if not short:
            return [own]
        failures[file] = f"{file} is left out: it {short}"
    return []


def _load(
    found: FoundDrafter, target: KVSequence, runtime: RuntimeConfig, *, kv_type_fits: bool
) -> tuple[LoadedDrafter, str | None]:
    """Load one drafter; return it, and a note for the user or None."""
    if found.facts is None:
        return LoadedDrafter(found.spec), None
    path, header = found.facts.files[0], found.facts.header
    _require_positions(path, header, target)
    if found.matrices:
        require_output_rows(target, path.name, found.matrices)
        threads = runtime.threads_for(found.facts.size)
        of = facts_of(target.model.path)
        return LoadedDrafter(
            found.spec, matrices=LoadedMatrixHead(path, found.matrices, of, threads)
        ), None
    inside = found.spec.is_inside
    with ExitStack() as undo:
        model = target.model if inside else _model(found.facts, runtime, found.head)
        if not inside:
            undo.callback(model.close)
        translation = None
        if is_translated(found, target.model.path, target.model, model):
            translation = Translation(target.model, model)
        if found.head:
            require_last_rows(target, path.name, found.head)
        kv_type, note = runtime.drafter_kv_type, None
        if found.spec.kind != PARD and is_pard(header):
            parallel = options(draft=f"pard:{path.name}")
            note = f"{path.name} may draft all its tokens in one pass: {parallel}"
        if found.head is None and not kv_type_fits:
            kv_type, less = choose_kv_type(model, runtime, header, kv_type)
            note = less or note
        header = header.without_vocabulary()
        rope, unscaled = _rope(found, facts_of(target.model.path).header, target, runtime)
        note = "; ".join(filter(None, [note, unscaled])) or None
        if translation:
            note = "; ".join(filter(None, [f"{path.name}: {THROUGH_TEXT_LINE}", note]))
        undo.pop_all()
    return LoadedDrafter(
        found.spec, model, header, kv_type, found.head, inside, translation=translation, rope=rope
    ), note


def _rope(
    found: FoundDrafter, target: Header, text: KVSequence, runtime: RuntimeConfig
) -> tuple[RopeScaling, str | None]:
    """How a drafter rotates, and a note where that is as in its file and its target is scaled.

    text: of the target.
    """
    if found.facts is None or found.spec.is_inside:
        return runtime.rope, None
    header, scale = found.facts.header, runtime.draft_rope_scale
    rope, made_for = runtime.rope.for_drafter(target, header, scale), header.context_length
    if rope or not runtime.rope or not made_for or made_for >= text.n_ctx:
        return rope, None
    remedy = options(draft_rope_scale=ceil(text.n_ctx / made_for))
    return rope, (
        f"{found.facts.files[0].name} is not scaled with its target, as it was made for other "
        f"contexts or rotations: it guesses worse behind {made_for:,} tokens; {remedy} scales it"
    )


def _model(facts: Facts, runtime: RuntimeConfig, head: Head | None) -> Model:
    layers = facts.header.number("block_count") or 0
    place = runtime.place_of_drafter(head).for_layers(layers)
    mtp = head is not None and head.kind in MTP_KINDS
    return Model(facts.files[0], place, mtp=mtp, load_mode=runtime.load_mode)


def _require_positions(path: Path, header: Header, target: KVSequence) -> None:
    """Raise DrafterMismatchError for a table of positions that the context goes beyond."""
    length = position_table(header)
    if length and length < target.n_ctx:
        raise DrafterMismatchError(
            f"{path.name} has positions for {length:,} tokens, and the context holds "
            f"{target.n_ctx:,}; take another drafter, or {options(context=length)}"
        )


def _foreign(
    found: FoundDrafter, target: KVSequence, member: SequenceDrafter, *, optional: bool
) -> str | None:
    """A note about a head whose tokens this target does not accept, or None.

    Raises DrafterMismatchError for an optional one.
    """
    # Heads inside a target were made for it, and so were those that were trained here for it.
    is_exempt = (
        found.spec.is_inside
        or not (found.facts and (found.head or found.matrices))
        or is_trained_for(target.model.path, found.facts.header)
    )
    rate = None if is_exempt else acceptance_rate(target, member)
    if rate is None or rate >= LEAST_RATE:
        return None
    why = (
        f"{member.drafter.name} seems to be made for another model than "
        f"{target.model.path.name}, which accepts {rate:.0%} of its tokens"
    )
    if optional:
        raise DrafterMismatchError(why)
    return f"{why}; {options(draft='suffix')} may be faster"


def _shorter(loaded: LoadedDrafter, target: KVSequence, member: SequenceDrafter) -> str | None:
    """A note about a drafter whose cache takes less text than its target's, or None."""
    if loaded.translation is None or member.sequence is None:
        return None
    tokens = int(member.sequence.n_ctx / loaded.translation.lengthening)
    if tokens >= target.n_ctx:
        return None
    return (
        f"{member.drafter.name} reads texts of up to about {tokens:,} of the target's "
        f"{target.n_ctx:,} tokens of context; behind longer prompts it drafts from their end alone"
    )


def _cheap_first(members: list[SequenceDrafter]) -> tuple[SequenceDrafter, ...]:
    """Order the drafters, cheap ones first. Raises InvalidValueError if two have the same name."""
    names: set[str] = set()
    for name in (member.drafter.name for member in members):
        if name in names:
            raise InvalidValueError(f"draft names two drafters called {name!r}; rename one")
        names.add(name)
    return tuple(sorted(members, key=lambda member: not member.drafter.traits.cheap))
