"""Model: the weights and the vocabulary of one GGUF."""

import ctypes
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import llama_cpp

from localspec.errors import LocalspecError, ModelLoadError, OutOfMemoryError
from localspec.llama import library
from localspec.llama.compute_thread import OwnThread, shielded
from localspec.llama.fim_tokens import FimTokens
from localspec.llama.model_params import model_params
from localspec.llama.placement import DEFAULT, LOAD_MODES, SPLIT_MODES, Placement
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
# Tokens that are found in a text before the rest of it is tokenized.
_SPECIAL = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED


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


class Model(Closing):
    """A loaded GGUF. Close it (or use `with`) to free the weights.

    path: the file, whose header was checked by `gguf.check`. placement: where its layers are. mtp:
    whether its heads of multi-token prediction are loaded too, if it has any. chat_template: in
    place of that of the GGUF. load_mode: one of LOAD_MODES.

    n_vocab: number of tokens. n_ctx_train: tokens of context in training. rotates: whether it tells
    positions by rotations (RoPE), which may be scaled. tells_rows_apart: whether rows and columns
    of an image have rotations of their own (M-RoPE). size: bytes of the weights. is_offloaded:
    whether layers are on a GPU or a worker. sliding_window: in tokens; 0 where every layer attends
    to the whole text. thread: that computes its passes beside those of other models; None: see
    compute_thread. is_unlocked: whether the system refuses to keep it in memory, as the mode asks.
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
    ) -> None:
        self.path = path
        self.placement = placement
        self.mtp = mtp
        self._given_template = chat_template
        self.thread: OwnThread | None = None
        self.projector: MediaReader | None = None
        self.no_projector: str | None = None
        self._handle: Any = None
        # Held while another thread reads the vocabulary.
        self._counting = threading.Lock()
        params = model_params(placement, mtp=mtp, load_mode=load_mode)
        self.is_offloaded = params.is_offloaded
        self._workers = params.workers
        library.clear_log()
        try:
            self._load(params.values)
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

    def require_open(self) -> None:
        """Raise LocalspecError after `close`."""
        if self._handle is None:
            raise LocalspecError(f"{self.path.name} was closed; load it again")

    @property
    def _vocab(self) -> Any:
        return llama_cpp.llama_model_get_vocab(self.handle)

    def tokenize(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Return the tokens of a text, or of bytes that may cut a character.

        add_special: add BOS and EOS where the model wants them. parse_special: take what is written
        like a control token for that token.
        """
        data = text.encode() if isinstance(text, str) else text
        size = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * size)()
            n = llama_cpp.llama_tokenize(
                self._vocab, data, len(data), ids, size, add_special, parse_special
            )
            if n >= 0:
                return list(ids[:n])
            size = -n

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has. Any thread may call this at any time: `close` waits.

        It reads nothing but the vocabulary, so passes are computed meanwhile.
        """
        with self._counting:
            return len(self.tokenize(text, add_special=False))

    @cached_property
    def new_line(self) -> int:
        """The token of a line feed, or the last of those that it takes."""
        return [0, *self.tokenize_after("\n")][-1]

    def tokenize_after(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Return the tokens of a text that continues another one: without BOS or a space in front.

        parse_special: as in `tokenize`. What follows the first special token is tokenized as in a
        text of its own.
        """
        alone = self.tokenize(text, add_special=False, parse_special=parse_special)
        if b"".join(self._piece(token, special=True) for token in alone) == text.encode():
            return alone
        # SentencePiece put a space in front, as it does at the start of a text only.
        for before in ("\n", "a"):
            first, both = (
                self.tokenize(part, add_special=False, parse_special=parse_special)
                for part in (before, before + text)
            )
            if both[: len(first)] == first:
                return both[len(first) :]
        return alone

    def spell_after(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Return tokens that spell a text which continues another one, as the model would write it.

        parse_special: as in `tokenize`. Other than in `tokenize_after`, no space is put behind a
        special token, and none is lost beside one. Characters that the vocabulary lacks have the
        tokens that stand for them.
        """
        found, rest = list[int](), text
        while rest:
            tokens = self.tokenize_after(rest, parse_special=parse_special)
            count, size = self._spelled(tokens, rest.encode())
            if not count:
                tokens = self.tokenize_after(rest[0], parse_special=parse_special)
                count, size = len(tokens), len(rest[0].encode())
            found += tokens[:count]
            rest = rest.encode()[size:].decode()
        return found

    def _spelled(self, tokens: Sequence[int], data: bytes) -> tuple[int, int]:
        """How many tokens spell how many bytes of a text, from its beginning.

        Where not all do, up to the last special token of those that do, or the last character.
        """
        at = 0
        special = character = 0, 0
        for count, token in enumerate(tokens, 1):
            piece = self._piece(token, special=True)
            if not data.startswith(piece, at):
                return special if special[0] else character
            at += len(piece)
            if llama_cpp.llama_vocab_get_attr(self._vocab, token) & _SPECIAL:
                special = count, at
            if at == len(data) or data[at] & 0xC0 != 0x80:
                character = count, at
        return character

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, maybe half a character; none for control tokens."""
        return self._piece(token, special=False)

    def piece_text(self, token: int) -> str:
        """Return a token as it is written in a prompt, control tokens included."""
        return self._piece(token, special=True).decode("utf-8", "replace")

    def detokenized(self, token: int) -> bytes:
        """Return the text of a token that stands alone: without a space that begins a word."""
        size, ids = 64, (llama_cpp.llama_token * 1)(token)
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_detokenize(self._vocab, ids, 1, buffer, size, False, True)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def _piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def ends_generation(self, token: int) -> bool:
        """Return whether this token ends a generation (EOS, end of turn, ...)."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    @property
    def bos(self) -> int:
        """The token that begins a text, or -1."""
        return int(llama_cpp.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        """The token that ends a text, or -1."""
        return int(llama_cpp.llama_vocab_eos(self._vocab))

    @property
    def vocabulary_type(self) -> int:
        """llama.cpp's number for the kind of tokenizer (SPM, BPE, ...)."""
        return int(llama_cpp.llama_vocab_type(self._vocab))

    @cached_property
    def vocabulary_fingerprint(self) -> str:
        """A SHA-256 over the texts of all tokens: models of equal vocabulary have the same."""
        digest = hashlib.sha256()
        for token in range(self.n_vocab):
            digest.update(self.token_text(token) + b"\0")
        return digest.hexdigest()

    @property
    def adds_bos(self) -> bool:
        """Whether BOS is put in front of a text."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))

    @property
    def adds_eos(self) -> bool:
        """Whether EOS is put behind a text."""
        return bool(llama_cpp.llama_vocab_get_add_eos(self._vocab))

    @cached_property
    def fim_tokens(self) -> FimTokens | None:
        """The tokens around the parts of a text with a gap; None if the model was not taught."""
        return FimTokens.of(self._vocab)

    def token_text(self, token: int) -> bytes:
        """Return a token as it stands in the vocabulary of the GGUF."""
        return llama_cpp.llama_vocab_get_text(self._vocab, token) or b""

    @cached_property
    def end_tokens(self) -> Sequence[int]:
        """All tokens that end a generation."""
        return tuple(token for token in range(self.n_vocab) if self.ends_generation(token))

    @cached_property
    def chat_template(self) -> str | None:
        """The Jinja chat template that was given, else that of the GGUF; None if it has none."""
        if self._given_template is not None:
            return self._given_template
        template = llama_cpp.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    @cached_property
    def suppressed_tokens(self) -> Sequence[int]:
        """The tokens that, as the GGUF says, must never be generated."""
        count = ctypes.c_int32(0)
        tokens = llama_cpp.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        return tuple(tokens[: count.value]) if count.value else ()

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
