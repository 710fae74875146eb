"""Model: the weights of one GGUF, with its vocabulary."""

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import llama_cpp

from localspec.errors import LocalspecError, ModelLoadError, OutOfMemoryError
from localspec.gguf.lora import Lora, fingerprints
from localspec.llama import library
from localspec.llama.compute_thread import OwnThread, shielded
from localspec.llama.lora import Adapters
from localspec.llama.model_params import model_params
from localspec.llama.placement import DEFAULT, LOAD_MODES, SPLIT_MODES, Placement
from localspec.llama.vocabulary import Vocabulary
from localspec.utils import lack_of_memory
from localspec.utils.closing import Closing
from localspec.utils.option_names import option
from localspec.utils.progress import report_progress

# What the library logs where the system does not let it lock memory.
_NOT_LOCKED = "failed to mlock"
# Rotations by sections.
_OF_SECTIONS = llama_cpp.LLAMA_ROPE_TYPE_MROPE, llama_cpp.LLAMA_ROPE_TYPE_IMROPE
# Architectures whose graph computes the logits of every row, also where those of some are wanted;
# the library then takes the first ones for those.
_EVERY_ROW = (b"cogvlm",)


class MediaReader(Protocol):
    """Reads images and sounds for a model. reads_images, reads_sounds: which of them."""

    @property
    def reads_images(self) -> bool: ...

    @property
    def reads_sounds(self) -> bool: ...

    def tokens(self, data: bytes) -> list[int]:
        """The tokens of a file's contents. Raises InvalidValueError if it cannot be read."""
        ...

    def prepare(self, data: bytes) -> None:
        """Read a file, and keep it for `tokens`, which raises the same."""
        ...

    @property
    def reserved(self) -> Mapping[str, int]:
        """The bytes by device that it will take with the first image, and nothing else may."""
        ...

    @property
    def note(self) -> str | None:
        """Why it is on the processor although the model is not; None if it is not known to be."""
        ...

    def close(self) -> None: ...


