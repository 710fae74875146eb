"""Rollback: what the memory of a context can forget, and how; tried out when the model is loaded.

Attention (`PARTIAL`) keeps something of each token, so any last tokens can be cut off, unless what
a sliding window needs of earlier tokens is gone. Once the window has moved on, the library claims
that deeper cuts work too, and then computes wrong logits; so `Memory` works out how deep it may go.

A recurrent layer keeps one running state of the whole text, which cannot be cut. For some
architectures the library makes snapshots of the state after each of the last rows of a pass, if
asked to (`BOUNDED`: Qwen3.5, Nemotron-H, LFM2, ...): up to `SNAPSHOTS` tokens of the last pass can
be taken back, once per pass, and never the first of its rows. The library accepts more and then
computes wrong logits, so the rows are counted here.

Elsewhere (`FULL`: Mamba, RWKV, Jamba, ...), and for deeper drafts, the state is copied before a
pass with a draft (the checkpoint) and put back after a rejection. Nothing is evaluated again at
once: `Context` puts the tokens that are then missing in front of its next pass. A draft model of
this kind takes its checkpoint before the second token of a draft. States that cannot be copied
(`NOTHING`) can only be cleared, so such models are decoded plainly.

A mark is a copy of a state that is kept longer: where a prompt ends and where an answer ends, so
that an answer can be regenerated and a question edited. Sliding windows have marks too.
"""

import ctypes
from enum import Enum
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

# Drafts of up to so many tokens need no checkpoint where the library makes snapshots of the state;
# each takes as much memory as the state, and every pass some time.
SNAPSHOTS = 8
# Marks lie in main memory, on top of what was planned for the cache.
MOST_MARKS, MOST_MARK_BYTES = 16, 256 * 2**20
_SEQUENCE = 0
# Only what cannot be cut anyway. What is kept where it is computed is not copied to main memory,
# but the library keeps a single copy there.
_EVERYTHING, _PARTIAL_ONLY, _ON_DEVICE = 0, 1, 2
_CHECKPOINT = _PARTIAL_ONLY | _ON_DEVICE
_Copy = NDArray[np.uint8]


class Rollback(Enum):
    """The kinds of memory that llama.cpp has, by what they can forget.

    PARTIAL: any number of last tokens. BOUNDED: a few tokens of the last pass, more as FULL. FULL:
    what came after a checkpoint. NOTHING: everything at once, nothing less.
    """

    PARTIAL = "any last tokens"
    BOUNDED = "a few tokens of the last pass"
    FULL = "what came after a checkpoint"
    NOTHING = "only everything at once"


class _Marks(dict[int, _Copy]):
    """Copies of states, by how many tokens each is of; always added in that order."""

    @property
    def longest(self) -> int:
        return max(self, default=0)

    def make_room(self, size: int) -> bool:
        """Let the oldest go until one of `size` bytes may be added; False if it never may."""
        if not 0 < size <= MOST_MARK_BYTES:
            return False
        taken = sum(copy.size for copy in self.values())
        while len(self) >= MOST_MARKS or taken + size > MOST_MARK_BYTES:
            taken -= self.pop(min(self)).size
        return True

    def drop_beyond(self, length: int) -> None:
        for longer in [each for each in self if each > length]:
            del self[longer]


