"""Memory plan: whether two models and their caches fit, before any of it is loaded.

Where they do not, the drafter goes first if nobody asked for it, or its cache is kept in fewer bits
if somebody did; then the context shrinks, unless it was named. Weights count in full although they
are mapped from their file: llama.cpp rearranges most of them, which takes a copy, and the others
would be read from the disk again for every token.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.facts import facts_of
from localspec.memory.available import HOST, free_memory
from localspec.memory.estimate import notes_bytes
from localspec.memory.model_memory import ModelMemory
from localspec.utils.format import format_bytes

# A context is not made smaller than this, and is a multiple of it, as in llama.cpp.
_STEP = 256
_SMALLER = "q8_0"
# The header tells what is needed well enough if so many times as much is free.
_AMPLE = 2
# Nor is the library asked about a context that needs so many times as much as is free.
_ABSURD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to load. kv_type to flash_attention: as in RuntimeConfig; snapshots: the target's.

    context: tokens of text; named: by the user. drafter: the file of a model that drafts; optional:
    nobody asked for it.
    """

    target: Path
    context: int
    named: bool = False
    drafter: Path | None = None
    optional: bool = False
    kv_type: str = "f16"
    drafter_kv_type: str = "f16"
    gpu_layers: int | None = None
    flash_attention: bool | None = None
    snapshots: int = 0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits. notes: what is less than was wished, and why, a line each.

    no_drafter: why the drafter that nobody asked for is left out, if it must be.
    """

    context: int
    drafter_kv_type: str
    no_drafter: str | None = None
    notes: tuple[str, ...] = ()


def memory_plan(wish: Wish, free: Mapping[str, int] | None = None) -> MemoryPlan:
    """What of a wish fits in so many free bytes by device; None is what this machine has free.

    Raises ModelLoadError, with the figures, where nothing does, or not the context that was named.
    """
    if free is None:
        free = free_memory(gpu_layers=wish.gpu_layers)
    search = _Search(wish, free)
    try:
        return search.plan()
    finally:
        search.close()


class _Search:
    """Tries one thing after the other."""

    def __init__(self, wish: Wish, free: Mapping[str, int]) -> None:
        self._wish = wish
        self._free = free
        self._target = self._model(wish.target, wish.snapshots)
        self._drafter = self._model(wish.drafter) if wish.drafter else None

    def _model(self, path: Path, snapshots: int = 0) -> ModelMemory:
        return ModelMemory(
            facts_of(path),
            gpu_layers=self._wish.gpu_layers,
            flash_attention=self._wish.flash_attention,
            snapshots=snapshots,
        )

    def plan(self) -> MemoryPlan:
        wished = MemoryPlan(self._wish.context, self._wish.drafter_kv_type)
        if self._ample(wished):
            return wished
        for plan in self._plans(wished):
            if not self._lacking(plan):
                return plan
        raise ModelLoadError(self._refusal(plan))

    def close(self) -> None:
        for model in (self._target, self._drafter):
            if model:
                model.close()

    def _ample(self, plan: MemoryPlan) -> bool:
        rough = [model.roughly(plan.context, kv_type) for model, kv_type in self._models(plan)]
        known = [each for each in rough if each is not None]
        return (
            len(known) == len(rough)
            and self._free.keys() == {HOST}
            and _AMPLE * sum(known) <= self._free[HOST]
        )

    def _plans(self, plan: MemoryPlan) -> Iterator[MemoryPlan]:
        """From what is wished to what is least."""
        yield plan
        if self._drafter and self._wish.optional:
            plan = replace(
                plan, no_drafter=f"{self._drafter.name} is left out: both {self._short(plan)}"
            )
            yield plan
        elif self._drafter and self._wish.flash_attention is not False:
            note = (
                f"the drafter's cache is kept as {_SMALLER}, and it may draft worse: "
                f"as {plan.drafter_kv_type} both {self._short(plan)}"
            )
            plan = replace(plan, drafter_kv_type=_SMALLER, notes=(note,))
            yield plan
        if not self._wish.named and (context := self._largest(plan)):
            note = f"context {context}: {plan.context} {self._short(plan)}"
            yield replace(plan, context=context, notes=(*plan.notes, note))

    def _models(self, plan: MemoryPlan) -> Iterator[tuple[ModelMemory, str]]:
        """Those of a plan, and what their keys and values are kept as."""
        yield self._target, self._wish.kv_type
        if self._drafter and not plan.no_drafter:
            yield self._drafter, plan.drafter_kv_type

    def _lacking(self, plan: MemoryPlan) -> tuple[str, int] | None:
        """The device that lacks the most for it, and what is needed there; None if none does."""
        models = list(self._models(plan))
        least = sum(model.at_least(plan.context, kv_type) for model, kv_type in models)
        most = sum(self._free.values())
        # Even to ask about a context takes the notes on its tokens.
        if least > _ABSURD * most or _ABSURD * notes_bytes(plan.context) > most:
            return HOST, least
        needed = Counter[str]()
        for model, kv_type in models:
            needed.update(model.needed(plan.context, kv_type))
        lacking = [
            (each - self._free[device], device)
            for device, each in needed.items()
            if each > self._free.get(device, each)
        ]
        if not lacking:
            return None
        _, device = max(lacking)
        return device, needed[device]

    def _largest(self, plan: MemoryPlan) -> int:
        """The most tokens of context that fit, 0 if none do."""
        contexts = range(_STEP, plan.context, _STEP)
        fitting = bisect_left(
            contexts,
            True,
            key=lambda context: self._lacking(replace(plan, context=context)) is not None,
        )
        return contexts[fitting - 1] if fitting else 0

    def _refusal(self, plan: MemoryPlan) -> str:
        """Of the least that was tried."""
        largest = self._largest(plan) if self._wish.named else 0
        remedy = f"try --ctx {largest}" if largest else "try a smaller quantisation"
        if len(list(self._models(plan))) > 1:
            remedy += ", or --draft suffix"
        name = self._target.name
        return f"{name}: a context of {plan.context} tokens {self._short(plan)}; {remedy}"

    def _short(self, plan: MemoryPlan) -> str:
        """What a plan that does not fit lacks."""
        device, needed = self._lacking(plan) or (HOST, 0)
        of = "" if device == HOST else f" on {device}"
        free = self._free[device]
        return f"would need {format_bytes(needed)}{of}, and {format_bytes(free)} are free"
