"""Memory request: what is to be loaded; memory plan: what of it fits."""

from dataclasses import dataclass

from localspec.gguf.facts import Facts
from localspec.llama.placement import DEFAULT, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What is to be loaded.

    context: tokens of text. fixed_context: whether the user named the context, which then stays.
    target_loaded: whether the target's weights are in memory already, at `placement`.
    drafters: the models that draft; the target itself stands for the heads inside.
    optional_drafter: whether they may be left out, because nobody asked for them. kv_type to
    flash_attention: as in RuntimeConfig. swa_full, snapshots, branches: of the target, as in
    ContextParams; no snapshots are made where an optional drafter is left out.
    texts: at once; as many as fit without giving up anything. reserve: bytes that stay free on each
    device, beside what always does. matrix_heads: drafters without a cache: their weights take main
    memory, and the target's output matrix a second time where they have none.
    ubatch: as in RuntimeConfig.
    """

    target: Facts
    context: int
    fixed_context: bool = False
    drafters: tuple[Facts, ...] = ()
    optional_drafter: bool = False
    kv_type: str = "f16"
    drafter_kv_type: str = "f16"
    placement: Placement = DEFAULT
    drafter_placement: Placement | None = None
    flash_attention: bool | None = None
    swa_full: bool = False
    snapshots: int = 0
    branches: int = 0
    matrix_heads: tuple[Facts, ...] = ()
    target_loaded: bool = False
    texts: int = 1
    reserve: int = 0
    ubatch: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits of a request.

    context: tokens of text. no_drafter: why the drafter is left out, if it is. notes: what else is
    less than requested, and why, one line each. needed: bytes that the whole request takes, on all
    devices together. refusal: why nothing fits and what to do, in one line; None where this fits.
    snapshots: as requested, fewer, or 0 without the drafter. texts: for how many the caches have
    room. placement, drafter_placement: as in RuntimeConfig. ubatch: as in ContextParams, of
    the target.
    """

    context: int
    drafter_kv_type: str
    no_drafter: str | None = None
    notes: tuple[str, ...] = ()
    needed: int = 0
    refusal: str | None = None
    snapshots: int = 0
    placement: Placement = DEFAULT
    drafter_placement: Placement | None = None
    texts: int = 1
    ubatch: int | None = None
