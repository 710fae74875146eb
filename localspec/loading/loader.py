"""Loading: a target and its drafter, from their names to caches that are ready."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.drafters.suffix_store import PastTexts
from localspec.gguf.reader import Header
from localspec.llama import extra_buffers
from localspec.llama.batch_invariance import InvariantWidth
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.loading import drafter_loader
from localspec.loading.calibration import CostProfile, pace
from localspec.loading.config import RuntimeConfig
from localspec.loading.drafter_loader import Choice, Drafting
from localspec.loading.load_check import loadable_header
from localspec.loading.policies import Planning
from localspec.models import registry
from localspec.models.locate import locate
from localspec.utils.progress import report_progress


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What is to be loaded, and how it is to run; the arguments of `engine.load`."""

    model: str | Path | None
    draft: Choice | Sequence[Choice]
    runtime: RuntimeConfig
    remember: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A target's cache, and what drafts for it.

    runtime: as ordered, with what memory made of it. notes: what is less than could be expected, a
    line each. widths: how wide passes must be for a reproducible text, by depth, once it is known.
    The target's model is freed by whoever loaded it, after all caches of it.
    """

    target: Context
    header: Header
    runtime: RuntimeConfig
    planning: Planning
    notes: Sequence[str] = ()
    widths: dict[int, InvariantWidth] = field(default_factory=dict)

    def another(self) -> "Loaded":
        """Caches of their own for another text, which use the same models."""
        target = self.new_target()
        try:
            return self.for_text(target)
        except BaseException:
            target.close()
            raise

    def new_target(self) -> Context:
        """Another cache of the target; close it."""
        return self.runtime.context_for(
            self.target.model, self.header, self.target.room, snapshots=self.target.snapshots
        )

    def for_text(self, target: Context) -> "Loaded":
        """The same drafters, for the text in another cache of the target."""
        drafted = self.planning.drafting.for_text(target, self.runtime)
        return replace(self, target=target, planning=self.planning.for_text(target, drafted))

    def close(self) -> None:
        """Free the caches, and the drafter that was loaded for them."""
        self.planning.drafting.close()
        self.target.close()


def loaded(order: EngineConfig) -> Loaded:
    """Both models, or neither. Raises as `engine.load`."""
    path = registry.bundled().target if order.model is None else locate(order.model)
    header = loadable_header(path)
    plan = drafter_loader.plan_memory(order.draft, path, header, order.runtime)
    runtime = replace(order.runtime, drafter_kv_type=plan.drafter_kv_type)
    model = Model(path, gpu_layers=runtime.gpu_layers)
    target: Context | None = None
    drafted: Drafting | None = None
    try:
        snapshots = drafter_loader.snapshots(order.draft)
        target = runtime.context_for(model, header, plan.context, snapshots=snapshots)
        past = PastTexts(model.vocabulary_fingerprint) if order.remember else None
        decided = plan.drafter_kv_type != order.runtime.drafter_kv_type
        drafted = drafter_loader.choose(
            order.draft, target, runtime, past, plan.no_drafter, kv_type_fits=decided
        )
        planning = planned(target, drafted, runtime, None)
    except BaseException:
        if drafted:
            drafted.close()
        if target:
            target.close()
        model.close()
        raise
    notes = (*extra_buffers.notes(), *plan.notes, *drafted.notes)
    return Loaded(target, header.without_vocabulary(), runtime, planning, notes)


def with_drafters(before: Loaded, order: EngineConfig) -> Loaded:
    """The same target with the drafters of this order; those before are closed already.

    The target's cache stays as it is, if it is known what its passes take.
    """
    target, past = before.target, before.planning.drafting.past
    drafted = drafter_loader.choose(order.draft, target, before.runtime, past)
    known = before.planning.pace
    try:
        planning = planned(target, drafted, before.runtime, known)
        return replace(before, planning=planning, notes=drafted.notes)
    except BaseException:
        drafted.close()
        raise


def planned(
    target: Context, drafted: Drafting, runtime: RuntimeConfig, known: CostProfile | None
) -> Planning:
    """Who decides about these drafters, knowing what passes take."""
    report_progress("measuring what passes take")
    measured = pace(target, drafted.context, runtime, known) if drafted.drafters else known
    return Planning(target, drafted, measured)
