"""Model: the weights and the vocabulary of one GGUF."""

import ctypes
import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama import extra_buffers, library
from localspec.llama.devices import can_offload
from localspec.utils.progress import report_progress


class Model:
    """A loaded GGUF.

    path: the file, already checked by `models.gguf`. gpu_layers: how many layers go to the GPU;
    None means all of them if this build has one, else none.

    Raises ModelLoadError. Close it (or use `with`) to free the weights.
    """

    def __init__(self, path: Path, *, gpu_layers: int | None = None) -> None:
        self.path = path
        self._handle: Any = None
        library.clear_log()
        params, progress = model_params(gpu_layers), _Progress(path.name)
        params.progress_callback = progress.callback
        self._handle = llama_cpp.llama_model_load_from_file(bytes(path), params)
        if progress.raised:
            self.close()
            raise progress.raised
        if not self._handle:
            raise ModelLoadError(
                f"{path.name} cannot be loaded ({library.first_error() or 'no reason given'}); "
                "check that the file is complete and that this llama.cpp is new enough for it"
            )
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self.n_ctx_train = int(llama_cpp.llama_model_n_ctx_train(self._handle))
        self.size = int(llama_cpp.llama_model_size(self._handle))
        self.window = int(llama_cpp.llama_model_n_swa(self._handle))

    @property
    def handle(self) -> Any:
        """The library's pointer, for `Context`."""
        if self._handle is None:
            raise LocalspecError(f"{self.path.name} was closed; load it again")
        return self._handle

    @property
    def _vocab(self) -> Any:
        return llama_cpp.llama_model_get_vocab(self.handle)

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of a text. add_special: put BOS (and the like) where the model wants them."""
        data = text.encode()
        size = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * size)()
            n = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, size, add_special, True)
            if n >= 0:
                return list(ids[:n])
            size = -n

    def tokenize_after(self, text: str) -> list[int]:
        """Token ids of a text that goes on from another: no BOS, no space put in front.

        Behind its special tokens, all is as in a text of its own.
        """
        alone = self.tokenize(text, add_special=False)
        if b"".join(self._piece(token, special=True) for token in alone) == text.encode():
            return alone
        # SentencePiece put a space in front, which it does not where something stands already.
        for before in ("\n", "a"):
            first, both = (
                self.tokenize(part, add_special=False) for part in (before, before + text)
            )
            if both[: len(first)] == first:
                return both[len(first) :]
        return alone

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to a text: maybe half a character, none for control tokens."""
        return self._piece(token, special=False)

    def piece_text(self, token: int) -> str:
        """How a token is written in a prompt, control tokens included."""
        return self._piece(token, special=True).decode("utf-8", "replace")

    def _piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def ends(self, token: int) -> bool:
        """Whether this token ends a generation (EOS, end of turn, ...)."""
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
    def vocabulary(self) -> str:
        """What tells this vocabulary from others: a SHA-256 of every token as it is spelt."""
        digest = hashlib.sha256()
        for token in range(self.n_vocab):
            digest.update(self.token_text(token) + b"\0")
        return digest.hexdigest()

    @property
    def adds_bos(self) -> bool:
        """Whether a text starts with BOS."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))

    @property
    def adds_eos(self) -> bool:
        """Whether a prompt ends with EOS."""
        return bool(llama_cpp.llama_vocab_get_add_eos(self._vocab))

    def token_text(self, token: int) -> bytes:
        """A token as the vocabulary spells it."""
        return llama_cpp.llama_vocab_get_text(self._vocab, token) or b""

    @cached_property
    def ends_text(self) -> Sequence[int]:
        """Every token that ends a generation."""
        return tuple(token for token in range(self.n_vocab) if self.ends(token))

    @cached_property
    def chat_template(self) -> str | None:
        """The GGUF's own Jinja chat template, if it has one."""
        template = llama_cpp.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    @cached_property
    def suppressed(self) -> Sequence[int]:
        """Tokens the GGUF says must never be generated."""
        count = ctypes.c_int32(0)
        tokens = llama_cpp.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        return tuple(tokens[: count.value]) if count.value else ()

    def close(self) -> None:
        """Free the weights; its contexts must be closed before."""
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_model_free(handle)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class _Progress:
    """Tells how far the library is. raised: what ended the loading, by a watcher or by Ctrl-C."""

    def __init__(self, name: str) -> None:
        self.raised: BaseException | None = None
        self._doing = f"loading {name}"
        self.callback = llama_cpp.llama_progress_callback(self._tell)

    def _tell(self, share: float, _data: object) -> bool:
        # Nothing may be raised through the library.
        try:
            report_progress(self._doing, share)
        except BaseException as error:
            self.raised = self.raised or error
        return self.raised is None


def model_params(gpu_layers: int | None) -> Any:
    """Return the library's parameters for loading a model; `gpu_layers` as in Model."""
    params = llama_cpp.llama_model_default_params()
    default_layers = -1 if can_offload() else 0
    params.n_gpu_layers = default_layers if gpu_layers is None else gpu_layers
    params.use_extra_bufts = extra_buffers.usable()
    return params
