"""Search: finds the first plan that fits, in the order that `memory_plan` tells."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from localspec.gguf.facts import Facts
from localspec.gguf.heads import MTP_KINDS, kind_of, layers_of
from localspec.gguf.kv_types import is_quantised
from localspec.gguf.matrix_heads import matrix_head_of
from localspec.llama.context_params import CHUNK, ContextParams
from localspec.llama.devices import names_of
from localspec.llama.placement import ON_PROCESSOR, Placement, is_address
from localspec.llama.rope import UNSCALED
from localspec.memory.available import HOPELESS, HOST, FreeMemory, Shortage
from localspec.memory.drafter_places import drafter_places, place_of_drafter
from localspec.memory.estimate import cell_bytes
from localspec.memory.model_memory import ModelMemory
from localspec.memory.request import MemoryPlan, MemoryRequest
from localspec.utils.format import format_bytes
from localspec.utils.option_names import options

# A smaller context is a multiple of this many tokens, and at least one of it, as in llama.cpp.
_CONTEXT_STEP = 256
_SMALLER_KV_TYPE = "q8_0"
# A context of at least so many tokens is worth more on a GPU than a longer one beside it.
_LEAST_ON_GPU = 4096
# With fewer snapshots, deeper drafts copy the state first.
_FEWER_SNAPSHOTS = (4, 2)
# With this many times the estimate free, the estimate is enough, and the library is not asked.
_AMPLE = 2
# With passes so wide, experts in main memory are copied to a GPU a quarter as often.
_WIDE_PASS = 2048


class Search:
    """Tries one plan after the other. Call `close` at the end.

    free: what memory there is.
    """

    def __init__(self, request: MemoryRequest, free: FreeMemory) -> None:
        self._request = request
        self._free = free
        self._opened: dict[tuple[Any, ...], ModelMemory] = {}

    def _target(self, plan: MemoryPlan) -> ModelMemory:
        request = self._request
        options = {"loaded": request.target_loaded, "adapters": request.adapters}
        return self._model(request.target, plan.placement, **options)

    def _drafter(self, drafter: Facts, plan: MemoryPlan) -> ModelMemory:
        inside = drafter.files == self._request.target.files and drafter.has_mtp
        kind = kind_of(drafter.header)
        placement = plan.placement
        if not inside:
            named = plan.drafter_placement
            placement = place_of_drafter(placement, named, is_head=kind is not None)
        return self._model(drafter, placement, mtp=inside or kind in MTP_KINDS, inside=inside)

    def _model(self, facts: Facts, placement: Placement, **options: Any) -> ModelMemory:
        key = facts.files, placement, tuple(options.items())
        if key not in self._opened:
            self._opened[key] = ModelMemory(facts, placement, **options)
        return self._opened[key]

    def plan(self, requested: MemoryPlan) -> MemoryPlan:
        """Return the first plan that fits, from the one that gives nothing up; else a refusal."""
        estimate = self._estimate(requested)
        if estimate is not None and self._is_ample(estimate):
            return self._for_several_texts(replace(requested, needed=estimate))
        projector = self._request.projector
        if not (projector and projector.is_asked):
            return self._first_that_fits(requested)
        roomy = self._with_projector(requested)
        found = self._first_that_fits(roomy)
        if roomy.projector_gpu and (found.refusal or found.placement.is_on_processor):
            beside = f"beside its model both {self._shortage_text(roomy)}"
            note = f"{projector.name} is on the processor: {beside}"
            found = self._first_that_fits(replace(requested, notes=(note,)))
        return found

    def _first_that_fits(self, requested: MemoryPlan) -> MemoryPlan:
        requested = replace(requested, needed=self._needed(requested).total())
        for plan in self._plans(requested):
            if not self._shortage(plan):
                whole = self._for_several_texts(self._with_snapshots(plan, requested))
                whole = self._with_wider_passes(whole)
                roomy = self._with_projector(whole)
                return self._with_crowding(whole if self._shortage(roomy) else roomy)
        return replace(plan, refusal=self._refusal(plan))

    def _with_projector(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that has room for images on a GPU of the target's, if it has any."""
        if not self._request.projector:
            return plan
        gpu = self._free.freest_gpu(names_of(plan.placement))
        return replace(plan, projector_gpu=gpu)

    def _with_snapshots(self, plan: MemoryPlan, requested: MemoryPlan) -> MemoryPlan:
        """Return a plan that fits with as many of its snapshots as fit."""
        present, most = plan.context.snapshots, requested.context.snapshots
        if present in (most, 0):
            return plan
        for count in (most, *_FEWER_SNAPSHOTS):
            fuller = plan.with_context(snapshots=count)
            if not self._shortage(fuller):
                break
        if count == most:
            return fuller
        note = (
            f"drafts of more than {count} tokens copy the state first: "
            f"{most} snapshots of it {self._shortage_text(requested)}"
        )
        return replace(fuller, notes=(*plan.notes, note))

    def _with_crowding(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that says what other programs must give up for it."""
        crowding = self._free.crowding(self._needed(plan))
        return replace(plan, notes=(*plan.notes, crowding)) if crowding else plan

    def _for_several_texts(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that fits, with room for as many texts as fit, too."""
        most = self._request.context.texts

        def room_for(texts: int) -> MemoryPlan:
            return plan.with_context(texts=texts)

        estimate = self._estimate(whole := room_for(most))
        if estimate is not None and self._is_ample(estimate):
            return whole
        fitting = bisect_left(
            range(2, most + 1),
            True,
            key=lambda texts: self._shortage(room_for(texts)) is not None,
        )
        return room_for(1 + fitting)

    def _with_wider_passes(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that reads prompts in wider passes where that is quicker, and fits.

        Experts in main memory are copied to the GPU for each pass of a prompt. Where the plan chose
        how many there are, those of one more layer make room.
        """
        if plan.context.ubatch or not self._copies_experts(plan.placement):
            return plan
        wider = plan.with_context(ubatch=_WIDE_PASS)
        asked = self._request.placement
        count, layers = plan.placement.cpu_moe, layers_of(self._request.target.header)
        choices = [wider]
        if 0 < count < layers and plan.placement != asked:
            fewer = replace(plan.placement, cpu_moe=count + 1)
            words = plan.placement.in_words, fewer.in_words
            notes = tuple(note.replace(*words) for note in plan.notes)
            choices.append(replace(wider, placement=fewer, notes=notes))
        usual = plan.with_context(ubatch=CHUNK)
        return next((each for each in choices if not self._shortage(each)), usual)

    def _copies_experts(self, placement: Placement) -> bool:
        """Whether a GPU of this machine computes experts that are in main memory."""
        gpus = [each for each in names_of(placement) if not is_address(each)]
        return self._request.target.has_experts and bool(gpus) and not placement.is_on_devices

    def close(self) -> None:
        for model in self._opened.values():
            model.close()

    def _estimate(self, plan: MemoryPlan) -> int | None:
        """Return the bytes in all by the headers alone; None where these do not tell."""
        found = [model.estimated_bytes(params) for model, params in self._models(plan)]
        known = [size for size in found if size is not None]
        return self._matrix_heads_bytes(plan) + sum(known) if len(known) == len(found) else None

    def _is_ample(self, estimate: int) -> bool:
        return not self._free.has_devices and _AMPLE * estimate <= self._free.total

    def _plans(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """Yield the request, then what takes less and less."""
        yield plan
        plan = least = self._with_fewest_snapshots(plan)
        for least in self._drafter_plans(plan):
            yield least
        # What leaves a device fills main memory, so this is of no use where that is short.
        if not self._lacks_device(least):
            yield from self._shorter(least)
        if fewer := self._on_fewer_devices(plan):
            for least in self._drafter_plans(fewer):
                yield least
        yield from self._shorter(least)

    def _with_fewest_snapshots(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan with few snapshots, if that takes less: not all models have states."""
        few = min(plan.context.snapshots, _FEWER_SNAPSHOTS[-1])
        fewer = plan.with_context(snapshots=few)
        return fewer if self._needed(fewer) < self._needed(plan) else plan

    def _drafter_plans(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """Yield plans that give the drafter less and less."""
        yield plan
        # The last place is the processor. None is of use where main memory is short.
        elsewhere = [*self._elsewhere(plan)] if self._lacks_device(plan) else []
        yield from elsewhere[:-1]
        yield from self._shorter_on_gpus(plan)
        moved = plan
        for moved in elsewhere:
            yield moved
            yield from self._shorter_on_gpus(moved)
        names = [each.files[0].name for each in self._request.drafters]
        names += [each.files[0].name for each in self._request.matrix_heads]
        if names and self._request.optional_drafter:
            reason = f"{names[0]} is left out: both {self._shortage_text(plan)}"
            alone = replace(plan.with_context(snapshots=0), no_drafter=reason)
            yield alone
            yield from self._shorter_on_gpus(alone)
        elif self._request.drafters and self._may_quantise(moved):
            yield self._with_smaller_cache(moved)

    def _shorter_on_gpus(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """Yield a plan with less context that leaves everything where it is, on GPUs."""
        if self._request.fixed_context or not plan.placement.is_on_devices:
            return
        if not self._lacks_device(plan):
            return
        n_ctx = self._largest_context(plan)
        if n_ctx >= _LEAST_ON_GPU:
            yield self._with_length(plan, n_ctx)

    def _shorter(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """Yield a plan with as much context as fits."""
        if not self._request.fixed_context and (n_ctx := self._largest_context(plan)):
            yield self._with_length(plan, n_ctx)

    def _may_quantise(self, plan: MemoryPlan) -> bool:
        """Whether the drafter's cache may be smaller; only flash attention reads such a one."""
        quantised = is_quantised(plan.drafter_kv_type)
        return not quantised and plan.context.flash_attention is not False

    def _with_smaller_cache(self, plan: MemoryPlan) -> MemoryPlan:
        note = (
            f"the drafter's cache is kept as {_SMALLER_KV_TYPE}, and it may draft worse: "
            f"as {plan.drafter_kv_type} both {self._shortage_text(plan)}"
        )
        return replace(plan, drafter_kv_type=_SMALLER_KV_TYPE, notes=(*plan.notes, note))

    def _with_length(self, plan: MemoryPlan, n_ctx: int) -> MemoryPlan:
        note = f"context {n_ctx}: {plan.context.n_ctx} {self._shortage_text(plan)}"
        return replace(plan.with_context(n_ctx=n_ctx), notes=(*plan.notes, note))

    def _elsewhere(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """Yield plans with draft models on other devices than the best for them.

        Heads stay where their target is, and so does what the user has put somewhere.
        """
        models = [each for each in self._request.drafters if not self._needs_target(each)]
        if not models or plan.drafter_placement:
            return
        name = models[0].files[0].name
        for place in drafter_places(plan.placement)[1:]:
            note = f"{name} is {place.in_words}: beside its target both {self._shortage_text(plan)}"
            yield replace(plan, drafter_placement=place, notes=(*plan.notes, note))

    def _needs_target(self, drafter: Facts) -> bool:
        """Whether a drafter is a head, which is where its target is."""
        return drafter.files == self._request.target.files or kind_of(drafter.header) is not None

    def _on_fewer_devices(self, plan: MemoryPlan) -> MemoryPlan | None:
        """Return a plan with as much of the target on devices as fits; None if nothing can go.

        The target comes first: draft models are on the processor.
        """
        target = self._request.target
        if plan.placement.gpu_layers is not None or not self._free.has_devices:
            return None
        shortage = self._shortage_text(plan)
        # The last place of a drafter is the processor.
        plan = [plan, *self._elsewhere(plan)][-1]
        if self._fits_devices(plan):
            return None
        layers = layers_of(target.header)
        choices = [replace(plan.placement, gpu_layers=count) for count in range(layers, 0, -1)]
        if target.has_experts and not plan.placement.cpu_moe:
            less = [replace(plan.placement, cpu_moe=count) for count in range(1, layers + 1)]
            choices = less + [replace(each, cpu_moe=-1) for each in choices]
        choices.append(ON_PROCESSOR)
        fitting = bisect_left(
            choices,
            True,
            key=lambda place: self._fits_devices(replace(plan, placement=place)),
        )
        best = choices[min(fitting, len(choices) - 1)]
        note = f"{target.files[0].name}: {best.in_words}, as all of it there {shortage}"
        return replace(plan, placement=best, notes=(*plan.notes, note))

    def _fits_devices(self, plan: MemoryPlan) -> bool:
        """Whether a plan fits on all devices but the processor."""
        devices = {name: size for name, size in self._free.by_device.items() if name != HOST}
        needed = self._needed(plan)
        return all(needed[name] <= size for name, size in devices.items())

    def _models(self, plan: MemoryPlan) -> Iterator[tuple[ModelMemory, ContextParams]]:
        """Yield the models of a plan, each with what its context is made with."""
        yield self._target(plan), plan.context
        if not plan.no_drafter:
            params = replace(
                plan.context,
                kv_type=plan.drafter_kv_type,
                snapshots=0,
                branches=0,
                ubatch=None,
                rope=UNSCALED,
            )
            for drafter in self._request.drafters:
                yield self._drafter(drafter, plan), params

    def _is_hopeless(self, plan: MemoryPlan) -> bool:
        """Whether even asking the library would take too much memory, or is in vain."""
        most = self._free.total
        least = self._least(plan)
        cells = cell_bytes(plan.context.n_ctx * plan.context.texts)
        return max(least / HOPELESS, HOPELESS * cells) > most

    def _least(self, plan: MemoryPlan) -> int:
        return self._matrix_heads_bytes(plan) + sum(
            model.least_bytes(params) for model, params in self._models(plan)
        )

    def _matrix_heads_bytes(self, plan: MemoryPlan) -> int:
        """Return the bytes of heads without a cache."""
        if plan.no_drafter:
            return 0
        heads = self._request.matrix_heads
        own = all(matrix_head_of(each.files[0], each.header).has_output for each in heads)
        # Heads without an output matrix read the target's in its file, beside what llama.cpp made
        # of it.
        return sum(each.size for each in heads) + (0 if own else self._target(plan).output_bytes)

    def _needed(self, plan: MemoryPlan) -> Counter[str]:
        """Return the bytes that a plan takes, by device."""
        if self._is_hopeless(plan):
            return Counter({HOST: self._least(plan)})
        needed = Counter({HOST: self._matrix_heads_bytes(plan)})
        for model, params in self._models(plan):
            needed.update(model.bytes_by_device(params))
        if gpu := plan.projector_gpu:
            needed[gpu] += self._projector_bytes(plan)
        return needed

    def _projector_bytes(self, plan: MemoryPlan) -> int:
        """Return the bytes of the projector on a GPU, where it is beside the target."""
        projector = self._request.projector
        has_room = plan.projector_gpu and not plan.placement.is_on_processor
        return projector.size if projector and has_room else 0

    def _shortage(self, plan: MemoryPlan) -> Shortage | None:
        """Return the device that lacks the most bytes, if one does."""
        needed = self._needed(plan)
        if self._is_hopeless(plan):
            return Shortage(HOST, needed[HOST], self._free.by_device[HOST])
        return self._free.shortage(needed)

    def _lacks_device(self, plan: MemoryPlan) -> bool:
        """Whether something other than main memory lacks the most bytes."""
        shortage = self._shortage(plan)
        return shortage is not None and shortage.device != HOST

    def _largest_context(self, plan: MemoryPlan) -> int:
        """Return the most tokens of context that fit, 0 where none do."""
        sizes = range(_CONTEXT_STEP, plan.context.n_ctx, _CONTEXT_STEP)

        def lacks(n_ctx: int) -> bool:
            return self._shortage(plan.with_context(n_ctx=n_ctx)) is not None

        fitting = bisect_left(sizes, True, key=lacks)
        return sizes[fitting - 1] if fitting else 0

    def _refusal(self, plan: MemoryPlan) -> str:
        """Return why the last plan that was tried does not fit, and what to do."""
        largest = self._largest_context(plan) if self._request.fixed_context else 0
        remedy = f"try {options(context=largest)}" if largest else "try a smaller quantisation"
        if len(list(self._models(plan))) > 1 or self._matrix_heads_bytes(plan):
            remedy += f", or {options(draft='suffix')}"
        name = self._request.target.files[0].name
        n_ctx, shortage = plan.context.n_ctx, self._shortage_text(plan)
        return f"{name}: a context of {n_ctx} tokens {shortage}; {remedy}"

    def _shortage_text(self, plan: MemoryPlan) -> str:
        """Return how much a plan that does not fit needs, and how much is free."""
        said = str(self._shortage(plan) or Shortage(HOST, 0, self._free.by_device[HOST]))
        if (size := self._projector_bytes(plan)) and self._request.projector:
            said += f" ({self._request.projector.name} takes {format_bytes(size)})"
        return said
