"""Drafter plan: which of the drafters that were found fit in memory."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from localspec.drafters.spec import DraftRequest
from localspec.gguf.facts import Facts
from localspec.gguf.heads import MTP_KINDS, kind_of
from localspec.gguf.reader import TensorInfo
from localspec.llama.model import Model
from localspec.llama.rollback import SNAPSHOTS
from localspec.loading.config import RuntimeConfig
from localspec.loading.drafter_finder import (
    FoundDrafter,
    FoundDrafters,
    find_drafters,
    with_own_drafter,
)
from localspec.memory.available import HOST, free_memory
from localspec.memory.memory_plan import memory_plan
from localspec.memory.model_memory import ModelMemory
from localspec.memory.request import MemoryPlan, MemoryRequest, ProjectorRoom


def plan_drafters(
    request: DraftRequest,
    target: Facts,
    runtime: RuntimeConfig,
    weights: Model | None = None,
    *,
    texts: int = 1,
    reserve: int = 0,
    projector: ProjectorRoom | None = None,
    adapters: Sequence[TensorInfo] = (),
) -> tuple[FoundDrafters, MemoryPlan]:
    """Find the drafters, and plan the memory of all models and caches; nothing is loaded.

    weights: the target, if it is in memory already. texts: as many as fit get room.
    reserve, projector, adapters: as in MemoryRequest.

    A draft model that `auto` added is left out if it does not fit, and the next one is tried.
    Raises ModelLoadError if the target or a named drafter does not fit.
    """
    found, unfit = find_drafters(request, target.files[0]), list[Path]()

    def plan_of(found: FoundDrafters) -> MemoryPlan:
        request = _memory_request(found, target, runtime, weights)
        context = replace(request.context, texts=texts)
        request = replace(request, adapters=tuple(adapters))
        return memory_plan(replace(request, context=context, reserve=reserve, projector=projector))

    while (plan := plan_of(found)).no_drafter:
        # Another of the target's own drafters may be smaller.
        unfit += [each.facts.files[0] for each in found.drafters if each.facts]
        alone = found.without_models(plan.no_drafter)
        found = with_own_drafter(alone, target.files[0], unfit)
        if not found.optional:
            branches = _further_branches(alone, runtime)
            return alone, plan.with_context(branches=branches)
    return found, plan


def shareable(weights: Model | None, found: FoundDrafters) -> Model | None:
    """Return the weights of a target that these drafters can use, with the heads inside or not."""
    return weights if weights and weights.mtp == found.inside else None


def _further_branches(found: FoundDrafters, runtime: RuntimeConfig) -> int:
    """Return how many branches drafts have room for beside their first.

    An accepted branch leaves gaps between the cells of a text, and attention adds in their order.
    """
    return 0 if runtime.reproducible else found.branches - 1


def _memory_request(
    found: FoundDrafters, target: Facts, runtime: RuntimeConfig, weights: Model | None
) -> MemoryRequest:
    request = found.request
    context = replace(
        runtime.context_params(runtime.context_size(target.header)),
        # Snapshots make drafts cheaper and plain passes a little slower, so they are used only for
        # heads and for named drafters; otherwise checkpoints are used.
        snapshots=SNAPSHOTS if found.has_heads or not (request.auto or request.is_off) else 0,
        branches=_further_branches(found, runtime),
        ubatch=runtime.fixed_ubatch,
    )
    return MemoryRequest(
        target=target,
        context=context,
        fixed_context=runtime.context is not None,
        drafters=found.models,
        optional_drafter=found.optional,
        drafter_kv_type=runtime.drafter_kv_type,
        placement=runtime.placement,
        drafter_placement=runtime.drafter_placement,
        matrix_heads=found.matrix_heads,
        target_loaded=shareable(weights, found) is not None,
    )


def shortage(own: FoundDrafter, target: Facts, n_ctx: int, runtime: RuntimeConfig) -> str | None:
    """Why a drafter does not fit beside its target, which is loaded; None if it does.

    n_ctx: the target's context in tokens.
    """
    inside = own.spec.is_inside
    facts = target if inside or own.facts is None else own.facts
    placement = runtime.placement if inside else runtime.place_of_drafter(own.head)
    with closing(
        ModelMemory(
            facts,
            placement,
            mtp=inside or kind_of(facts.header) in MTP_KINDS,
            inside=inside,
        )
    ) as memory:
        if own.matrices:
            needed = Counter({HOST: facts.size})
        else:
            params = runtime.context_params(n_ctx, runtime.drafter_kv_type)
            needed = memory.bytes_by_device(params)
    found = free_memory(placement).shortage(needed)
    return str(found) if found else None
