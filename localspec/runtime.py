"""Runtime: where and how the models run on this machine."""

import os
from dataclasses import dataclass

import psutil

from localspec.errors import InvalidValueError
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.models import memory
from localspec.models.gguf import Header

# More is there for the asking (--ctx); a model's full context often would not fit in memory.
DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Runtime:
    """Options for both models.

    context: tokens of text; None is the model's own, up to DEFAULT_CONTEXT.
    gpu_layers: None is all of them if this build has a GPU, else none.
    threads: None is the physical cores this process may use.
    flash_attention: None is wherever the library can.
    """

    context: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    flash_attention: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("context", 2), ("gpu_layers", -1), ("threads", 1)):
            value = getattr(self, name)
            if value is not None and not least <= value < 2**31:
                raise InvalidValueError(f"{name} is {value}; it must be {least} or more")

    def context_size(self, model: Model) -> int:
        """How many tokens of text this model gets."""
        return self.context or min(model.n_ctx_train, DEFAULT_CONTEXT)

    def context_for(self, model: Model, header: Header, n_ctx: int) -> Context:
        """A cache of `n_ctx` tokens, refused before it is made if memory cannot hold it."""
        if not library.can_offload():
            memory.require_room(header, model.path.name, n_ctx)
        return Context(
            model,
            n_ctx=n_ctx,
            threads=self.threads or physical_cores(),
            flash_attention=self.flash_attention,
        )


def physical_cores() -> int:
    """The physical cores this process may use: hyperthreads slow llama.cpp down."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    physical = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return min(physical, allowed or physical)
