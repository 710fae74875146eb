"""Memory plan: what of two models and their caches fits in memory, before any of it is loaded.

Where the request does not fit, three things are given up in this order: a drafter that nobody asked
for; then, of a drafter that the user asked for, the precision of its cache; then a part of the
context, unless the user named its size. Weights count in full although they are mapped from their
file: llama.cpp repacks most of them, which takes a copy, and reads the others for every token.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from localspec.errors import ModelLoadError
from localspec.gguf.facts import Facts
from localspec.gguf.heads import MTP_KINDS, kind_of
from localspec.gguf.matrix_heads import matrix_head_of
from localspec.memory.available import HOST, free_memory, lacking, shortage_text
from localspec.memory.estimate import cell_bytes
from localspec.memory.model_memory import ModelMemory

# A smaller context is a multiple of this many tokens, and at least one of it, as in llama.cpp.
_CONTEXT_STEP = 256
_SMALLER_KV_TYPE = "q8_0"
# With this many times the estimate free, the estimate is enough, and the library is not asked.
_AMPLE = 2
# A request for this many times the free memory is refused without asking the library.
_HOPELESS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What is to be loaded.

    context: tokens of text. fixed_context: whether the user named the context, which then stays.
    drafters: the models that draft; the target itself stands for the heads inside.
    optional_drafter: whether they may be left out, because nobody asked for them. kv_type to
    flash_attention: as in RuntimeConfig. snapshots, branches: of the target, as in Context; no
    snapshots are made where an optional drafter is left out.
    matrix_heads: drafters without a cache: their weights take main memory, and the target's output
    matrix a second time where they have none. rpc: as in RuntimeConfig.
    """

    target: Facts
    context: int
    fixed_context: bool = False
    drafters: tuple[Facts, ...] = ()
    optional_drafter: bool = False
    kv_type: str = "f16"
    drafter_kv_type: str = "f16"
    gpu_layers: int | None = None
    flash_attention: bool | None = None
    snapshots: int = 0
    branches: int = 0
    matrix_heads: tuple[Facts, ...] = ()
    rpc: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits of a request.

    context: tokens of text. no_drafter: why the drafter is left out, if it is. notes: what else is
    less than requested, and why, one line each. needed: bytes that the whole request takes, on all
    devices together. refusal: why nothing fits and what to do, in one line; None where this fits.
    snapshots: as requested, or 0 without the drafter.
    """

    context: int
    drafter_kv_type: str
    no_drafter: str | None = None
    notes: tuple[str, ...] = ()
    needed: int = 0
    refusal: str | None = None
    snapshots: int = 0


def memory_plan(request: MemoryRequest, free: Mapping[str, int] | None = None) -> MemoryPlan:
    """Plan what to load. free: free bytes by device; None asks this machine.

    Raises ModelLoadError, with the figures, where not even the least fits.
    """
    plan = best_plan(request, free)
    if plan.refusal:
        raise ModelLoadError(plan.refusal)
    return plan


def best_plan(request: MemoryRequest, free: Mapping[str, int] | None = None) -> MemoryPlan:
    """Plan as `memory_plan`; where nothing fits, return the plan with its `refusal` set."""
    if free is None:
        free = free_memory(gpu_layers=request.gpu_layers, rpc=request.rpc)
    search = _Search(request, free)
    try:
        return search.plan()
    finally:
        search.close()


class _Search:
    """Tries one plan after the other."""

    def __init__(self, request: MemoryRequest, free: Mapping[str, int]) -> None:
        self._request = request
        self._free = free
        rpc = request.rpc
        self._target = self._model(request.target, request.snapshots, request.branches, rpc=rpc)
        self._alone = self._target
        if request.optional_drafter and request.snapshots:
            self._alone = self._model(request.target, branches=request.branches, rpc=rpc)
        self._drafters = [self._drafter(drafter) for drafter in request.drafters]

    def _drafter(self, drafter: Facts) -> ModelMemory:
        inside = drafter.files == self._request.target.files and drafter.has_mtp
        kind = kind_of(drafter.header)
        alone = kind in MTP_KINDS
        rpc = self._request.rpc if inside or kind else ()
        return self._model(drafter, mtp=inside or alone, inside=inside, rpc=rpc)

    def _model(
        self,
        model: Facts,
        snapshots: int = 0,
        branches: int = 0,
        *,
        mtp: bool = False,
        inside: bool = False,
        rpc: tuple[str, ...] = (),
    ) -> ModelMemory:
        return ModelMemory(
            model,
            gpu_layers=self._request.gpu_layers,
            flash_attention=self._request.flash_attention,
            snapshots=snapshots,
            branches=branches,
            mtp=mtp,
            inside=inside,
            rpc=rpc,
        )

    def plan(self) -> MemoryPlan:
        request = self._request
        requested = MemoryPlan(
            request.context, request.drafter_kv_type, snapshots=request.snapshots
        )
        estimate = self._estimate(requested)
        if estimate is not None and self._is_ample(estimate):
            return replace(requested, needed=estimate)
        requested = replace(requested, needed=self._needed(requested).total())
        for plan in self._plans(requested):
            if not self._shortage(plan):
                return plan
        return replace(plan, refusal=self._refusal(plan))

    def close(self) -> None:
        for model in {self._target, self._alone, *self._drafters}:
            model.close()

    def _estimate(self, plan: MemoryPlan) -> int | None:
        """Return the bytes in all by the headers alone; None where these do not tell."""
        found = [
            model.estimated_bytes(plan.context, kv_type) for model, kv_type in self._models(plan)
        ]
        known = [size for size in found if size is not None]
        return self._matrix_heads_bytes(plan) + sum(known) if len(known) == len(found) else None

    def _is_ample(self, estimate: int) -> bool:
        return self._free.keys() == {HOST} and _AMPLE * estimate <= self._free[HOST]

    def _plans(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """Yield the request, then what takes less and less."""
        yield plan
        names = [each.name for each in self._drafters]
        names += [each.files[0].name for each in self._request.matrix_heads]
        if names and self._request.optional_drafter:
            reason = f"{names[0]} is left out: both {self._shortage_text(plan)}"
            plan = replace(plan, no_drafter=reason, snapshots=0)
            yield plan
        elif self._drafters and self._request.flash_attention is not False:
            note = (
                f"the drafter's cache is kept as {_SMALLER_KV_TYPE}, and it may draft worse: "
                f"as {plan.drafter_kv_type} both {self._shortage_text(plan)}"
            )
            plan = replace(plan, drafter_kv_type=_SMALLER_KV_TYPE, notes=(note,))
            yield plan
        if not self._request.fixed_context and (context := self._largest_context(plan)):
            note = f"context {context}: {plan.context} {self._shortage_text(plan)}"
            yield replace(plan, context=context, notes=(*plan.notes, note))

    def _models(self, plan: MemoryPlan) -> Iterator[tuple[ModelMemory, str]]:
        """Yield the models of a plan with the types of their caches."""
        target = self._alone if plan.no_drafter else self._target
        yield target, self._request.kv_type
        if not plan.no_drafter:
            yield from ((drafter, plan.drafter_kv_type) for drafter in self._drafters)

    def _is_hopeless(self, plan: MemoryPlan) -> bool:
        """Whether even asking the library would take too much memory, or is in vain."""
        most = sum(self._free.values())
        least = self._least(plan)
        return least > _HOPELESS * most or _HOPELESS * cell_bytes(plan.context) > most

    def _least(self, plan: MemoryPlan) -> int:
        models = self._models(plan)
        least = sum(model.least_bytes(plan.context, kv_type) for model, kv_type in models)
        return self._matrix_heads_bytes(plan) + least

    def _matrix_heads_bytes(self, plan: MemoryPlan) -> int:
        """Return the bytes of heads without a cache."""
        if plan.no_drafter:
            return 0
        heads = self._request.matrix_heads
        own = all(matrix_head_of(each.files[0], each.header).has_output for each in heads)
        # Heads without an output matrix read the target's in its file, beside what llama.cpp made
        # of it.
        return sum(each.size for each in heads) + (0 if own else self._target.output_bytes)

    def _needed(self, plan: MemoryPlan) -> Counter[str]:
        """Return the bytes that a plan takes, by device."""
        if self._is_hopeless(plan):
            return Counter({HOST: self._least(plan)})
        needed = Counter({HOST: self._matrix_heads_bytes(plan)})
        for model, kv_type in self._models(plan):
            needed.update(model.bytes_by_device(plan.context, kv_type))
        return needed

    def _shortage(self, plan: MemoryPlan) -> tuple[str, int] | None:
        """Return the device that lacks the most bytes, and the bytes needed there, if one does."""
        needed = self._needed(plan)
        if self._is_hopeless(plan):
            return HOST, needed[HOST]
        return lacking(needed, self._free)

    def _largest_context(self, plan: MemoryPlan) -> int:
        """Return the most tokens of context that fit, 0 where none do."""
        contexts = range(_CONTEXT_STEP, plan.context, _CONTEXT_STEP)
        fitting = bisect_left(
            contexts,
            True,
            key=lambda context: self._shortage(replace(plan, context=context)) is not None,
        )
        return contexts[fitting - 1] if fitting else 0

    def _refusal(self, plan: MemoryPlan) -> str:
        """Return why the last plan that was tried does not fit, and what to do."""
        largest = self._largest_context(plan) if self._request.fixed_context else 0
        remedy = f"try --ctx {largest}" if largest else "try a smaller quantisation"
        if len(list(self._models(plan))) > 1 or self._matrix_heads_bytes(plan):
            remedy += ", or --draft suffix"
        name = self._target.name
        return f"{name}: a context of {plan.context} tokens {self._shortage_text(plan)}; {remedy}"

    def _shortage_text(self, plan: MemoryPlan) -> str:
        """Return how much a plan that does not fit needs, and how much is free."""
        device, needed = self._shortage(plan) or (HOST, 0)
        return shortage_text(device, needed, self._free)
