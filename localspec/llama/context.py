"""Context: one KV cache of a model, and the passes of the texts in it."""

from collections.abc import Sequence
from dataclasses import replace

import llama_cpp

from localspec.errors import DeviceError, LocalspecError, ModelLoadError, PassError
from localspec.llama import library
from localspec.llama.batch import require_at_most
from localspec.llama.computation import compute
from localspec.llama.context_params import DRAFT_ROWS, OUTPUT_ROWS, ContextParams
from localspec.llama.hidden_states import output_wanted
from localspec.llama.kv_cache import KVCache
from localspec.llama.lora import changed_matrices
from localspec.llama.media import encoded
from localspec.llama.model import Model
from localspec.llama.rollback import Memory, Rollback
from localspec.llama.sequence import KVSequence, sequence_of
from localspec.speculation.passes import Pass, Scores

_UNEQUAL = "passes of unequal rows cannot share a decode of this model; compute one after the other"


class Context(KVCache[KVSequence]):
    """A KV cache that computes passes, of one text or of several in one decode."""

    sequence_type = KVSequence

    def __init__(self, model: Model, params: ContextParams) -> None:
        with library.captured_log() as lines:
            super().__init__(model, params)
            # Whether the rows of the batch attend to those behind them: some models read images so.
            self._looks_ahead = False
            try:
                self._probe_rollback()
            except BaseException:
                self.close()
                raise
        self.changed_matrices = changed_matrices(lines) if model.loras else 0
        if self.rollback is not Rollback.PARTIAL or model.sliding_window:
            self.params = replace(self.params, branches=0)

    def rows_of(self, requested: Pass) -> int:
        """The rows of a pass, with the tokens of its text that are evaluated once more."""
        return sequence_of(requested).rows_of(requested)

    def fits(self, passes: Sequence[Pass]) -> bool:
        """Whether one decode can compute these passes."""
        branches = sum(sequence_of(each).branches_of(each) for each in passes)
        if len(passes) > 1 and any(sequence_of(each).media_of(each) for each in passes):
            return False
        # With a part of a prompt in the decode, the others would miss their rows.
        most = DRAFT_ROWS if len(passes) > 1 and output_wanted(passes) else self.chunk
        most_wanted = DRAFT_ROWS if len(passes) > 1 else OUTPUT_ROWS
        return (
            sum(map(self.rows_of, passes)) <= most
            and sum(each.wanted for each in passes) <= most_wanted
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
        # Behind those of the texts: with every decode, the branches of drafts before are removed.
        free = [*range(self.params.texts, self.params.texts + self.params.branches)]
        for requested, sequence in zip(passes, sequences, strict=True):
            sequence.prepare(requested)
            sequence.add_rows(requested, self._batch, free)
        self.hidden.follow(layer for each in passes for layer in each.hidden)
        padding = self._pad(passes, sequences[-1])
        self.hidden.give_output(on=output_wanted(passes) and len(self._batch) <= OUTPUT_ROWS)
        if self._gives_all_logits(passes):
            self._batch.want_all_logits()
        return padding

    def _require_sharable(self, passes: Sequence[Pass]) -> None:
        """Raise LocalspecError if these passes cannot be in one decode."""
        if len({id(each.sequence) for each in passes}) < len(passes):
            raise LocalspecError("a decode has two passes of one text; compute one after the other")
        if any(sequence_of(each).media_of(each) for each in passes):
            raise LocalspecError("an image is read by a decode of its own; compute it alone")
        rows = list(map(self.rows_of, passes))
        branches = sum(sequence_of(each).branches_of(each) for each in passes)
        require_at_most(sum(each.wanted for each in passes), DRAFT_ROWS, "rows with logits")
        require_at_most(sum(rows), self.chunk, "rows")
        require_at_most(branches, self.params.branches, "further branches of drafts")
        if self.rollback is Rollback.BOUNDED and len(set(rows)) > 1:
            raise LocalspecError(_UNEQUAL)

    def _begin_batch(self, passes: Sequence[Pass]) -> None:
        """Empty the batch for the rows of these passes."""
        media = sequence_of(passes[0]).media_of(passes[0]) if passes else None
        self._batch.clear(tokens=not media, width=encoded(media).width if media else 0)
        self._looks_ahead = media is not None and encoded(media).looks_ahead

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
        except PassError:
            self.refusals += 1
            raise

    def _run_batch(self) -> int:
        """Decode the batch; return the library's status."""
        if not self._looks_ahead:
            return int(llama_cpp.llama_decode(self.handle, self._batch.struct))
        llama_cpp.llama_set_causal_attn(self.handle, False)
        try:
            return int(llama_cpp.llama_decode(self.handle, self._batch.struct))
        finally:
            llama_cpp.llama_set_causal_attn(self.handle, True)

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
        every = self.model.gives_every_row and any(each.wanted for each in passes)
        return self.hidden.gives_output or every

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


def single_sequence(model: Model, params: ContextParams) -> KVSequence:
    """A text in a context of its own, which is freed with it."""
    return Context(model, params).new_sequence()
