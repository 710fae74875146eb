"""Load plan: what is loaded of what was asked for, and what is if memory runs out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.errors import ModelLoadError
from localspec.gguf import long_rope
from localspec.gguf.facts import Facts
from localspec.gguf.kv_types import require_fits
from localspec.gguf.lora import LoraFile, fitting_adapters
from localspec.gguf.mixed_texts import mixes_texts
from localspec.gguf.projectors import ProjectorFile
from localspec.gguf.reader import Header
from localspec.llama.model_params import require_devices
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.loading.context_limit import rope_notes, within_model
from localspec.loading.drafter_finder import FoundDrafters
from localspec.loading.drafter_plan import plan_drafters
from localspec.loading.gpu_check import check_gpus
from localspec.loading.load_check import loadable_facts
from localspec.loading.placement_notes import flash_note, rounding_note, target_notes
from localspec.loading.places import MAX_TEXTS, most_texts
from localspec.memory.projector_memory import projector_bytes
from localspec.memory.request import MemoryPlan, ProjectorRoom
from localspec.models import registry
from localspec.models.locate import locate, meaning_note
from localspec.models.projectors import NO_PROJECTOR, find_projector
from localspec.utils.format import counted
from localspec.utils.option_names import option

_REPRODUCIBLE = (
    "the passes of several texts are computed one after the other: in one decode, the last digits "
    "of a text depend on the other texts"
)
_NO_FLASH = (
    "the passes of several texts are computed one after the other: without flash attention, each "
    "would be computed with the tokens of all"
)
_MIXED = (
    "each text has a cache of its own, and the passes of several are computed one after the other: "
    "llama.cpp computes several texts of {} models wrongly in one decode"
)
# Bytes that the first plan leaves free on GPUs, or in main memory without them, and those that
# follow.
_RESERVES = (0, 512 * 2**20, 1536 * 2**20)


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """What is to be loaded.

    facts: of the target. runtime: as asked for, within what the model can. found, plan: as of
    `plan_drafters`. notes: the requests that have no effect, one line each. projector: what reads
    images for the target; None: nothing. no_projector: why the one beside it is left out. adapters:
    those that the target is loaded with.
    """

    facts: Facts
    runtime: RuntimeConfig
    found: FoundDrafters
    plan: MemoryPlan
    notes: Sequence[str]
    projector: ProjectorFile | None = None
    no_projector: str | None = None
    adapters: Sequence[LoraFile] = ()

    @property
    def amounts(self) -> tuple[object, ...]:
        """What takes memory, without words and figures about what is free."""
        plan, files = self.plan, [each.files for each in self.found.models]
        places = plan.placement, plan.drafter_placement, plan.projector_gpu
        return files, plan.context, plan.drafter_kv_type, places


def planned_load(config: EngineConfig, reserve: int = 0) -> PlannedLoad:
    """Plan what to load, with so many bytes of each device left free."""
    path = registry.bundled().target if config.model is None else locate(config.model)
    facts = loadable_facts(path)
    adapters = fitting_adapters(config.runtime.loras, facts)
    check_gpus(config.runtime)
    if config.runtime.drafter_placement:
        # Else a drafter that nobody named would be left out for it.
        require_devices(config.runtime.drafter_placement)
    require_fits(config.runtime.kv_type, facts.header, path.name)
    runtime, context_note = within_model(config.runtime, facts)
    useless = target_notes(runtime.placement, facts)
    layers, shared = facts.header.number("block_count") or 0, config.weights
    placement = shared.placement if shared else runtime.placement.for_layers(layers)
    loras = tuple(each.lora for each in adapters)
    runtime = replace(runtime, placement=placement, loras=loras)
    texts = 1 if never_shares(runtime, facts.header) else min(config.texts, MAX_TEXTS)
    projector, no_projector = find_projector(config.mmproj, facts.files[0])
    found, plan = plan_drafters(
        config.draft,
        facts,
        runtime,
        shared,
        texts=texts,
        reserve=reserve,
        projector=_room(projector, config),
        adapters=[tensor for each in adapters for tensor in each.tensors],
    )
    if shared and plan.placement != placement:
        raise ModelLoadError(f"there is no room beside another engine: {'; '.join(plan.notes)}")
    n_ctx, room = plan.context.n_ctx, plan.context.texts
    most = most_texts(facts.header, n_ctx, plan.context.branches)
    why = "memory is too small for more" if room < min(texts, most) else "more share none"
    room = min(room, most)
    plan = plan.with_context(texts=room)
    fewer = f"a cache has room for {counted(room, 'text')}, not {texts}: {why}"
    rotated = long_rope.note(facts.header, n_ctx, runtime.context_size(facts.header))
    meant = meaning_note(config.model, path) if config.model else None
    scaled = rope_notes(runtime, facts, n_ctx)
    fewer_texts = fewer if room < texts else None
    rounded = [rounding_note(runtime, "kv_type")]
    rounded += [rounding_note(runtime, "drafter_kv_type")] if found.models else []
    changed = [note for each in adapters for note in each.notes]
    notes = [meant, *changed, context_note, *scaled, *useless, rotated, fewer_texts, *rounded]
    notes += [flash_note(runtime), no_projector]
    if config.mmproj == NO_PROJECTOR:
        no_projector = f"{option('mmproj')} none switches images off; leave that option out"
    return PlannedLoad(
        facts, runtime, found, plan, [*filter(None, notes)], projector, no_projector, adapters
    )


def _room(projector: ProjectorFile | None, config: EngineConfig) -> ProjectorRoom | None:
    """The room that images have on a GPU; None where they have theirs, or none are read."""
    if not projector or (config.weights and config.weights.projector):
        return None
    is_asked = config.mmproj is not None
    return ProjectorRoom(projector.path.name, projector_bytes(projector), is_asked)


def load_plans(config: EngineConfig) -> Iterator[PlannedLoad]:
    """Yield what to load, then what to load if memory runs out, which takes ever less.

    Without as many of the first ones as `config.memory_faults`, but with one at least. Raises as
    `load` where not even the first one can be planned.
    """
    left_out, planned = config.memory_faults, planned_load(config)
    if left_out <= 0:
        yield planned
    for reserve in _RESERVES[1:]:
        try:
            smaller = planned_load(config, reserve)
        except ModelLoadError:
            break
        if smaller.amounts != planned.amounts:
            left_out, planned = left_out - 1, smaller
            if left_out <= 0:
                yield planned
    if left_out > 0:
        yield planned


def never_shares(runtime: RuntimeConfig, header: Header) -> str | None:
    """Why texts share no decode however much memory there is; None if they may.

    header: of the model.
    """
    if mixes_texts(header):
        return _MIXED.format(header.architecture)
    if runtime.reproducible:
        return _REPRODUCIBLE
    return _NO_FLASH if runtime.flash is False else None
