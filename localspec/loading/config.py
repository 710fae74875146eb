"""RuntimeConfig: devices, memory and threads of the models; EngineConfig: what to load."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from localspec.drafters.spec import DraftRequest
from localspec.errors import InvalidValueError
from localspec.generation_config import require
from localspec.gguf.heads import MTP, Head
from localspec.gguf.kv_types import (
    is_quantised,
    names_of,
    needs_flash_attention,
    require_fits,
    shortest,
)
from localspec.gguf.lora import Lora, signature
from localspec.gguf.reader import Header
from localspec.llama.block_context import BlockContext
from localspec.llama.bounds import MOST_CONTEXT, MOST_THREADS
from localspec.llama.context import Context
from localspec.llama.context_params import CHUNK, LEAST_CHUNK, MOST_CHUNK, ContextParams
from localspec.llama.head_context import HeadContext
from localspec.llama.model import Model
from localspec.llama.placement import (
    DEFAULT,
    LOAD_MODES,
    SPLIT_MODES,
    Placement,
    parse_devices,
)
from localspec.llama.rope import UNSCALED, RopeScaling, require_scale
from localspec.llama.sequence import KVSequence
from localspec.memory import estimate
from localspec.memory.context_sizes import ContextSizes
from localspec.memory.drafter_places import drafter_places, place_of_drafter
from localspec.utils.cores import performance_cores
from localspec.utils.option_names import option, options
from localspec.utils.option_types import type_fields

_BOUNDS = (
    ("context", 2, MOST_CONTEXT),
    ("threads", 1, MOST_THREADS),
    ("most_threads", 1, MOST_THREADS),
    ("ubatch", LEAST_CHUNK, MOST_CHUNK),
)
_BYTES_PER_THREAD = 16 * 2**20


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Options of the target and of all draft models.

    context: the most tokens of a text, at most the model's own limit (`context_limit`); None: that
        limit, at most estimate.DEFAULT_CONTEXT.
    placement: where the target is, and a head that reads it.
    drafter_placement: where draft models are, and heads, with what their target needs; None: beside
        the target, if there is room.
    threads: None: as many as suit each model, see `threads_for`.
    most_threads: the most threads of a model where `threads` is None; None: fewer than usual only
        where other programs keep cores busy and fewer are quicker, see `threads.fit_threads`; then
        the number may change between texts.
    flash_attention: None: where the library supports it.
    reproducible: whether the logits must not depend on the width of a pass. Flash attention is then
        off, because its results depend on the width, `Engine` pads narrow passes, and the passes of
        several texts are computed one after the other.
    kv_type, drafter_kv_type: the type of the keys and values in the cache of the target, and of the
        draft models, as in `gguf.kv_types`.
    ubatch: how many tokens of a prompt the target reads in one pass; None: as many as suit the
        place that it is in, and fit.
    rope: of the target, and of drafters of its family. draft_rope_scale: of draft models; None: see
        RopeScaling.for_drafter.
    load_mode: how the files of target and drafters get into memory, one of LOAD_MODES.
    loras: adapters that the target is loaded with.

    Raises InvalidValueError for a value out of range, and for types that exclude each other.
    """

    context: int | None = None
    placement: Placement = DEFAULT
    threads: int | None = None
    flash_attention: bool | None = None
    reproducible: bool = False
    kv_type: str = "f16"
    drafter_kv_type: str = "f16"
    most_threads: int | None = None
    drafter_placement: Placement | None = None
    ubatch: int | None = None
    rope: RopeScaling = UNSCALED
    draft_rope_scale: float | None = None
    load_mode: str = LOAD_MODES[0]
    loras: tuple[Lora, ...] = ()

    def __post_init__(self) -> None:
        type_fields(self)
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if value is not None:
                require(name, value, least, most)
        if self.load_mode not in LOAD_MODES:
            raise InvalidValueError(
                f"load_mode is {self.load_mode!r:.80}; it must be one of {', '.join(LOAD_MODES)}"
            )
        require_scale("draft_rope_scale", self.draft_rope_scale)
        for name in ("kv_type", "drafter_kv_type"):
            object.__setattr__(self, name, shortest(getattr(self, name), name))
            self._require_possible(name, getattr(self, name))

    @classmethod
    def of(
        cls,
        *,
        gpu_layers: int | None = None,
        rpc: Sequence[str] = (),
        device: Sequence[str] | None = None,
        split_mode: str = SPLIT_MODES[0],
        tensor_split: Sequence[float] = (),
        cpu_moe: int = 0,
        draft_device: Sequence[str] | None = None,
        draft_gpu_layers: int | None = None,
        rope_scaling: str | None = None,
        rope_scale: float | None = None,
        rope_freq_base: float | None = None,
        yarn_orig_ctx: int | None = None,
        lora: str | Path | Sequence[str | Path] = (),
        **others: Any,
    ) -> "RuntimeConfig":
        """Return the configuration of the options of `engine.load`."""
        devices = parse_devices(device)
        workers = tuple(rpc.split(",") if isinstance(rpc, str) else rpc)
        target = Placement(gpu_layers, devices, workers, split_mode, tuple(tensor_split), cpu_moe)
        drafter = None
        if draft_device is not None:
            drafter = Placement(draft_gpu_layers, parse_devices(draft_device))
        elif draft_gpu_layers is not None:
            drafter = replace(drafter_places(target)[0], gpu_layers=draft_gpu_layers)
        rope = RopeScaling(rope_scaling, rope_scale, rope_freq_base, yarn_orig_ctx)
        given = [lora] if isinstance(lora, str | Path) else lora
        loras = tuple(map(Lora.parse, given))
        return cls(placement=target, drafter_placement=drafter, rope=rope, loras=loras, **others)

    def without_loras(self) -> "RuntimeConfig":
        """The same for another target, which the adapters were not made for."""
        return replace(self, loras=())

    @property
    def fixed_ubatch(self) -> int | None:
        """How many tokens of a prompt a pass reads; None: that is chosen when memory is planned."""
        # The width of passes changes digits, and must not depend on what is free.
        return self.ubatch or (CHUNK if self.reproducible else None)

    @property
    def flash(self) -> bool | None:
        """Whether to use flash attention; None: where the library supports it."""
        return False if self.reproducible else self.flash_attention

    def place_of_drafter(self, head: Head | None) -> Placement:
        """Where a draft model is, or a head."""
        return place_of_drafter(self.placement, self.drafter_placement, is_head=head is not None)

    @property
    def costs_depend_on(self) -> dict[str, Any]:
        """The options that may change how long a pass takes, or its last digits.

        Raises OSError if the file of an adapter is gone that was not read yet.
        """
        options = asdict(self)
        for name in ("rope", "draft_rope_scale", "loras"):
            del options[name]
        return options | ({"loras": signature(self.loras)} if self.loras else {})

    @property
    def changes_in_words(self) -> str:
        """What makes the target another one than its file, as the user said so; "" for nothing."""
        loras = [f"lora {each}" for each in self.loras]
        return ", ".join(filter(None, [self.rope_in_words, *loras]))

    @property
    def rope_in_words(self) -> str:
        """How rotations are scaled, as far as the user said so; "" for not at all."""
        drafter = self.draft_rope_scale
        own = f"draft_rope_scale {drafter:g}" if drafter else ""
        return ", ".join(filter(None, [self.rope.in_words, own]))

    @property
    def placement_in_words(self) -> str:
        """Where target and draft models are, as far as the user said so."""
        drafter = self.drafter_placement
        return self.placement.in_words + (f"; drafter {drafter.in_words}" if drafter else "")

    def threads_of(self, model: Model) -> int:
        """The number of CPU threads for this model.

        With all layers on a GPU only embeddings are looked up here, and threads that wait for more
        slow down the one that decodes.
        """
        if model.is_offloaded and model.placement.is_on_devices:
            return self.threads or 1
        return self.threads_for(model.size)

    def threads_for(self, weights: int) -> int:
        """The number of CPU threads for a model of `weights` bytes."""
        usual = threads_for(weights)
        return self.threads or min(usual, self.most_threads or usual)

    def context_size(self, header: Header) -> int:
        """The number of tokens in the context of this target."""
        return self.context or estimate.default_context(self.rope.context(header))

    def context_params(self, n_ctx: int, kv_type: str | None = None) -> ContextParams:
        """What a context for texts of `n_ctx` tokens is made with. kv_type: None: the target's."""
        return ContextParams(
            n_ctx,
            flash_attention=self.flash,
            kv_type=kv_type or self.kv_type,
            swa_full=self.reproducible,
            rope=self.rope,
        )

    def context_for(
        self, model: Model, header: Header, params: ContextParams, setting: str = "kv_type"
    ) -> KVSequence:
        """Make a cache with one text in it, for as many threads as suit the model.

        setting: the one of the cache's type. Raises OutOfMemoryError before anything is allocated
        if it does not fit in memory.
        """
        return context_with(model, header, self._suited(params, model, header, setting))

    def head_context_for(
        self, model: Model, header: Header, head: Head, target: KVSequence, params: ContextParams
    ) -> KVSequence:
        """Make a cache of a head with one text of its target; as `context_for`."""
        params = self._suited(params, model, header, "drafter_kv_type")
        # The last token of a text can be drafted with the rest of its block.
        block = head.block.size if head.block else 0
        params = replace(params, n_ctx=params.n_ctx + block)
        _require_room(model, header, params, mtp=head.kind == MTP)
        options: dict[str, Any] = {
            "target": target.context,
            "encoder_width": 0 if head.kind == MTP else head.target_width * len(head.layers),
            "chained": head.count > 1,
        }
        if head.block:
            return BlockContext(model, params, block=head.block, **options).new_sequence()
        return HeadContext(model, params, **options).new_sequence()

    def _suited(
        self, params: ContextParams, model: Model, header: Header, setting: str
    ) -> ContextParams:
        """With the model's threads. Raises InvalidValueError where it has no cache of this type."""
        require_fits(params.kv_type, header, model.path.name, setting)
        return replace(params, threads=self.threads_of(model))

    def _require_possible(self, name: str, kv_type: str) -> None:
        if self.reproducible and is_quantised(kv_type):
            raise InvalidValueError(
                f"{option(name)} {kv_type} goes with flash attention, and "
                f"{option('reproducible')} turns it off; use f16"
            )
        keys, _ = names_of(kv_type)
        if self.flash is False and needs_flash_attention(kv_type):
            raise InvalidValueError(
                f"{option(name)} {kv_type} needs flash attention for its values, and "
                f"{options(flash_attention=False)} turns it off; use "
                f"{'f16' if keys == 'f16' else f'f16 or {keys}/f16'}"
            )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What to load: the arguments of `engine.load`, checked, and its files, read.

    weights: the target of another engine of the same file, which is shared if it has the heads
    inside that the drafters need; that engine lives longer, and frees it. The two take turns.
    copied_texts, earlier_texts: which drafts may copy from; of the latter the latest that fit.
    texts: for how many texts at once caches get room, where they share one and as many fit.
    memory_faults: how often memory has run out while texts were written; so many of the largest
    plans of what it is used for are passed over. chat_template: stands for the target's own.
    mmproj: the file that reads images and sounds for the target, which has room on a GPU before
    layers of the target, or "none"; None: the one beside it, if any.
    """

    model: str | Path | None
    draft: DraftRequest
    runtime: RuntimeConfig
    remember: bool = False
    copied_texts: tuple[str, ...] = ()
    earlier_texts: tuple[str, ...] = ()
    weights: Model | None = None
    texts: int = 1
    memory_faults: int = 0
    chat_template: str | None = None
    mmproj: str | Path | None = None


def context_with(model: Model, header: Header, params: ContextParams) -> KVSequence:
    """Make a cache with one text in it.

    Raises OutOfMemoryError before anything is allocated if it does not fit in memory.
    """
    _require_room(model, header, params)
    return Context(model, params).new_sequence()


def _require_room(
    model: Model, header: Header, params: ContextParams, *, mtp: bool = False
) -> None:
    if model.is_offloaded:
        return

    def measured() -> int | None:
        with closing(ContextSizes(model.path, header, model.placement, mtp=mtp)) as sizes:
            memory = sizes.dry_model.context_memory(replace(params, texts=1))
        return sum(memory.cache.values()) if memory else None

    name, n_ctx, texts = model.path.name, params.n_ctx, params.texts
    estimate.require_room(
        header, name, n_ctx, params.kv_type, texts=texts, mtp=mtp, measured=measured
    )


def threads_for(weights: int) -> int:
    """The number of threads for a model of `weights` bytes, at most one per fast core.

    Threads wait for each other hundreds of times per pass. With a small model, waiting costs more
    time than more threads save, and far more when another program uses one of the cores.
    """
    return max(1, min(weights // _BYTES_PER_THREAD, performance_cores()))
