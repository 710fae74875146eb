"""Memory plan: what of two models and their caches fits in memory, before any of it is loaded.

Where the request does not fit, these are given up in this order: snapshots of the target's state,
but for a few; the drafter's place beside its target, for another GPU; where a GPU is short, a part
of the context that nobody asked for, as what leaves a GPU is several times as slow; the drafter's
place on a GPU; a drafter that nobody asked for, or, of a drafter that the user asked for, the
precision of its cache; the target's place on the devices, first of experts, then of layers; then
more of the context. What the user named stays. Where main memory is short, nothing is moved into
it; GPUs that compute in it (those in processors, Apple's) share what is free there.
Where experts are on the processor beside a GPU, prompts are read in wider passes if there is room.
Images have room on a GPU before layers of the target where the user asked for them. Else the file
that reads them takes what all else leaves: no text is slower for images that may never come.
Weights count in full although they are mapped from their file: llama.cpp repacks most of them,
which takes a copy, and reads the others for every token.
"""

from contextlib import closing
from dataclasses import replace

from localspec.errors import ModelLoadError
from localspec.llama.placement import Placement
from localspec.memory.available import FreeMemory, free_memory
from localspec.memory.drafter_places import drafter_places
from localspec.memory.request import MemoryPlan, MemoryRequest
from localspec.memory.search import Search


def memory_plan(request: MemoryRequest, free: FreeMemory | None = None) -> MemoryPlan:
    """Plan what to load. free: None asks this machine.

    Raises ModelLoadError, with the figures, where not even the least fits.
    """
    plan = best_plan(request, free)
    if plan.refusal:
        raise ModelLoadError(plan.refusal)
    return plan


def best_plan(request: MemoryRequest, free: FreeMemory | None = None) -> MemoryPlan:
    """Plan as `memory_plan`; where nothing fits, return the plan with its `refusal` set."""
    if free is None:
        places: list[Placement] = []
        if request.drafters:
            own = request.drafter_placement
            places = [own] if own else drafter_places(request.placement)
        free = free_memory(request.placement, *places).less(request.reserve)
    requested = MemoryPlan(
        replace(request.context, texts=1),
        request.drafter_kv_type,
        placement=request.placement,
        drafter_placement=request.drafter_placement,
    )
    with closing(Search(request, free)) as search:
        return search.plan(requested)
