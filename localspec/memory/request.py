"""Memory request: what is to be loaded; memory plan: what of it fits."""

from dataclasses import dataclass, replace
from typing import Any

from localspec.gguf.facts import Facts
from localspec.gguf.reader import TensorInfo
from localspec.llama.context_params import ContextParams
from localspec.llama.placement import DEFAULT, Placement


@dataclass(frozen=True, slots=True)
class ProjectorRoom:
    """Room on a GPU for the file that reads images.

    name: of the file. size: bytes. is_asked: whether the user wants images, so that it comes before
    layers of the target; else it takes what the target leaves.
    """

    name: str
    size: int
    is_asked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What is to be loaded.

    context: of the target. It gets room for as many of its texts as fit without giving up anything,
    and no snapshots where an optional drafter is left out; without `ubatch`, the plan chooses it.
    fixed_context: whether the user named its tokens, which then stay.
    target_loaded: whether the target's weights are in memory already, at `placement`.
    drafters: the models that draft; the target itself stands for the heads inside.
    optional_drafter: whether they may be left out, because nobody asked for them. drafter_kv_type
    to drafter_placement: as in RuntimeConfig. reserve: bytes that stay free on each device, beside
    what always does. matrix_heads: drafters without a cache: their weights take main memory, and
    the target's output matrix a second time where they have none. projector: of what reads
    images for the target, if it is to have room. adapters: the tensors of LoRA adapters, beside
    the weights of the target that they change.
    """

    target: Facts
    context: ContextParams
    fixed_context: bool = False
    drafters: tuple[Facts, ...] = ()
    optional_drafter: bool = False
    drafter_kv_type: str = "f16"
    placement: Placement = DEFAULT
    drafter_placement: Placement | None = None
    matrix_heads: tuple[Facts, ...] = ()
    target_loaded: bool = False
    reserve: int = 0
    projector: ProjectorRoom | None = None
    adapters: tuple[TensorInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits of a request.

    context: of the target. no_drafter: why the drafter is left out, if it is. notes: what else is
    less than requested, and why, one line each. needed: bytes that the whole request takes, on all
    devices together. refusal: why nothing fits and what to do, in one line; None where this fits.
    placement, drafter_placement: as in RuntimeConfig. projector_gpu: where the projector has room;
    None: on no GPU.
    """

    context: ContextParams
    drafter_kv_type: str
    no_drafter: str | None = None
    notes: tuple[str, ...] = ()
    needed: int = 0
    refusal: str | None = None
    placement: Placement = DEFAULT
    drafter_placement: Placement | None = None
    projector_gpu: str | None = None

    def with_context(self, **changes: Any) -> "MemoryPlan":
        """The same with another context. changes: of its ContextParams."""
        return replace(self, context=replace(self.context, **changes))
