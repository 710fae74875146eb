"""Drafter loader: finds and loads the drafters of a draft request.

`find_drafters` finds the files of the request, and reads and checks their headers. `plan_drafters`
plans the memory with them, and `load_drafters` loads them.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.drafters.draft_model import DraftModel
from localspec.drafters.eagle3 import Eagle3
from localspec.drafters.model_free import model_free_drafter
from localspec.drafters.spec import NAMES, DrafterSpec, DraftRequest
from localspec.drafters.suffix_store import PastTexts
from localspec.errors import DrafterMismatchError, InvalidValueError, LocalspecError
from localspec.gguf.check import check_drafter
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.heads import EAGLE3, Head
from localspec.gguf.reader import Header
from localspec.llama.model import Model
from localspec.llama.rollback import SNAPSHOTS, Rollback
from localspec.llama.sequence import KVSequence
from localspec.loading.config import RuntimeConfig
from localspec.loading.drafter_set import DrafterSet, SequenceDrafter
from localspec.loading.head_check import checked_head, require_last_rows
from localspec.loading.kv_precision import choose_kv_type
from localspec.loading.load_check import require_loadable
from localspec.loading.places import place_beside, sequence_beside
from localspec.memory.plan import MemoryPlan, MemoryRequest, memory_plan
from localspec.models import locate, pair_finder
from localspec.models.vocabulary_match import mismatch
from localspec.speculation.drafter import Drafter

_SUFFIX = DrafterSpec("suffix")


@dataclass(frozen=True, slots=True)
class FoundDrafter:
    """A drafter whose files exist.

    facts: of a draft model's file; None for other drafters. head: what a head reads of its target.
    """

    spec: DrafterSpec
    facts: Facts | None = None
    head: Head | None = None


@dataclass(frozen=True, slots=True)
class FoundDrafters:
    """The drafters of a request for one target, before any model is loaded.

    reason: why there are no drafters, or why the target's own drafter is missing. optional: whether
    the draft model was added by `auto`, so that it may be left out.
    """

    request: DraftRequest
    drafters: tuple[FoundDrafter, ...] = ()
    reason: str | None = None
    optional: bool = False

    @property
    def branches(self) -> int:
        """The most branches of a draft; 1 if all drafts are chains."""
        shapes = [each.spec.custom.traits.branches for each in self.drafters if each.spec.custom]
        return max([1, *shapes])

    @property
    def models(self) -> tuple[Facts, ...]:
        """The facts of all draft models."""
        return tuple(each.facts for each in self.drafters if each.facts)

    def without_models(self, reason: str) -> "FoundDrafters":
        """Leave out the draft model that `auto` added."""
        kept = tuple(each for each in self.drafters if not each.facts)
        return replace(self, drafters=kept, reason=reason, optional=False)


def find_drafters(request: DraftRequest, target: Path) -> FoundDrafters:
    """Find all drafters of a request; `auto` adds suffix, and the target's own drafter if known.

    Raises ModelNotFoundError or ModelLoadError for a model that was named.
    """
    if request.is_off:
        return FoundDrafters(request, reason="drafting was turned off")
    found = FoundDrafters(request, tuple(_found(spec, target) for spec in request.specs))
    if not request.auto:
        return found
    if _SUFFIX.kind not in (spec.name for spec in request.specs):
        found = replace(found, drafters=(*found.drafters, FoundDrafter(_SUFFIX)))
    return found if found.models else _with_own_drafter(found, target)


def plan_drafters(
    request: DraftRequest, target: Facts, runtime: RuntimeConfig
) -> tuple[FoundDrafters, MemoryPlan]:
    """Find the drafters, and plan the memory of all models and caches; nothing is loaded.

    A draft model that `auto` added is left out if it does not fit. Raises ModelLoadError if the
    target or a named drafter does not fit.
    """
    found = find_drafters(request, target.files[0])
    memory = MemoryRequest(
        target=target,
        context=runtime.context_size(target.header),
        fixed_context=runtime.context is not None,
        drafters=found.models,
        optional_drafter=found.optional,
        kv_type=runtime.kv_type,
        drafter_kv_type=runtime.drafter_kv_type,
        gpu_layers=runtime.gpu_layers,
        flash_attention=runtime.flash,
        # Snapshots make drafts cheaper and plain passes a little slower, so they are used only for
        # named drafters; otherwise checkpoints are used.
        snapshots=0 if request.auto or request.is_off else SNAPSHOTS,
        branches=found.branches - 1,
    )
    plan = memory_plan(memory)
    return found.without_models(plan.no_drafter) if plan.no_drafter else found, plan


def _found(spec: DrafterSpec, target: Path) -> FoundDrafter:
    if spec.model is None:
        return FoundDrafter(spec)
    return _checked(spec, locate.locate(spec.model, NAMES), target)


def _checked(spec: DrafterSpec, path: Path, target: Path) -> FoundDrafter:
    header = check_drafter(path)
    if header.architecture != EAGLE3:
        require_loadable(path, header)
        return FoundDrafter(spec, facts_of(path, header))
    facts = facts_of(path, header)
    return FoundDrafter(replace(spec, kind=EAGLE3), facts, checked_head(facts_of(target), facts))


def _with_own_drafter(found: FoundDrafters, target: Path) -> FoundDrafters:
    """Add the known drafter of the target; if that fails, `reason` says why."""
    pair = pair_finder.pair_of(target)
    if pair is None or pair.drafter is None:
        because = pair.no_drafter if pair else None
        return replace(found, reason=because or f"no drafter is known for {target.name}")
    try:
        path = locate.require_file(pair.drafter, pair.name)
        own = _checked(DrafterSpec("draft-model", model=path), path, target)
    except LocalspecError as error:
        return replace(found, reason=f"{pair.drafter} cannot be used: {error}")
    return replace(found, drafters=(*found.drafters, own), optional=True)


@dataclass(frozen=True, slots=True)
class LoadedDrafter:
    """A drafter with its model, if it has one; each text gets its own cache of the model.

    header: of the model's file. kv_type: the type of the keys and values in its caches. head: what
    a head reads of its target.
    """

    spec: DrafterSpec
    model: Model | None = None
    header: Header | None = None
    kv_type: str = "f16"
    head: Head | None = None

    def for_sequence(
        self,
        target: KVSequence,
        runtime: RuntimeConfig,
        past: PastTexts | None,
        beside: KVSequence | None = None,
    ) -> SequenceDrafter:
        """Make a drafter for the text in the target's cache.

        beside: another text in a cache of the draft model, which takes this text too. Raises
        DrafterMismatchError if the draft model's cache cannot be rolled back.
        """
        if self.spec.custom is not None:
            return SequenceDrafter(self.spec.custom)
        if self.model is None or self.header is None:
            return SequenceDrafter(model_free_drafter(self.spec.kind, past.load() if past else ()))
        sequence = self._sequence(self.model, self.header, target, runtime, beside)
        if sequence.rollback is Rollback.NOTHING:
            sequence.close()
            raise DrafterMismatchError(
                f"{self.model.path.name} cannot draft: its cache can forget "
                f"{sequence.rollback.value}; use --draft suffix"
            )
        name, n_vocab = self.model.path.stem, target.n_vocab
        drafter: Drafter = DraftModel(sequence, name=name, n_vocab=n_vocab)
        if self.head:
            drafter = Eagle3(sequence, name=name, n_vocab=n_vocab, layers=self.head.layers)
        return SequenceDrafter(drafter, sequence, self.kv_type)

    def _sequence(
        self,
        model: Model,
        header: Header,
        target: KVSequence,
        runtime: RuntimeConfig,
        beside: KVSequence | None,
    ) -> KVSequence:
        """Make room for a text in a cache of the model."""
        if self.head:
            # A head's cache is closed with the cache of its target.
            if beside and beside.context in target.context.heads:
                place = place_beside(beside, runtime, header, self.kv_type)
                if place:
                    return place
            return runtime.head_context_for(model, header, self.head, target, self.kv_type)
        if beside is None:
            return runtime.context_for(model, header, target.n_ctx, self.kv_type)
        return sequence_beside(beside, runtime, header, self.kv_type).sequence

    def close(self) -> None:
        """Free the model; close its caches before."""
        if self.model:
            self.model.close()


@dataclass(frozen=True, slots=True)
class LoadedDrafters:
    """The loaded drafters of one target.

    reason: as in DrafterSet. past: the store of earlier texts, if they are kept. notes: the
    requests that could not be met in full, one line each.
    """

    drafters: tuple[LoadedDrafter, ...] = ()
    reason: str | None = None
    past: PastTexts | None = None
    notes: tuple[str, ...] = ()

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
        members: list[SequenceDrafter] = []
        with ExitStack() as undo:
            for each in self.drafters:
                sequence = beside.of_model(each.model) if each.model else None
                members.append(each.for_sequence(target, runtime, self.past, sequence))
                undo.callback(members[-1].close)
            undo.pop_all()
        return DrafterSet(_cheap_first(members), self.reason, self.past)

    def close(self) -> None:
        """Free the models; close their caches before."""
        for each in self.drafters:
            each.close()


def load_drafters(
    found: FoundDrafters,
    target: KVSequence,
    runtime: RuntimeConfig,
    past: PastTexts | None = None,
    *,
    kv_type_fits: bool = False,
) -> tuple[LoadedDrafters, DrafterSet]:
    """Load all drafters or none, and make the drafter set for the text in `target`.

    kv_type_fits: whether only the runtime's drafter_kv_type fits in memory. Otherwise f16 replaces
    a type that makes drafts worse. Raises DrafterMismatchError for a named drafter that cannot
    draft for this target.
    """
    if found.drafters and target.rollback is Rollback.NOTHING:
        why = f"this model's cache can forget {target.rollback.value}"
        if not found.request.is_only_auto:
            raise DrafterMismatchError(f"{why}; use --draft none")
        found = FoundDrafters(found.request, reason=why)
    reason, notes = found.reason, list[str]()
    loaded: list[LoadedDrafter] = []
    members: list[SequenceDrafter] = []
    with ExitStack() as undo:
        for each in found.drafters:
            try:
                with ExitStack() as undo_each:
                    ready, note = _load(each, target, runtime, kv_type_fits=kv_type_fits)
                    undo_each.callback(ready.close)
                    member = ready.for_sequence(target, runtime, past)
                    undo_each.callback(member.close)
                    undo.push(undo_each.pop_all())
            except LocalspecError as error:
                if not (found.optional and each.facts):
                    raise
                reason = f"{each.facts.files[0]} cannot be used: {error}"
                continue
            loaded.append(ready)
            members.append(member)
            notes += [note] if note else []
        ordered = _cheap_first(members)
        undo.pop_all()
    every = LoadedDrafters(tuple(loaded), reason, past, tuple(notes))
    return every, DrafterSet(ordered, reason, past)


def _load(
    found: FoundDrafter, target: KVSequence, runtime: RuntimeConfig, *, kv_type_fits: bool
) -> tuple[LoadedDrafter, str | None]:
    """Load one drafter; return it, and a note for the user or None."""
    if found.facts is None:
        return LoadedDrafter(found.spec), None
    path, header = found.facts.files[0], found.facts.header
    with ExitStack() as undo:
        model = Model(path, gpu_layers=runtime.gpu_layers)
        undo.callback(model.close)
        if differs := mismatch(target.model, model):
            raise DrafterMismatchError(
                f"{path.name} cannot draft for {target.model.path.name}: {differs}; "
                "use a drafter of the same family, or --draft suffix"
            )
        if found.head:
            require_last_rows(target, path.name, found.head)
        kv_type, note = runtime.drafter_kv_type, None
        if found.head is None and not kv_type_fits:
            kv_type, note = choose_kv_type(model, runtime, header, kv_type)
        undo.pop_all()
    header = header.without_vocabulary()
    return LoadedDrafter(found.spec, model, header, kv_type, found.head), note


def _cheap_first(members: list[SequenceDrafter]) -> tuple[SequenceDrafter, ...]:
    """Order the drafters, cheap ones first. Raises InvalidValueError if two have the same name."""
    names: set[str] = set()
    for name in (member.drafter.name for member in members):
        if name in names:
            raise InvalidValueError(f"draft names two drafters called {name!r}; rename one")
        names.add(name)
    return tuple(sorted(members, key=lambda member: not member.drafter.traits.cheap))
