"""Shared context: that of a head that reads its target's own KV cache, as Gemma 4's assistant does.

It has no cells of its own. A pass of it is one row, which stands behind the text in the target's
cache, reads the cells there, and leaves none. So all tokens of a draft have the same position; such
a head was trained with that.

Where the library makes such a context, it empties the target's cache: its texts are copied before,
and put back. On such a context, it ignores every cut and copy.
"""

from dataclasses import replace
from typing import Any

from localspec.errors import DeviceError, LocalspecError
from localspec.llama.batch import Batch
from localspec.llama.head_context import HeadContext
from localspec.llama.kv_cache import KVCache
from localspec.llama.model import Model
from localspec.llama.rollback import Memory
from localspec.llama.sequence import KVSequence
from localspec.speculation.passes import Pass


class SharedContext(HeadContext):
    """The context of a head that reads the cache of its target, with a place for each text there.

    model: the head. target: its target's context. threads: CPU threads.
    """

    def __init__(self, model: Model, *, target: KVCache[KVSequence], threads: int) -> None:
        params = replace(target.params, threads=threads, branches=0, snapshots=0, ubatch=None)
        with target.emptied():
            super().__init__(model, params, target=target)

    def sequence_beside(self, text: KVSequence) -> "SharedSequence":
        """The head's place in a text of the target."""
        sequence = SharedSequence(self, text)
        self.sequences.append(sequence)
        return sequence

    def places_beside(self, texts: int) -> int:
        """The head has a place for every text of its target."""
        return texts

    def _library_params(self, texts: int) -> Any:
        # A decode has one row of each text at most: buffers are small.
        params = super()._library_params(texts)
        params.n_batch = params.n_ubatch = params.n_outputs_max = texts
        return params

    def move_to(self, handle: Any, texts: int) -> None:
        """The texts are copied with the target's cache."""
        self._handle, self.params = handle, replace(self.params, texts=texts)
        self._set_up()

    def renew(self) -> None:
        """It is made anew with its target's cache; if memory was too small then, beside it.

        Raises DeviceError before, and where memory is still too small.
        """
        if self._target.has_failed:
            name = self.model.path.name
            raise DeviceError(f"the device has failed, and {name} waits for its target")
        with self._target.emptied():
            self.free()
            self.begin_anew()

    def _timed_run(self) -> float:
        try:
            return super()._timed_run()
        except DeviceError:
            self._target.has_failed = True
            raise

    def _probe_rollback(self) -> None:
        """There is nothing to cut."""


class SharedSequence(KVSequence):
    """The place of a head in one text of its target's cache; its own text is always empty.

    text: of the target.
    """

    def __init__(self, context: SharedContext, text: KVSequence) -> None:
        super().__init__(context, Memory(context, text.seq_id, window=0))
        self.text = text

    @property
    def cells(self) -> int:
        """How many tokens of the text are in the target's cache."""
        return self.text.memory.length

    def require_possible(self, requested: Pass) -> None:
        """Raise LocalspecError for a pass of several rows, which would stand behind each other.

        DeviceError where the target's cache lacks tokens of the text.
        """
        super().require_possible(requested)
        if self.cells < len(self.text.tokens):
            raise DeviceError(f"the text of {self.model.path.name} must be read again")
        if len(requested) != 1:
            raise LocalspecError(
                f"{self.model.path.name} computes one row of a text in a pass, not {len(requested)}"
            )

    def add_rows(self, requested: Pass, batch: Batch, free_ids: list[int]) -> None:
        """Add the row, behind the text in the target's cache."""
        self.rows_in_pass = len(requested)
        batch.add(
            requested.tokens,
            start=self.text.memory.position,
            seq_id=self.seq_id,
            wanted=requested.wanted,
            embeddings=requested.embeddings,
        )

    def end_pass(self, requested: Pass) -> None:
        """The row left nothing in the cache."""
        self.memory.end_pass(0)
        self.evaluated += self.rows_in_pass
