"""Head context: the KV cache of a head, whose passes carry states beside or instead of tokens."""

from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

from localspec.errors import DeviceError, LocalspecError
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.hidden_states import HiddenStates
from localspec.llama.kv_cache import KVCache
from localspec.llama.library_context import new_context
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence, sequence_of
from localspec.speculation.passes import Pass, Scores

# The most rows of a decode. The library reserves the logits of a whole batch for a head, and
# computes them for each row, wanted or not.
_CHUNK = 64


class HeadSequence(KVSequence):
    """What a head keeps of one text. When its context is made anew, that is nothing.

    Passes that were asked for before would stand behind nothing: they are refused until the drafter
    has looked, by `truncate`, what is left.
    """

    was_lost = False

    def lose(self) -> None:
        """The places are gone."""
        self.tokens.clear()
        self.was_lost = True

    def truncate(self, length: int) -> int:
        """As in KVSequence."""
        if self.context.has_failed:
            self.context.renew()
        self.was_lost = False
        return super().truncate(length)

    def require_possible(self, requested: Pass) -> None:
        """Raise DeviceError for a pass behind places that were lost; others as in KVSequence."""
        if self.was_lost:
            raise DeviceError(f"the device has failed; {self.model.path.name} has lost this text")
        super().require_possible(requested)


class HeadContext(Context):
    """A KV cache of a head that drafts for the texts in a context of its target.

    model: the head. target: the target's context, which the head's passes may take matrices from;
    this context is closed before it. encoder_width: how many numbers a row of the encoder's input
    has; 0 for heads of multi-token prediction (`is_mtp`), which have none, and may be several in
    one model. chained: whether they are, and read the same cells one after the other.

    A pass with tokens but without embeddings gets states of zeros, for measuring.
    """

    chunk = _CHUNK
    # It would need the states, too.
    reads_again = False
    sequence_type = HeadSequence

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        *,
        target: KVCache[KVSequence],
        encoder_width: int = 0,
        chained: bool = False,
    ) -> None:
        self._target = target
        self._encoder_width = encoder_width
        self.is_mtp = not encoder_width
        self._chained = chained
        width = llama_cpp.llama_model_n_embd_out if self.is_mtp else llama_cpp.llama_model_n_embd
        self._width = int(width(model.handle))
        self._encodes = self._wants_logits = False
        # The head that computes the next decode, and the one that computed the last.
        self._head = self._last_head = 0
        super().__init__(model, params)
        target.head_contexts.append(self)

    def close(self) -> None:
        """Free the context."""
        if self in self._target.head_contexts:
            self._target.head_contexts.remove(self)
        super().close()

    def fits(self, passes: Sequence[Pass]) -> bool:
        """Whether one decode can compute these passes: those of one head, or of its encoder."""
        return super().fits(passes) and len(set(map(_part, passes))) == 1

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        """Compute passes of different texts in one decode, or in one pass of the encoder."""
        if self.has_failed:
            self.renew()
        if len(set(map(_part, passes))) > 1:
            raise LocalspecError("a pass of another head cannot share a decode; compute it alone")
        self._require_widths(passes)
        return self._encode(passes) if passes[0].encode else super().decode(passes)

    def renew(self) -> None:
        """Make the cache anew, as its device has failed, or that of its target.

        Raises DeviceError where memory is too small: texts go on without the head.
        """
        if self._target.has_failed:
            self._target.renew()
        if self.has_failed:
            self.free()
            self.begin_anew()

    def _begin_anew(self) -> None:
        # First, as an interrupt may come at any place.
        for sequence in self.sequences:
            if isinstance(sequence, HeadSequence):
                sequence.lose()
        super()._begin_anew()

    def _require_widths(self, passes: Sequence[Pass]) -> None:
        """Raise LocalspecError for rows of another width, which the library would read beyond."""
        for each in passes:
            width = self._encoder_width if each.encode else self._width
            rows = 0 if each.embeddings is None else each.embeddings.shape[1]
            if rows != width and (each.encode or each.embeddings is not None):
                raise LocalspecError(
                    f"{self.model.path.name} takes rows of {width} numbers, and got {rows}"
                )
            if not each.encode and each.embeddings is not None and len(each) != len(each.tokens):
                raise LocalspecError(
                    f"a pass has {len(each.tokens)} tokens and {len(each)} states; pair them"
                )

    def _encode(self, passes: Sequence[Pass]) -> list[Scores]:
        """Compute the states of rows, each on its own; the texts stay as they are."""
        sequences = [sequence_of(each) for each in passes]
        lengths = [len(each) for each in passes]
        if sum(lengths) > self.chunk:
            raise LocalspecError(
                f"an encoder's pass of {sum(lengths)} rows was asked for; {self.chunk} are the most"
            )
        self._begin_batch(passes)
        for requested, sequence in zip(passes, sequences, strict=True):
            sequence.roll_back()
            # The encoder does not use positions, but the library wants those that come next.
            self._batch.add(
                (),
                start=sequence.memory.length,
                seq_id=sequence.seq_id,
                wanted=len(requested),
                embeddings=requested.embeddings,
            )
        self.hidden.enable(layer for each in passes for layer in each.hidden)
        seconds = self._timed_run()
        nothing = np.empty((0, self.n_vocab), np.float32)
        return [
            Scores(nothing, hidden=hidden, seconds=seconds, share=seconds * length / sum(lengths))
            for hidden, length in zip(self.hidden.of_passes(passes, lengths), lengths, strict=True)
        ]

    def _begin_batch(self, passes: Sequence[Pass]) -> None:
        self._encodes = any(each.encode for each in passes)
        self._wants_logits = self._encodes or any(each.wanted for each in passes)
        self._head = max((each.layer_offset for each in passes), default=0)
        width = self._encoder_width if self._encodes else self._width
        self._batch.clear(tokens=not self._encodes, width=width)

    def _run_batch(self) -> int:
        # With the logits of some rows only, the library gives those of other rows.
        if self._wants_logits:
            self._batch.want_all_logits()
        if self._head != self._last_head:
            self.hidden.choose_head(self._head)
            self._last_head = self._head
        if self._encodes:
            return int(llama_cpp.llama_encode(self.handle, self._batch.struct))
        return super()._run_batch()

    def _gives_all_logits(self, passes: Sequence[Pass]) -> bool:
        return super()._gives_all_logits(passes) or any(each.wanted for each in passes)

    def _library_params(self, texts: int) -> Any:
        params = super()._library_params(texts)
        params.n_outputs_max = self.chunk
        return params

    def new_handle(self, texts: int, target: Any = None) -> Any:
        params = self._library_params(texts)
        if self._chained:
            # Each text has cells of its own, and all of them: a text that is cut and decoded again
            # by the next head gets the same cells, in which the heads before left their layers.
            params.kv_unified, params.swa_full = False, True
        if self.is_mtp:
            params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        params.ctx_other = target or self._target.handle
        return new_context(self.model, params)

    def _set_up(self) -> None:
        super()._set_up()
        # Some heads of multi-token prediction compute only the wanted rows to the end.
        self.hidden = HiddenStates(self._handle, masked=self.is_mtp)
        self._last_head = 0


def _part(requested: Pass) -> tuple[bool, int]:
    """What computes a pass: the encoder or the decoder, and which head of several."""
    return requested.encode, requested.layer_offset
