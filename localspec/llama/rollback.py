"""Rollback: what a cache's memory can forget, and how.

Attention keeps something of each token, so any last tokens can be cut off. A recurrent layer keeps
one running state of all the text. Of the last few states of a pass there are snapshots, if the
library makes them for the architecture and was asked to; else a copy of the state, taken before,
is put back, and what the text has beyond it is evaluated again.
"""

import ctypes
from enum import Enum
from typing import Any

import llama_cpp

# Drafts of up to so many tokens need no checkpoint where the library makes snapshots of the state;
# each takes as much memory as the state, and every pass some time.
SNAPSHOTS = 8
_SEQUENCE = 0
# Only what cannot be cut anyway; and kept where it is computed, not copied to main memory.
_PARTIAL_ONLY, _ON_DEVICE = 1, 2
_FLAGS = _PARTIAL_ONLY | _ON_DEVICE


class Rollback(Enum):
    """What a cache can forget: the kinds of memory llama.cpp has.

    PARTIAL: any number of last tokens. BOUNDED: a few of the last pass, and as FULL. FULL: what
    came after a checkpoint. NOTHING: nothing but everything.
    """

    PARTIAL = "any last tokens"
    BOUNDED = "a few tokens of the last pass"
    FULL = "what came after a checkpoint"
    NOTHING = "only everything at once"


class Memory:
    """The library's memory of one context, and the ways of cutting it back.

    handle: the context. window: how far its layers look back, 0 if over the whole text.
    length: how many tokens it holds, if `starts` was followed by `holds`.
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
        self._saved: int | None = None
        self._state = (ctypes.c_uint8 * 0)()

    def probe(self) -> None:
        """Find out its kind; it holds two tokens, evaluated together, and nothing afterwards."""
        if not self._snapshots and self._remove_from(1):
            self.kind = Rollback.PARTIAL
        else:
            self.kind = Rollback.BOUNDED if self._snapshots else Rollback.FULL
            self.checkpoint()
            if self._saved is None:
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
        """Make it possible to come back to what is held now; nothing to do for attention."""
        cannot = self.kind in (Rollback.PARTIAL, Rollback.NOTHING)
        if cannot or not self.length or self._saved == self.length:
            return
        self._saved = None
        size = llama_cpp.llama_state_seq_get_size_ext(self._handle, _SEQUENCE, _FLAGS)
        if size != len(self._state):
            self._state = (ctypes.c_uint8 * size)()
        if size and size == llama_cpp.llama_state_seq_get_data_ext(
            self._handle, self._state, size, _SEQUENCE, _FLAGS
        ):
            self._saved = self.length

    def cut(self, length: int) -> int:
        """Hold at most `length` tokens; returns how many are left, which may be fewer."""
        if self._unsure or length < self.length:
            within, self._within_snapshots = self._within_snapshots, 0
            removable = self._can_cut_to(length) or 0 < self.length - length <= within
            self.length, self._unsure = min(length, self.length), True
            self._forget(removable)
            self._unsure = False
        return self.length

    def _forget(self, removable: bool) -> None:
        """What it holds beyond `length`, and more if need be."""
        if self._saved is not None and self._saved > self.length:
            self._saved = None
        if removable and self._remove_from(self.length):
            return
        if self._saved is not None and self._restore(self._saved):
            self.length = self._saved
        else:
            self._clear()

    def _can_cut_to(self, length: int) -> bool:
        """Whether attention can; the library cuts deeper, too, and then computes wrong logits."""
        if self.kind is not Rollback.PARTIAL:
            return False
        # The window of a sliding-window cache must still reach back from there.
        if not self._window:
            return True
        oldest = llama_cpp.llama_memory_seq_pos_min(self.pointer, _SEQUENCE)
        return bool(0 <= oldest <= max(0, length - self._window))

    def _remove_from(self, length: int) -> bool:
        return bool(llama_cpp.llama_memory_seq_rm(self.pointer, _SEQUENCE, length, -1))

    def _restore(self, saved: int) -> bool:
        """Go back to the checkpoint; attention is cut to where the state then is."""
        size = len(self._state)
        restored = llama_cpp.llama_state_seq_set_data_ext(
            self._handle, self._state, size, _SEQUENCE, _FLAGS
        )
        return bool(restored == size) and self._remove_from(saved)

    def _clear(self) -> None:
        self.length, self._saved, self._unsure = 0, None, True
        llama_cpp.llama_memory_clear(self.pointer, True)
        self._within_snapshots, self._unsure = 0, False
