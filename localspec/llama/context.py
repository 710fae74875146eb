"""Context: one KV cache of a model, with one text or several in it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import llama_cpp

from localspec.errors import DeviceError, LocalspecError, ModelLoadError
from localspec.llama import moves
from localspec.llama.batch import Batch, require_at_most
from localspec.llama.cached_text import CachedText
from localspec.llama.computation import compute
from localspec.llama.context_params import CHUNK, OUTPUT_ROWS, ContextParams, new_context
from localspec.llama.hidden_states import HiddenStates, output_wanted
from localspec.llama.logits import Logits
from localspec.llama.model import Model
from localspec.llama.rollback import Memory, Rollback
from localspec.llama.sequence import KVSequence, sequence_of
from localspec.speculation.draft import MAX_DEPTH
from localspec.speculation.passes import Pass, Scores

# The library's limit of sequence ids in one context.
MAX_IDS = 256
_UNEQUAL = "passes of unequal rows cannot share a decode of this model; compute one after the other"


class Context:
    """A KV cache of a model; `new_sequence` gives a place in it to one text.

    params: what it was made with, with what has changed since: texts, threads, and branches, which
    are 0 where it can score only chains.

    n_cells: the most tokens of one text, padding of a pass included. rollback: how texts can be cut
    back. splits_unequal: whether the library computes passes of different numbers of rows one after
    the other, also in one decode: recurrent layers do. The context is freed with its last text.
    sequences: the texts in it. chunk: the most rows of a decode. hidden: the hidden rows of its
    layers. head_contexts: those of heads that draft for its texts: they use this one, and are freed
    before it. block_size: the rows of the one pass of a draft, where a draft takes one pass.
    reads_again: whether tokens are all it takes to evaluate a text again. has_failed: whether its
    device has failed, and it is not made anew yet. failures, renewals: how often both happened.

    Raises ModelLoadError if the library cannot make the context (usually for lack of memory).
    """

    chunk = CHUNK
    block_size = 0
    reads_again = True
    sequence_type = KVSequence

    def __init__(self, model: Model, params: ContextParams) -> None:
        self.model, self.params = model, params
        self.n_vocab = model.n_vocab
        self.n_cells, self.chunk = params.n_ctx, params.ubatch or self.chunk
        self.rollback = Rollback.PARTIAL
        self.head_contexts: list[Context] = []
        self.has_failed, self.failures, self.renewals = False, 0, 0
        self.sequences: list[KVSequence] = []
        self._handle: Any = self.new_handle(params.texts)
        self._set_up()
        try:
            self._probe_rollback()
        except BaseException:
            self.close()
            raise
        if self.rollback is not Rollback.PARTIAL or model.sliding_window:
            self.params = replace(self.params, branches=0)

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
        return self._memory if self.handle else None

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
        self.params = replace(self.params, threads=threads)
        if self._handle:
            llama_cpp.llama_set_n_threads(self._handle, threads, threads)

    def new_sequence(self) -> KVSequence:
        """Give a place to another text. Raises LocalspecError if all places are taken."""
        taken = {sequence.seq_id for sequence in self.sequences}
        seq_id = next((each for each in range(self.params.texts) if each not in taken), None)
        if seq_id is None:
            raise LocalspecError(
                f"all {self.params.texts} places of this context are taken; close a text"
            )
        sequence = self.sequence_type(self, Memory(self, seq_id, self.window, self.rollback))
        self.sequences.append(sequence)
        return sequence

    def resize(self, texts: int) -> None:
        """Make room for so many texts, by a new cache that all texts are copied to.

        No scores may be in use. Raises ModelLoadError, and changes nothing, if the new cache does
        not fit in memory beside the old one; raises LocalspecError for too many texts.
        """
        if texts + self.params.branches > MAX_IDS:
            raise LocalspecError(f"{texts} texts are too many; a context holds {MAX_IDS} at most")
        moves.resize(self, texts)

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
            self.sequences.remove(sequence)
            if not self.sequences:
                self.close()
            elif self._handle:
                sequence.memory.clear()

    def close(self) -> None:
        """Free the context, after those of heads that use it."""
        while self.head_contexts:
            self.head_contexts.pop().close()
        self.free()
        self.has_failed = False

    def rows_of(self, requested: Pass) -> int:
        """The rows of a pass, with the tokens of its text that are evaluated once more."""
        return sequence_of(requested).rows_of(requested)

    def fits(self, passes: Sequence[Pass]) -> bool:
        """Whether one decode can compute these passes."""
        branches = sum(sequence_of(each).branches_of(each) for each in passes)
        # With a part of a prompt in the decode, the others would miss their rows.
        most = OUTPUT_ROWS if len(passes) > 1 and output_wanted(passes) else self.chunk
        return (
            sum(map(self.rows_of, passes)) <= most
            and sum(each.wanted for each in passes) <= OUTPUT_ROWS
            and branches <= self.params.branches
        )

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        """Compute passes of different texts in one `llama_decode`.

        Where the device fails, the cache is made anew, and its texts are evaluated again. Raises
        LocalspecError for a pass that cannot be computed; then no text has changed.
        """
        if self.has_failed:
            self.renew()
        try:
            return self._decode_all(passes)
        except DeviceError:
            if not self.reads_again:
                raise
        self.renew()
        return self._decode_all(passes)

    def renew(self) -> None:
        """Make the cache anew, as its device has failed. Raises DeviceError if it cannot be."""
        moves.renew(self)

    def _decode_all(self, passes: Sequence[Pass]) -> list[Scores]:
        renewals = self.renewals
        for sequence in self.sequences:
            sequence.roll_back()
        for each in passes:
            sequence_of(each).evaluate_missing_before(each)
            sequence_of(each).require_possible(each)
        if self.renewals != renewals:  # while one text was evaluated again: the others are missing
            return self._decode_all(passes)
        if len(passes) == 1:
            return self._decode(passes, [sequence_of(passes[0])])
        self._require_sharable(passes)
        # The library moves the cells of recurrent layers when it computes several texts, and loses
        # their snapshots.
        for sequence in self.sequences:
            sequence.memory.lose_snapshots()
        # Recurrent layers share work only among consecutive sequence ids.
        order = sorted(range(len(passes)), key=lambda i: sequence_of(passes[i]).seq_id)
        ordered = [passes[i] for i in order]
        scores = self._decode(ordered, [sequence_of(each) for each in ordered])
        return [scores[order.index(i)] for i in range(len(passes))]

    def _decode(self, passes: Sequence[Pass], sequences: Sequence[KVSequence]) -> list[Scores]:
        lengths = [len(sequence.tokens) for sequence in sequences]
        try:
            padding = self._fill_batch(passes, sequences)
            seconds = self._compute(sequences)
            for requested, sequence in zip(passes, sequences, strict=True):
                sequence.end_pass(requested)
            if padding:
                sequences[-1].remove_padding(padding)
            return self._scores(passes, sequences, padding, seconds)
        except BaseException:
            for sequence, length in zip(sequences, lengths, strict=True):
                del sequence.tokens[length:]
            raise

    def _fill_batch(self, passes: Sequence[Pass], sequences: Sequence[KVSequence]) -> int:
        """Put the rows of all passes into the batch; return the number of padding rows."""
        self._begin_batch(passes)
        free = self._free_branches() if self.params.branches else []
        for requested, sequence in zip(passes, sequences, strict=True):
            sequence.prepare(requested)
            sequence.add_rows(requested, self._batch, free)
        self.hidden.follow(layer for each in passes for layer in each.hidden)
        padding = self._pad(passes, sequences[-1])
        if self.hidden.give_output(on=output_wanted(passes) and len(self._batch) <= OUTPUT_ROWS):
            self._batch.want_all_logits()
        return padding

    def _require_sharable(self, passes: Sequence[Pass]) -> None:
        """Raise LocalspecError if these passes cannot be in one decode."""
        if len({id(each.sequence) for each in passes}) < len(passes):
            raise LocalspecError("a decode has two passes of one text; compute one after the other")
        rows = list(map(self.rows_of, passes))
        branches = sum(sequence_of(each).branches_of(each) for each in passes)
        require_at_most(sum(each.wanted for each in passes), OUTPUT_ROWS, "rows with logits")
        require_at_most(sum(rows), self.chunk, "rows")
        require_at_most(branches, self.params.branches, "further branches of drafts")
        if self.rollback is Rollback.BOUNDED and len(set(rows)) > 1:
            raise LocalspecError(_UNEQUAL)

    def _begin_batch(self, passes: Sequence[Pass]) -> None:
        """Empty the batch for the rows of these passes."""
        self._batch.clear()

    def _free_branches(self) -> list[int]:
        """The sequence ids of branches that no text uses."""
        used = {branch for sequence in self.sequences for branch in sequence.branch_ids}
        first = self.params.texts
        return [each for each in range(first, first + self.params.branches) if each not in used]

    def _pad(self, passes: Sequence[Pass], last: KVSequence) -> int:
        """Add padding rows to the text whose rows are the last; return how many."""
        if self.rollback is not Rollback.PARTIAL or last.branch_ids:
            return 0
        return last.add_padding(passes, self._batch)

    def _compute(self, sequences: Sequence[KVSequence]) -> float:
        """Decode the batch; return the seconds."""
        for sequence in sequences:
            sequence.memory.begin_pass()
        try:
            return self._timed_run()
        except LocalspecError:
            for sequence in sequences:
                sequence.roll_back()
            raise

    def _timed_run(self) -> float:
        """Compute the batch; return the seconds."""
        run, rows, threads = self._run_batch, len(self._batch), self.params.threads
        kind = (type(self), self.model.path, self.params.n_ctx, rows)
        try:
            return compute(run, self.model, self.handle, rows=rows, kind=kind, threads=threads)
        except DeviceError:
            self.has_failed = True
            self.failures += 1
            raise

    def _run_batch(self) -> int:
        """Decode the batch; return the library's status."""
        return int(llama_cpp.llama_decode(self.handle, self._batch.struct))

    def _scores(
        self,
        passes: Sequence[Pass],
        sequences: Sequence[KVSequence],
        padding: int,
        seconds: float,
    ) -> list[Scores]:
        lengths = [sequence.rows_in_pass for sequence in sequences]
        every = self._gives_all_logits(passes)
        logits = self._logits.of_passes(passes, lengths, of_every_row=every)
        hidden = self.hidden.of_passes(passes, lengths, padding)
        paddings = [0] * (len(passes) - 1) + [padding]  # of the last text, but all pay for it
        rows = [length + more for length, more in zip(lengths, paddings, strict=True)]
        return [
            Scores(
                logits[i],
                paddings[i],
                sequence.again,
                hidden[i],
                others=(*rows[:i], *rows[i + 1 :]),
                seconds=seconds,
                share=seconds * lengths[i] / sum(lengths),
            )
            for i, sequence in enumerate(sequences)
        ]

    def _gives_all_logits(self, passes: Sequence[Pass]) -> bool:
        """Whether a decode of these passes gives the logits of every row."""
        return self.hidden.gives_output

    def new_handle(self, texts: int, target: Any = None) -> Any:
        """Make the library's context. target: for a head, that of its target if it is another."""
        return new_context(self.model, self._library_params(texts))

    def _library_params(self, texts: int) -> Any:
        return replace(self.params, texts=texts).for_library()

    def free(self) -> None:
        """Free the library's context; `begin_anew` makes another."""
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_free(handle)
            self.hidden.forget()

    def begin_anew(self) -> None:
        """Make the library's context anew; texts are evaluated again with their next passes."""
        self._handle = self.new_handle(self.params.texts)
        self.renewals += 1
        self._set_up()
        for sequence in self.sequences:
            sequence.memory.move(None)
        self.has_failed = False  # at last: an interrupt before leaves all of this to the next pass

    def _set_up(self) -> None:
        texts, n_ctx = self.params.texts, int(llama_cpp.llama_n_ctx(self._handle))
        self.n_cells = min(self.params.n_ctx, n_ctx // texts)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._batch = Batch(self.chunk + MAX_DEPTH, texts + self.params.branches)
        self.hidden = HiddenStates(self._handle)
        self._logits = Logits(self._handle, self.n_vocab)

    def _probe_rollback(self) -> None:
        if not self.memory:
            raise ModelLoadError(
                f"{self.model.path.name} keeps no cache of its text; pass a text-generation model"
            )
        sequence = KVSequence(self, Memory(self, 0, self.window))
        self._begin_batch([])
        self._batch.add([0, 0], start=0, seq_id=0, wanted=1)
        self._compute([sequence])
        sequence.memory.end_pass(2)
        sequence.memory.probe()
        self.rollback = sequence.memory.kind


def single_sequence(model: Model, **options: Any) -> KVSequence:
    """A text in a context of its own, which is freed with it. options: those of ContextParams."""
    return Context(model, ContextParams(**options)).new_sequence()