class Model(Vocabulary, Closing):
    """A loaded GGUF. Close it (or use `with`) to free the weights.

    path: the file, whose header was checked by `gguf.check`. placement: where its layers are. mtp:
    whether its heads of multi-token prediction are loaded too, if it has any. chat_template: in
    place of that of the GGUF. load_mode: one of LOAD_MODES. loras: adapters that are on in all of
    its contexts, whose headers were checked by `gguf.lora`.

    n_vocab: number of tokens. n_ctx_train: tokens of context in training. rotates: whether it tells
    positions by rotations (RoPE), which may be scaled. tells_rows_apart: whether rows and columns
    of an image have rotations of their own (M-RoPE). size: bytes of the weights. is_offloaded:
    whether layers are on a GPU or a worker. sliding_window: in tokens; 0 where every layer attends
    to the whole text. thread: that computes its passes beside those of other models; None: see
    compute_thread. is_unlocked: whether the system refuses to keep it in memory, as the mode asks.
    adapters: the fingerprints and scales of `loras`.
    projector: reads images and sounds for it; None: it reads texts only. It is closed with it.
    no_projector: why a file beside it is not its projector; None where there is no such file.

    Raises ModelLoadError, InvalidValueError for a device that is not here, and WorkerError if a
    worker cannot be used.
    """

    def __init__(
        self,
        path: Path,
        placement: Placement = DEFAULT,
        *,
        mtp: bool = False,
        chat_template: str | None = None,
        load_mode: str = LOAD_MODES[0],
        loras: Sequence[Lora] = (),
    ) -> None:
        super().__init__()
        self.path = path
        self.placement = placement
        self.loras, self.adapters = loras, fingerprints(loras)
        self.mtp = mtp
        self._given_template = chat_template
        self.thread: OwnThread | None = None
        self.projector: MediaReader | None = None
        self.no_projector: str | None = None
        self._handle: Any = None
        self._vocabulary: Any = None
        # Held while another thread reads the vocabulary.
        self._counting = threading.Lock()
        params = model_params(placement, mtp=mtp, load_mode=load_mode)
        self.is_offloaded = params.is_offloaded
        self._workers = params.workers
        library.clear_log()
        try:
            self._load(params.values)
            self._adapters = Adapters(self._handle, path, loras)
        except BaseException:
            self.close()
            raise
        self.is_unlocked = "mlock" in load_mode and _NOT_LOCKED in library.logged()
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self.n_ctx_train = int(llama_cpp.llama_model_n_ctx_train(self._handle))
        rotation = llama_cpp.llama_model_rope_type(self._handle)
        self.rotates = rotation != llama_cpp.LLAMA_ROPE_TYPE_NONE
        self.tells_rows_apart = rotation in _OF_SECTIONS
        self.size = int(llama_cpp.llama_model_size(self._handle))
        self.sliding_window = int(llama_cpp.llama_model_n_swa(self._handle))

    def _load(self, values: Any) -> None:
        progress = _LoadProgress(self.path.name, self.require_workers)
        values.progress_callback = progress.callback

        def load() -> None:
            self._handle = llama_cpp.llama_model_load_from_file(bytes(self.path), values)

        shielded(load, stop=progress.end)
        if progress.raised:
            raise progress.raised
        self.require_workers()
        if not self._handle:
            raise self._load_error()
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._handle)

    def _load_error(self) -> ModelLoadError:
        what = f"{self.path.name} cannot be loaded ({library.first_error() or 'no reason given'})"
        if lack_of_memory.is_said_in(library.logged()):
            return OutOfMemoryError(
                f"{what}; close what else uses memory, or lower {option('gpu_layers')}"
            )
        remedy = "check that the file is complete and that this llama.cpp is new enough for it"
        if self.placement.split_mode != SPLIT_MODES[0]:
            remedy = f"split_mode {SPLIT_MODES[0]} works with all devices"
        return ModelLoadError(f"{what}; {remedy}")

    @property
    def handle(self) -> Any:
        """The library's pointer, for `Context`. Raises LocalspecError after `close`."""
        self.require_open()
        return self._handle

    def turn_adapters_on(self, context: Any) -> None:
        """Let a new context compute with the model's adapters. context: the library's pointer."""
        self._adapters.turn_on(context)

    def require_open(self) -> None:
        """Raise LocalspecError after `close`."""
        if self._handle is None:
            raise LocalspecError(f"{self.path.name} was closed; load it again")

    @property
    def _vocab(self) -> Any:
        self.require_open()
        return self._vocabulary

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has. Any thread may call this at any time: `close` waits.

        It reads nothing but the vocabulary, so passes are computed meanwhile.
        """
        with self._counting:
            return len(self.tokenize(text, add_special=False))

    @cached_property
    def chat_template(self) -> str | None:
        """The Jinja chat template that was given, else that of the GGUF; None if it has none."""
        if self._given_template is not None:
            return self._given_template
        template = llama_cpp.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    @cached_property
    def gives_every_row(self) -> bool:
        """Whether logits must be asked for of every row of a pass, or of none."""
        value = ctypes.create_string_buffer(64)
        llama_cpp.llama_model_meta_val_str(self.handle, b"general.architecture", value, len(value))
        return value.value in _EVERY_ROW

    @property
    def is_lost(self) -> bool:
        """Whether one of the machines that layers are on is gone."""
        return any(worker.link.lost is not None for worker in self._workers)

    def clear_log(self) -> None:
        """Forget the library's errors, unless another model's pass may be computed meanwhile."""
        if not (self.thread and self.thread.is_current):
            library.clear_log()

    def require_workers(self) -> None:
        """Raise WorkerError if a worker is gone: what was computed since then is worthless."""
        for worker in self._workers:
            worker.require()

    def close(self) -> None:
        """Free the weights. Contexts of this model must be closed before."""
        if self.projector:
            self.projector.close()
        handle = None
        try:
            with self._counting:
                handle, self._handle = self._handle, None
        finally:
            # Not under the lock: a signal's handler may close it meanwhile, in the same thread.
            if handle:
                shielded(partial(llama_cpp.llama_model_free, handle))
        if self.thread:
            self.thread.close()


class _LoadProgress:
    """Reports the progress of loading. raised: what a watcher ended the loading with."""

    def __init__(self, name: str, check: Callable[[], None]) -> None:
        self.raised: BaseException | None = None
        self._check, self._ends = check, False
        self._action = f"loading {name}"
        self.callback = llama_cpp.llama_progress_callback(self._report)

    def _report(self, share: float, _data: object) -> bool:
        # Nothing may be raised through the library.
        try:
            self._check()
            report_progress(self._action, share)
        except BaseException as error:
            self.raised = self.raised or error
        return self.raised is None and not self._ends

    def end(self) -> None:
        """Let the library end the loading at the next occasion."""
        self._ends = True
