"""KV cache: the library's context of some texts, and how it is made, moved from and made anew."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

import llama_cpp

from localspec.errors import LOST, DeviceError, LocalspecError, ModelLoadError
from localspec.llama.batch import Batch
from localspec.llama.cached_text import CachedText
from localspec.llama.context_params import CHUNK, ContextParams
from localspec.llama.hidden_states import HiddenStates
from localspec.llama.library_context import free_context, library_params, new_context
from localspec.llama.logits import Logits
from localspec.llama.model import Model
from localspec.llama.rollback import Memory, Rollback
from localspec.speculation.draft import MAX_DEPTH
from localspec.speculation.passes import Pass, Scores

# The library's limit of sequence ids in one context.
MAX_IDS = 256
_Text = TypeVar("_Text", bound=CachedText)


class KVCache(ABC, Generic[_Text]):
    """A KV cache of a model; `new_sequence` gives a place in it to one text.

    params: what it was made with, with what has changed since: texts, threads, and branches, which
    are 0 where it can score only chains.

    n_cells: the most tokens of one text, padding of a pass included. rollback: how texts can be cut
    back. splits_unequal: whether the library computes passes of different numbers of rows one after
    the other, also in one decode: recurrent layers do. The context is freed with its last text.
    sequences: the texts in it. chunk: the most rows of a decode. hidden: the hidden rows of its
    layers. head_contexts: those of heads that draft for its texts: they use this one, and are freed
    before it. block_size: the rows of the one pass of a draft, where a draft takes one pass.
    changed_matrices: how many the adapters of its model change in it; None: not known.
    reads_again: whether tokens are all it takes to evaluate a text again. has_failed: whether its
    device has failed, and it is not made anew yet. failures, renewals: how often both happened.
    refusals: how many passes the library did not compute for another reason.

    Raises ModelLoadError if the library cannot make the context (usually for lack of memory).
    """

    chunk = CHUNK
    block_size = 0
    changed_matrices: int | None = 0
    reads_again = True
    sequence_type: type[_Text]

    def __init__(self, model: Model, params: ContextParams) -> None:
        self.model, self.params = model, params
        self.n_vocab = model.n_vocab
        self.n_cells, self.chunk = params.n_ctx, params.ubatch or self.chunk
        self.rollback = Rollback.PARTIAL
        self.head_contexts: list[KVCache[_Text]] = []
        self.has_failed, self.failures, self.renewals = False, 0, 0
        self.refusals = 0
        self.sequences: list[_Text] = []
        self._handle: Any = self.new_handle(params.texts)
        self._set_up()

    @abstractmethod
    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        """Compute passes of different texts in one decode."""

    @property
    def handle(self) -> Any:
        """The library's context, made anew if it was lost.

        Raises LocalspecError after `close`, and DeviceError where memory is too small for another.
        """
        if self._handle is None:
            if not self.has_failed:
                raise LocalspecError("this context was closed; load the model again")
            self.renew()
        return self._handle

    @property
    def memory(self) -> Any:
        """The library's KV cache ("memory")."""
        return llama_cpp.llama_get_memory(self.handle)

    @property
    def window(self) -> int:
        """The size of the sliding window in tokens, behind which cells are used again; 0: none."""
        return 0 if self.params.swa_full else self.model.sliding_window

    @property
    def splits_unequal(self) -> bool:
        """Whether passes of unequal numbers of rows share nothing in one decode."""
        return self.rollback is not Rollback.PARTIAL

    def set_threads(self, threads: int) -> None:
        """Compute with so many CPU threads from the next decode on."""
        if threads == self.params.threads:
            return
        self.params = replace(self.params, threads=threads)
        if self._handle:
            llama_cpp.llama_set_n_threads(self._handle, threads, threads)

    def new_sequence(self) -> _Text:
        """Give a place to another text. Raises LocalspecError if all places are taken."""
        taken, places = {sequence.seq_id for sequence in self.sequences}, self.params.texts
        seq_id = next((each for each in range(places) if each not in taken), None)
        if seq_id is None:
            raise LocalspecError(f"all {places} places of this context are taken; close a text")
        sequence = self.sequence_type(self, Memory(self, seq_id, self.window, self.rollback))
        self.sequences.append(sequence)
        return sequence

    def resize(self, texts: int) -> None:
        """Make room for so many texts, by new caches, those of heads too, that they are copied to.

        No scores may be in use. Raises ModelLoadError, and changes nothing, if the new caches do
        not fit in memory beside the old ones; DeviceError if one was lost, and cannot be made anew;
        LocalspecError for too many texts.
        """
        if texts + self.params.branches > MAX_IDS:
            raise LocalspecError(f"{texts} texts are too many; a context holds {MAX_IDS} at most")
        for each in (self, *self.head_contexts):
            if each.has_failed:
                each.renew()
        with ExitStack() as undo:
            handle = self.new_handle(texts)
            undo.callback(free_context, handle)
            moves: list[tuple[KVCache[_Text], Any, int]] = [(self, handle, texts)]
            for head in self.head_contexts:
                places = head.places_beside(texts)
                moves.append((head, head.new_handle(places, handle), places))
                undo.callback(free_context, moves[-1][1])
            undo.pop_all()
        # Called last to first, and all of them, also after an interrupt.
        with ExitStack() as rest:
            for each, handle, places in moves:
                rest.callback(free_context, each.handle)
                rest.callback(each.move_to, handle, places)

    def move_to(self, handle: Any, texts: int) -> None:
        """Copy the texts to another handle, one by one; those left by an interrupt are lost."""
        old, left = self._handle, list(self.sequences)
        try:
            while left:
                self._handle = old
                left[-1].roll_back()
                copy, self._handle = left[-1].memory.copy(), handle
                left[-1].memory.move(copy)
                left.pop()
        finally:
            self._handle, self.params = handle, replace(self.params, texts=texts)
            self._set_up()
            for sequence in left:
                sequence.memory.move(None)

    def places_beside(self, texts: int) -> int:
        """How many texts a head has room for beside so many of its target."""
        return self.params.texts

    def leave(self, sequence: CachedText) -> None:
        """Remove a text; the context is freed with the last one."""
        if sequence in self.sequences:
            if len(self.sequences) == 1:
                self.close()
            elif self._handle:
                sequence.memory.clear()
            sequence.memory.drop_copies()
            self.sequences.remove(sequence)  # last: an interrupt before leaves all of this

    def close(self) -> None:
        """Free the context, after those of heads that use it."""
        while self.head_contexts:
            self.head_contexts.pop().close()
        self.free()
        self.has_failed = False

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Copy all texts out of the cache, which may be emptied, and back into it at the end.

        No scores may be in use. A text that cannot be copied is evaluated again with its next pass.
        """
        copies = []
        for sequence in self.sequences:
            sequence.roll_back()
            copies.append(sequence.memory.copy())
        try:
            yield
        finally:
            for sequence, copy in zip(self.sequences, copies, strict=True):
                sequence.memory.move(copy)

    def renew(self) -> None:
        """Make the cache anew, and those of heads beside it, as its device has failed.

        No scores may be in use. All texts are lost there, and evaluated again with their next
        passes. Raises DeviceError if memory is too small now: the next use tries again. For a head
        nothing is raised: its next use tries again.
        """
        for each in (*reversed(self.head_contexts), self):
            each.has_failed = True
            each.free()
        self.begin_anew()
        for head in self.head_contexts:
            with suppress(*LOST):
                head.begin_anew()

    def begin_anew(self) -> None:
        """Make the cache anew that was freed. Raises DeviceError where it does not fit."""
        try:
            self._begin_anew()
        except ModelLoadError as error:
            raise DeviceError(f"the device has failed, and then {error}") from error

    def new_handle(self, texts: int, target: Any = None) -> Any:
        """Make the library's context. target: for a head, that of its target if it is another."""
        return new_context(self.model, self._library_params(texts))

    def _library_params(self, texts: int) -> Any:
        values = library_params(replace(self.params, texts=texts))
        if self.model.gives_every_row:
            values.n_outputs_max = values.n_ubatch
        return values

    def free(self) -> None:
        """Free the library's context; `begin_anew` makes another."""
        handle, self._handle = self._handle, None
        if handle:
            self.hidden.forget()
            free_context(handle)

    def _begin_anew(self) -> None:
        """Make the library's context anew; texts are evaluated again with their next passes."""
        self._handle = self.new_handle(self.params.texts)
        self.renewals += 1
        self._set_up()
        for sequence in self.sequences:
            sequence.memory.move(None)
        self.has_failed = False  # at last: an interrupt before leaves all of this to the next pass

    def _set_up(self) -> None:
        self._batch = Batch(self.chunk + MAX_DEPTH, self.params.texts + self.params.branches)
        self.hidden = HiddenStates(self._handle)
        self._logits = Logits(self._handle, self.n_vocab)