class Memory:
    """The library's memory of one context, and the ways of cutting it back.

    handle: the context. window: how far its layers look back, 0 if over the whole text; what lies
    before it is dropped. length: how many tokens it holds, if `starts` was followed by `holds`.
    """

    def __init__(self, handle: Any, window: int) -> None:
        self.kind = Rollback.PARTIAL
        self.length = 0
        self.pointer = llama_cpp.llama_get_memory(handle)
        self._handle = handle
        self._window = window
        self._snapshots = int(llama_cpp.llama_n_rs_seq(handle))
        # How many of the last tokens the snapshots can take back; there is only one go at it.
        self._within_snapshots = 0
        self._unsure = False
        self._checkpoint: tuple[int, _Copy] | None = None
        self._marks = _Marks()
        # From this length on the window reaches back to this token at most, whatever its size.
        self._reach = (0, 0)

    def probe(self) -> None:
        """Find out its kind; it holds two tokens, evaluated together, and nothing afterwards."""
        if not self._snapshots and self._remove_from(1):
            self.kind = Rollback.PARTIAL
        else:
            self.kind = Rollback.BOUNDED if self._snapshots else Rollback.FULL
            self.checkpoint()
            if self._checkpoint is None:
                self.kind = Rollback.NOTHING
        self._clear()

    def starts(self) -> None:
        """A pass begins: until it is known to have ended, what is held may be more."""
        self._unsure = True
        self._within_snapshots = 0

    def holds(self, rows: int) -> None:
        """The pass has added so many tokens."""
        self.length += rows
        self._within_snapshots = min(self._snapshots, rows - 1)
        self._unsure = False

    def prepare(self, drafted: int) -> None:
        """A pass comes of whose last tokens up to `drafted` may have to be forgotten."""
        if drafted > self._snapshots:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Make it possible to come back to what is held now; nothing to do for attention.

        It takes the place of the one before.
        """
        if not self._keeps_states or not self.length:
            return
        if self._checkpoint is None or self._checkpoint[0] != self.length:
            self._checkpoint = None
            copy = self._copy(_CHECKPOINT)
            self._checkpoint = None if copy is None else (self.length, copy)

    def mark(self) -> None:
        """Make it possible to come back to what is held now, until it is cut to less.

        Nothing is done where it can be cut anywhere, or where one copy takes all that marks may.
        """
        slides = self.kind is Rollback.PARTIAL and self._window
        if not (self._keeps_states or slides) or not self.length or self.length in self._marks:
            return
        if self._marks.make_room(self._size(_PARTIAL_ONLY)):
            copy = self._copy(_PARTIAL_ONLY)
            if copy is not None:
                self._marks[self.length] = copy

    def cut(self, length: int) -> int:
        """Hold at most `length` tokens; returns how many are left, which may be fewer."""
        if self._unsure or length < self.length:
            within, self._within_snapshots = self._within_snapshots, 0
            snapshots_suffice = 0 < self.length - length <= within
            self.length, self._unsure = min(length, self.length), True
            self._forget(snapshots_suffice or self._can_cut_to(self.length))
            self._unsure = False
        return self.length

    def copy(self) -> _Copy | None:
        """All that is held; None where the library cannot tell."""
        return self._copy(_EVERYTHING)

    def load(self, copy: _Copy, length: int) -> bool:
        """Hold the `length` tokens of a copy and nothing else; without success, nothing at all."""
        self._clear()
        self._unsure = True
        last = length - 1
        if self._put_back(copy, _EVERYTHING) and last == self._position_of_last():
            self._note_reach(length)
            self.length, self._unsure = length, False
            return True
        self._clear()
        return False

    @property
    def _keeps_states(self) -> bool:
        return self.kind in (Rollback.BOUNDED, Rollback.FULL)

    def _forget(self, removable: bool) -> None:
        """What it holds beyond `length`, and more if need be."""
        if self._checkpoint and self._checkpoint[0] > self.length:
            self._checkpoint = None
        self._marks.drop_beyond(self.length)
        if removable and self._remove_from(self.length):
            return
        saved = max(self._checkpoint[0] if self._checkpoint else 0, self._marks.longest)
        self.length = saved
        if not saved or not self._restore(saved):
            self._clear()

    def _can_cut_to(self, length: int) -> bool:
        """Whether attention can; the library cuts deeper, too, and then computes wrong logits."""
        if self.kind is not Rollback.PARTIAL:
            return False
        # The window of the next token must still reach back from there.
        if not self._window:
            return True
        oldest = llama_cpp.llama_memory_seq_pos_min(self.pointer, _SEQUENCE)
        since, reach = self._reach
        needed = max(0, length - self._window + 1)
        return bool(0 <= oldest <= max(needed, reach if length >= since else 0))

    def _note_reach(self, length: int) -> None:
        """A state of so many tokens was put back: what it lacks, no later token needs."""
        oldest = llama_cpp.llama_memory_seq_pos_min(self.pointer, _SEQUENCE)
        self._reach = (length, int(oldest))

    def _position_of_last(self) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self.pointer, _SEQUENCE))

    def _remove_from(self, length: int) -> bool:
        return bool(llama_cpp.llama_memory_seq_rm(self.pointer, _SEQUENCE, length, -1))

    def _restore(self, saved: int) -> bool:
        """Go back to a checkpoint or mark; attention is cut to where the state then is."""
        if self._checkpoint and self._checkpoint[0] == saved:
            restored = self._put_back(self._checkpoint[1], _CHECKPOINT)
        else:
            restored = self._put_back(self._marks[saved], _PARTIAL_ONLY)
        if restored and self._remove_from(saved):
            self._note_reach(saved)
            return True
        return False

    def _size(self, flags: int) -> int:
        return int(llama_cpp.llama_state_seq_get_size_ext(self._handle, _SEQUENCE, flags))

    def _copy(self, flags: int) -> _Copy | None:
        copy = np.empty(self._size(flags), np.uint8)
        written = copy.size and llama_cpp.llama_state_seq_get_data_ext(
            self._handle, _pointer(copy), copy.size, _SEQUENCE, flags
        )
        return copy if copy.size and written == copy.size else None

    def _put_back(self, copy: _Copy, flags: int) -> bool:
        read = llama_cpp.llama_state_seq_set_data_ext(
            self._handle, _pointer(copy), copy.size, _SEQUENCE, flags
        )
        return bool(read == copy.size)

    def _clear(self) -> None:
        self.length, self._checkpoint, self._unsure = 0, None, True
        self._marks.clear()
        llama_cpp.llama_memory_clear(self.pointer, True)
        self._within_snapshots, self._unsure = 0, False


def _pointer(copy: _Copy) -> Any:
    return copy.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
