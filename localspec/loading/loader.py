"""Loader: loads a target and its drafters, with the caches of a first text."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import CostProfile
from localspec.control.policies import Policies
from localspec.drafters.spec import DraftRequest
from localspec.drafters.suffix_store import PastTexts
from localspec.errors import OutOfMemoryError
from localspec.generation_config import GenerationConfig
from localspec.gguf.lora import LoraFile, unused_note
from localspec.gguf.reader import Header
from localspec.llama import extra_buffers, unfit_gpus
from localspec.llama.batch_invariance import InvariantWidth
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.loading import equal_digits, learnt_rates
from localspec.loading.calibration import calibrate, forget, keep
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.loading.copy_sources import copy_sources
from localspec.loading.drafter_finder import find_drafters
from localspec.loading.drafter_loader import LoadedDrafters, load_drafters
from localspec.loading.drafter_plan import shareable
from localspec.loading.drafter_set import DrafterSet
from localspec.loading.first_guesses import first_guesses
from localspec.loading.invariant_widths import reproducible_note, usual_widths
from localspec.loading.lazy_projector import LazyProjector
from localspec.loading.load_plan import PlannedLoad, load_plans, never_shares
from localspec.loading.placement_notes import cache_note, drafter_note
from localspec.loading.places import Place, sequence_beside
from localspec.loading.threads import ThreadWatch, fit_threads, known_threads, thread_watch
from localspec.models.pair_finder import sampling_pair
from localspec.sampling.params import SamplingParams
from localspec.sampling.recommended import left_out
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.busy_cores import BUSY, BusyCores
from localspec.utils.last_use import note_use
from localspec.utils.progress import report_progress

_NO_ROOM = (
    "this text has a cache of its own, and its passes share nothing with those of the others: one "
    "cache of all texts"
)

_LESS = "memory ran out while loading, so less was planned: "
_UNLOCKED = (
    "the system does not let {} be locked in memory, or not all of it, and may move parts to the "
    "disk; `ulimit -l` is the limit"
)
# Behind more tokens than this, passes take much longer than behind a usual text.
_LONG_TEXT = 2048


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """A target and its drafters, loaded, with the caches of one text.

    target: the target's cache. header: of the target's file.
    runtime: the configuration, reduced where memory did not suffice.
    drafters: the loaded drafters. drafter_set: the drafters of this text.
    costs: the measured profile, or None. policies: of this text.
    target_notes: the requests that could not be met in full whatever drafts, one line each.
    usual, widths: the width of passes for a reproducible text without a depth of its own, and those
    by depth, once they are known.
    digits: in which passes the target's logits have equal bits, if that was tried.
    threads_note: why the number of threads is not the usual one, or no longer what it was.
    watch: tells when the number may change; None where it never does.
    apart: why this text has caches of its own, and shares no decode with others, if it does not.
    asked: what the user wants, as far as it was said; None: not known. adapters: of the target.
    cores: what other programs have used since the last text began. listed: the sampling that
    models.toml recommends for the target.

    The engine frees the target's model after all its caches.
    """

    target: KVSequence
    header: Header
    runtime: RuntimeConfig
    drafters: LoadedDrafters
    drafter_set: DrafterSet
    costs: CostProfile | None
    policies: Policies
    target_notes: Sequence[str] = ()
    usual: InvariantWidth | None = None
    widths: dict[int, InvariantWidth] = field(default_factory=dict)
    digits: EqualDigits | None = None
    threads_note: str | None = None
    watch: ThreadWatch | None = None
    apart: str | None = None
    asked: RuntimeConfig | None = None
    adapters: Sequence[LoraFile] = ()
    cores: BusyCores = field(default_factory=BusyCores)
    listed: Mapping[str, float] = field(default_factory=dict)

    @property
    def notes(self) -> Sequence[str]:
        """The requests that could not be met in full, one line each."""
        projector = self.target.model.projector
        seeing = projector.note if projector else None
        own = filter(None, (self.threads_note, self.drafters.lost, seeing, *self._drafter_notes))
        return (*self.target_notes, *own, *self.drafters.notes)

    @property
    def _drafter_notes(self) -> Iterator[str | None]:
        """Why what was named for drafters has no effect; None if it has, or nothing was."""
        if self.asked is None:
            return
        if place := self.asked.drafter_placement:
            yield drafter_note(place, self.drafters.drafters)
        yield cache_note(self.asked, self.drafters.drafters)

    def for_another_text(self) -> "LoadedModels":
        """Make room for another text in the caches, or new caches; no scores may be in use.

        Raises ModelLoadError, with the figures, if memory is too small for another text.
        """
        place = sequence_beside(self.target, self.header)
        try:
            return replace(self.with_target(place.sequence), apart=self._apart(place))
        except BaseException:
            place.sequence.close()
            raise

    def _apart(self, place: Place) -> str | None:
        """Why a text in this place shares no decode with others; None if it does."""
        if place.sequence.context is self.target.context:
            return None
        return self.never_shares or f"{_NO_ROOM} {place.shortage}"

    @property
    def n_ctx(self) -> int:
        """The most tokens of a text without a depth of its own, whatever the last one had."""
        return self.target.n_cells - (self.usual.least_rows - 1 if self.usual else 0)

    @property
    def longest_context(self) -> int:
        """The most tokens of text that the target makes sense of, or has room for."""
        own = self.runtime.rope.context(self.header) or self.target.model.n_ctx_train
        return max(own, self.target.n_ctx)

    @property
    def never_shares(self) -> str | None:
        """Why texts share no decode however much memory there is; None if they may."""
        return never_shares(self.runtime, self.header)

    def new_target(self, n_ctx: int | None = None) -> KVSequence:
        """Make another cache of the target for one text; as `Slot.new_context`."""
        own = self.target.context.params
        params = self.runtime.context_params(n_ctx or self.target.n_cells)
        params = replace(params, snapshots=own.snapshots, ubatch=own.ubatch)
        return self.runtime.context_for(self.target.model, self.header, params)

    def with_target(self, target: KVSequence) -> "LoadedModels":
        """Make drafters for the text in another cache of the target.

        Its costs start from the costs learnt for this text. From then on they are learnt
        separately, as texts differ in length. Its policies start from those of a text that is gone.
        """
        drafter_set = self.drafters.another_set(target, self.runtime, self.drafter_set)
        costs = self.policies.costs.copy() if self.policies.costs else None
        policies = _policies(target, drafter_set, costs)
        policies.go_on(self.policies)
        _set_usual(target, self.usual)
        return replace(self, target=target, drafter_set=drafter_set, policies=policies)

    def must_load_again(self, request: DraftRequest) -> bool:
        """Whether drafters need heads of the target that were not loaded with it."""
        found = find_drafters(request, self.target.model.path)
        return found.inside and not self.target.model.mtp

    def with_drafters(self, request: DraftRequest) -> "LoadedModels":
        """Load other drafters for the same target; the caller has freed the old ones.

        The target's cache stays as it is if the costs of its passes are known.
        """
        found = find_drafters(request, self.target.model.path)
        sources, known, run = self.drafters.sources, self.costs, self.policies.costs
        with ExitStack() as undo:
            drafters, drafter_set = load_drafters(found, self.target, self.runtime, sources)
            undo.callback(drafters.close)
            undo.callback(drafter_set.close)
            if known and run:
                known = known.after(run.passes)
            costs, policies = _calibrated(self.target, drafter_set, self.runtime, known)
            undo.pop_all()
        return replace(
            self,
            drafters=drafters,
            drafter_set=drafter_set,
            costs=costs,
            policies=policies,
            digits=self.digits or _digits(self.target, self.header, drafter_set, self.runtime),
        )

    def params(self, settings: GenerationConfig) -> SamplingParams:
        """The sampling of a text with these settings, with what is recommended for the target."""
        return settings.params(self.header.metadata, self.listed)

    def keep_learnt(self) -> None:
        """Store what drafts came to in this text, for the next run.

        Not under other rotations than those of the files, nor with adapters: fewer are right then.
        """
        if self.runtime.changes_in_words:
            return
        target, learnt = self.target.model.path, self.drafter_set.learnt
        for rule, temperature, name, counts in self.policies.take_counts():
            if name in learnt:
                path, way = learnt[name]
                learnt_rates.add(target, path, rule, temperature, counts, way=way)

    def watch_cores(self) -> None:
        """From now on, see what other programs use, if costs are learnt."""
        if self.policies.costs:
            with suppress(OSError):  # too many open files, for instance
                self.cores.mean()

    def keep_costs(self, longest: int) -> None:
        """Store what passes took, for the next run.

        Not where long texts or other programs made them slower, above all the wide ones. longest:
        the tokens of the longest text. A profile that has turned out wrong is deleted, so that the
        next load measures again.
        """
        if not (costs := self.policies.costs):
            return
        measured = self.drafter_set.measured
        with suppress(OSError):  # the models must be freed whatever happens
            if costs.passes.profile_is_wrong:
                forget(self.target, measured, self.runtime)
            elif longest <= _LONG_TEXT and (self.cores.mean() or 0.0) < BUSY:
                keep(self.target, measured, self.runtime, costs.passes)

    def close_caches(self) -> None:
        """Free the caches of this text, but not the models."""
        self.keep_learnt()
        self.close_sequences()

    def close_sequences(self) -> None:
        """`close_caches`, where no file can be written: by the garbage collector."""
        self.drafter_set.close()
        self.target.close()


def load_models(config: EngineConfig) -> LoadedModels:
    """Load the target and its drafters; on an error, free everything. Raises as `engine.load`.

    What runs out of memory, because other programs have taken it since it was planned, is planned
    again with more left free. ModelLoadError, too, where weights are to be shared and the rest has
    no room beside them.
    """
    ran_out: OutOfMemoryError | None = None
    for planned in load_plans(config):
        try:
            return _load(config, planned, ran_out)
        except OutOfMemoryError as error:  # without the frames, which hold what was loaded
            ran_out = ran_out or error.with_traceback(None)
    assert ran_out
    raise ran_out


def _load(
    config: EngineConfig, planned: PlannedLoad, ran_out: OutOfMemoryError | None
) -> LoadedModels:
    """Load what was planned. ran_out: what a larger plan has raised."""
    facts, asked, found, plan = planned.facts, planned.runtime, planned.found, planned.plan
    runtime = replace(
        asked,
        drafter_kv_type=plan.drafter_kv_type,
        placement=plan.placement,
        drafter_placement=plan.drafter_placement,
        ubatch=plan.context.ubatch,
    )
    with ExitStack() as undo:
        weights = shareable(config.weights, found)
        if weights is None:
            weights = Model(
                facts.files[0],
                runtime.placement,
                mtp=found.inside,
                chat_template=config.chat_template,
                load_mode=runtime.load_mode,
                loras=runtime.loras,
            )
            undo.callback(weights.close)
        known = known_threads(weights, runtime)
        runtime = runtime if isinstance(known, float) else known.runtime
        target = runtime.context_for(weights, facts.header, plan.context)
        undo.callback(target.close)
        runtime, threads_note = fit_threads(target, runtime, known)
        weights.no_projector = planned.no_projector
        if planned.projector and weights.projector is None:
            threads, most_rows = runtime.threads_for(weights.size), target.context.chunk
            weights.projector = LazyProjector(
                planned.projector,
                weights,
                threads,
                most_rows,
                planned_gpu=plan.projector_gpu,
                is_asked=config.mmproj is not None,
            )
        past = PastTexts(weights.vocabulary_fingerprint) if config.remember else None
        sources = copy_sources(weights, past, config.copied_texts, config.earlier_texts)
        undo.callback(sources.earlier.end)
        only_this_kv_type = plan.drafter_kv_type != asked.drafter_kv_type
        drafters, drafter_set = load_drafters(
            found, target, runtime, sources, kv_type_fits=only_this_kv_type
        )
        undo.callback(drafters.close)
        undo.callback(drafter_set.close)
        costs, policies = _calibrated(target, drafter_set, runtime)
        digits = _digits(target, facts.header, drafter_set, runtime)
        widths = usual_widths(target, runtime)
        _set_usual(target, usual := next(iter(widths.values()), None))
        pair = sampling_pair(facts.files[0], str(config.model or ""))
        listed = pair.sampling if pair else {}
        notes = _target_notes(config, planned, target, ran_out, listed)
        for model in {weights, *(each.model for each in drafters.drafters if each.model)}:
            note_use(model.path)
        undo.pop_all()
    return LoadedModels(
        target,
        facts.header.without_vocabulary(),
        runtime,
        drafters,
        drafter_set,
        costs,
        policies,
        notes,
        usual,
        widths,
        digits=digits,
        threads_note=threads_note,
        watch=thread_watch(weights, asked, runtime),
        asked=asked,
        listed=listed,
        adapters=planned.adapters,
    )


def _set_usual(target: KVSequence, usual: InvariantWidth | None) -> None:
    """Pad the passes of a new text as usual, so that its context is that of the next text."""
    if usual:
        target.set_width(usual.least_rows, is_uniform=usual.is_uniform)


def _target_notes(
    config: EngineConfig,
    planned: PlannedLoad,
    target: KVSequence,
    ran_out: OutOfMemoryError | None,
    listed: Mapping[str, float],
) -> Sequence[str]:
    """The `target_notes` of LoadedModels. ran_out: as in `_load`."""
    name, header = planned.facts.files[0].name, planned.facts.header
    found = (
        _LESS + str(ran_out).split("; ")[0] if ran_out else None,
        *extra_buffers.notes(),
        *(() if config.runtime.placement.devices == () else unfit_gpus.notes()),
        *planned.plan.notes,
        *planned.notes,
        unused_note(planned.adapters, target.context.changed_matrices, name),
        _UNLOCKED.format(name) if target.model.is_unlocked else None,
        *left_out(header.metadata, listed),
        reproducible_note(target) if planned.runtime.reproducible else None,
    )
    return [*filter(None, found)]


def _calibrated(
    target: KVSequence,
    drafter_set: DrafterSet,
    runtime: RuntimeConfig,
    known: CostProfile | None = None,
) -> tuple[CostProfile | None, Policies]:
    """Measure the costs if there are drafters, and make the policies that use them."""
    report_progress("measuring what passes take")
    if not drafter_set.drafters:
        return known, _policies(target, drafter_set, None)
    profile = calibrate(target, drafter_set.measured, runtime, known)
    costs = CostModel.of(profile, unequal_apart=target.context.splits_unequal)
    return profile, _policies(target, drafter_set, costs)


def _digits(
    target: KVSequence, header: Header, drafter_set: DrafterSet, runtime: RuntimeConfig
) -> EqualDigits | None:
    """Try out which passes agree if there are drafters; else read an earlier trial."""
    if not drafter_set.drafters:
        return equal_digits.remembered(target.model.path, runtime)
    return equal_digits.measured(target.model, header, runtime)


def _policies(target: KVSequence, drafter_set: DrafterSet, costs: CostModel | None) -> Policies:
    priors = partial(first_guesses, target.model.path, drafter_set)
    return Policies(drafter_set.drafters, costs, priors)
