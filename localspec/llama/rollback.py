"""Rollback: how the KV cache of a context can be cut back; probed when the model is loaded.

Attention (`PARTIAL`) stores keys and values of each token, so any last tokens can be cut off. The
exception is a sliding window that has moved on: the earlier tokens that it needs are gone. The
library accepts such a cut and then computes wrong logits, so `Memory` computes how deep a cut may
go.

A recurrent layer keeps one state of the whole text, which cannot be cut. For some architectures
(`BOUNDED`: Qwen3.5, Nemotron-H, LFM2, ...) the library can save snapshots of the state after each
of the last rows of a pass: up to `SNAPSHOTS` tokens of the last pass can be rolled back, once per
pass, and never its first row. The library accepts more and then computes wrong logits, so the rows
are counted here.

For other recurrent models (`FULL`: Mamba, RWKV, Jamba, ...), and for deeper drafts, the state is
copied before a pass with a draft (the checkpoint) and restored after a rejection. The tokens that
are then missing are not evaluated at once: `Context` puts them in front of its next pass. A draft
model of this kind takes its checkpoint before the second token of a draft. States that cannot be
copied (`NOTHING`) can only be cleared, so such models are decoded without drafts.

A mark is a copy of a state that is kept longer: at the end of a prompt and of an answer, so that an
answer can be regenerated and a question edited, and where a prompt leaves what a text began with,
so that the next one can leave it there too. Other texts take it. Sliding windows have marks too.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

import llama_cpp
import numpy as np

from localspec.llama.marks import Marks
from localspec.llama.model import Model
from localspec.llama.positions import Positions
from localspec.llama.state import Copy, pointer_to

# Where the library makes snapshots of the state, drafts up to this length need no checkpoint. Each
# snapshot takes as much memory as the state, and makes every pass a little slower.
SNAPSHOTS = 8
# Flags of the library's state functions. PARTIAL_ONLY: without full attention, which can be cut.
# ON_DEVICE: not copied to main memory; the library keeps a single such copy.
_EVERYTHING, _PARTIAL_ONLY, _ON_DEVICE = 0, 1, 2
_CHECKPOINT = _PARTIAL_ONLY | _ON_DEVICE


class Rollback(Enum):
    """The kinds of KV cache in llama.cpp, by which tokens can be removed.

    PARTIAL: any number of last tokens. BOUNDED: a few tokens of the last pass; for more, as FULL.
    FULL: the tokens after a checkpoint. NOTHING: only all tokens at once.
    """

    PARTIAL = "any last tokens"
    BOUNDED = "a few tokens of the last pass"
    FULL = "what came after a checkpoint"
    NOTHING = "only everything at once"


class Owner(Protocol):
    """The context of some texts. Its library pointers change when it is made anew."""

    @property
    def model(self) -> Model:
        """The model whose texts they are."""
        ...

    @property
    def handle(self) -> Any:
        """The library's context."""
        ...

    @property
    def memory(self) -> Any:
        """The library's KV cache ("memory")."""
        ...


class Memory:
    """One text in the library's KV cache ("memory"), and the ways to cut it back.

    owner: the context. seq_id: the text's sequence id. window: the size of the sliding window in
    tokens, 0 for none; older tokens are dropped. kind: as found by `probe`. length: the number of
    the text's tokens in the cache, once `end_pass` has followed `begin_pass`; of a tree, every node
    counts until `cut` or `join`. positions: where its tokens are in the model's rotations.
    """

    def __init__(
        self, owner: Owner, seq_id: int, window: int, kind: Rollback = Rollback.PARTIAL
    ) -> None:
        self.kind = kind
        self.length = 0
        self.positions = Positions()
        self.seq_id = seq_id
        self._owner = owner
        self._window = window
        self._snapshots = int(llama_cpp.llama_n_rs_seq(owner.handle))
        # How many of the last tokens the snapshots can roll back; they can be used once per pass.
        self._within_snapshots = 0
        self._length_unsure = False
        self._checkpoint: tuple[int, Copy] | None = None
        self._marks = Marks()
        # (length, oldest token) of a restored state: texts this long or longer need no older token.
        self._reach = (0, 0)

    def probe(self) -> None:
        """Find the kind. Before, the cache holds two tokens of one pass; afterwards it is empty."""
        if not self._snapshots and self._remove_from(1):
            self.kind = Rollback.PARTIAL
        else:
            self.kind = Rollback.BOUNDED if self._snapshots else Rollback.FULL
            self.checkpoint()
            if self._checkpoint is None:
                self.kind = Rollback.NOTHING
        self.clear()

    @property
    def position(self) -> int:
        """The position of the next token."""
        return self.positions.of(self.length)

    @property
    def takes_back(self) -> int | None:
        """How many drafted tokens can be rolled back without a checkpoint; None: any number."""
        return None if self.kind is Rollback.PARTIAL else self._snapshots

    def begin_pass(self) -> None:
        """A pass begins: until `end_pass`, the cache may hold more than `length` tokens."""
        self._length_unsure = True
        self._within_snapshots = 0

    def end_pass(self, rows: int) -> None:
        """The pass has ended and added `rows` tokens."""
        self.length += rows
        self._within_snapshots = min(self._snapshots, rows - 1)
        self._length_unsure = False

    def lose_snapshots(self) -> None:
        """The snapshots of the last pass cannot be used any more."""
        self._within_snapshots = 0

    def prepare(self, drafted: int) -> None:
        """Prepare for a pass whose last `drafted` tokens may have to be removed."""
        if drafted > self._snapshots:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Copy the present state, to restore it later; for attention this does nothing.

        The new checkpoint replaces the one before.
        """
        if not self._copies_states:
            return
        if self._checkpoint is None or self._checkpoint[0] != self.length:
            self._checkpoint = None
            copy = self._copy(_CHECKPOINT)
            self._checkpoint = None if copy is None else (self.length, copy)

    def mark(self) -> None:
        """Keep a copy of the present state until the cache is cut to less.

        This does nothing if the cache can be cut anywhere, or if main memory is too small.
        """
        if not (self._copies_states or self._window) or not self.length:
            return
        if self.positions.whole(self.length) < self.length:
            return
        if self.length not in self._marks and self._marks.make_room(self._size(_PARTIAL_ONLY)):
            copy = self._copy(_PARTIAL_ONLY)
            if copy is not None:
                self._marks.add(self.length, copy)

    def cut(self, length: int) -> int:
        """Cut to at most `length` tokens; returns how many are left, which may be fewer."""
        if self._length_unsure or length < self.length:
            within, self._within_snapshots = self._within_snapshots, 0
            snapshots_suffice = 0 < self.length - length <= within
            length = self.positions.whole(min(length, self.length))
            self.length, self._length_unsure = length, True
            self._remove_beyond_length(snapshots_suffice or self._can_remove_from(self.length))
            self.positions.cut(self.length)
            self._length_unsure = False
        return self.length

    def left_by_cut(self, length: int) -> int:
        """About how many tokens a cut to `length` tokens would leave; nothing is cut."""
        if length >= self.length:
            return self.length
        cuts_anywhere = self.kind is Rollback.PARTIAL and not self._window
        # What a window has passed stays for a while.
        if cuts_anywhere or (self._window and self.length - length < self._window):
            return length
        return self.marked_within(length)

    @property
    def copy_bytes(self) -> int:
        """The bytes of a copy of the whole state."""
        return self._size(_EVERYTHING)

    def copy(self) -> Copy | None:
        """A copy of the whole state; None if the library cannot copy it, or memory is too small.

        None, too, where layers with a sliding window keep the whole text: a copy would be without
        what the window has passed, and so be loaded into other cells.
        """
        if not self._window and 0 < self._owner.model.sliding_window < self.length:
            return None
        try:
            return self._copy(_EVERYTHING)
        except MemoryError:
            return None

    def load(self, copy: Copy, tokens: Sequence[int]) -> bool:
        """Replace the cache by a copy of these tokens; if that fails, the cache is empty."""
        self.clear()
        self._length_unsure, length = True, len(tokens)
        self.positions.read(tokens)
        last = self.positions.of(length - 1)
        if self._load_state(copy, _EVERYTHING) and last == self._position_of_last():
            self._note_reach(length)
            self.length, self._length_unsure = length, False
            return True
        self.clear()
        return False

    def move(self, copy: Copy | None) -> None:
        """Load the text's copy into the owner's new context; marks stay, a checkpoint is lost."""
        self._checkpoint, self._within_snapshots = None, 0
        if self.length and (copy is None or not self._load_state(copy, _EVERYTHING)):
            self.clear()

    def share(self, other: "Memory", length: int) -> bool:
        """Take the first `length` tokens of another text of the same context, without a copy.

        Only for attention without a window: the library never frees cells of a sliding window that
        two texts share, and a recurrent state is that of a whole text.
        """
        if self.kind is not Rollback.PARTIAL or self._window:
            return False
        if other.positions.whole(length) < length:
            return False
        self.clear()
        self.positions.copy(other.positions, length)
        self._copy_id(other.seq_id, self.seq_id, 0, length)
        self.length = length
        return True

    def marked_within(self, length: int) -> int:
        """The tokens of the longest mark up to `length`; 0 without one."""
        return self._marks.longest_within(length)

    @property
    def marks(self) -> Marks:
        """The copies of states that are kept."""
        return self._marks

    def add_mark(self, length: int, copy: Copy) -> None:
        """Add a mark that an earlier text with the same beginning had, if there is room."""
        if length <= self.length and self._marks.make_room(copy.size):
            self._marks.add(length, copy)

    def take_mark(self, other: "Memory", length: int) -> bool:
        """Take the first `length` tokens of another text of the context, which has a mark there.

        If that fails, the cache is empty.
        """
        copy = other._marks[length]
        self.clear()
        self._length_unsure = True
        self.positions.copy(other.positions, length)
        # The cells of full attention are shared; what else there is, the mark holds.
        self._copy_id(other.seq_id, self.seq_id, 0, length)
        if self._load_state(copy, _PARTIAL_ONLY) and self._remove_from(length):
            self._note_reach(length)
            self._marks.add(length, copy)
            self.length, self._length_unsure = length, False
            return True
        self.clear()
        return False

    # Branches of a tree: sequence ids that share the text's cells.

    def fork(self, branches: Sequence[int]) -> None:
        """Add the text's tokens to the sequence ids of branches."""
        for branch in branches:
            self._copy_id(self.seq_id, branch, -1, -1)

    def join(self, winner: int, branches: Sequence[int], start: int, end: int) -> None:
        """Keep the tokens from `start` to `end` of one branch, and remove all other branches.

        winner: the branch's sequence id, which may be the text's own.
        """
        if winner != self.seq_id:
            self._remove(self.seq_id, start)
            self._copy_id(winner, self.seq_id, start, end)
        self._remove(self.seq_id, end)
        self.length = end
        for branch in branches:
            self.remove_branch(branch)

    def remove_branch(self, branch: int) -> None:
        """Remove everything from the sequence id of a branch."""
        self._remove(branch, -1)

    @property
    def _copies_states(self) -> bool:
        return self.kind in (Rollback.BOUNDED, Rollback.FULL)

    def _remove_beyond_length(self, removable: bool) -> None:
        """Remove the tokens beyond `length`; if that is not possible, more."""
        if self._checkpoint and self._checkpoint[0] > self.length:
            self._checkpoint = None
        self._marks.drop_beyond(self.length)
        if removable and self._remove_from(self.length):
            return
        saved = max(self._checkpoint[0] if self._checkpoint else 0, self._marks.longest)
        self.length = saved
        if not saved or not self._restore(saved):
            self.clear()

    def _can_remove_from(self, length: int) -> bool:
        """Whether the tokens from `length` on can be removed without wrong logits."""
        if self.kind is not Rollback.PARTIAL:
            return False
        # The window of the next token must still be complete after the cut.
        if not self._window:
            return True
        oldest = llama_cpp.llama_memory_seq_pos_min(self._owner.memory, self.seq_id)
        since, reach = self._reach
        needed = max(0, self.positions.of(length) - self._window + 1)
        return bool(0 <= oldest <= max(needed, reach if length >= since else 0))

    def _note_reach(self, length: int) -> None:
        """A state of `length` tokens was restored: later tokens need nothing that it lacks."""
        oldest = llama_cpp.llama_memory_seq_pos_min(self._owner.memory, self.seq_id)
        self._reach = (length, int(oldest))

    def _position_of_last(self) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self._owner.memory, self.seq_id))

    def _remove_from(self, length: int) -> bool:
        return self._remove(self.seq_id, length)

    def _remove(self, seq_id: int, length: int) -> bool:
        start = self.positions.of(length) if length > 0 else length
        return bool(llama_cpp.llama_memory_seq_rm(self._owner.memory, seq_id, start, -1))

    def _copy_id(self, source: int, to: int, start: int, end: int) -> None:
        first, last = (each if each < 0 else self.positions.of(each) for each in (start, end))
        llama_cpp.llama_memory_seq_cp(self._owner.memory, source, to, first, last)

    def _restore(self, saved: int) -> bool:
        """Restore the checkpoint or mark of `saved` tokens, and cut attention to that length."""
        if self._checkpoint and self._checkpoint[0] == saved:
            restored = self._load_state(self._checkpoint[1], _CHECKPOINT)
        else:
            restored = self._load_state(self._marks[saved], _PARTIAL_ONLY)
        if restored and self._remove_from(saved):
            self._note_reach(saved)
            return True
        return False

    def _size(self, flags: int) -> int:
        return int(llama_cpp.llama_state_seq_get_size_ext(self._owner.handle, self.seq_id, flags))

    def _copy(self, flags: int) -> Copy | None:
        copy = np.empty(self._size(flags), np.uint8)
        written = copy.size and llama_cpp.llama_state_seq_get_data_ext(
            self._owner.handle, pointer_to(copy), copy.size, self.seq_id, flags
        )
        self._owner.model.require_workers()
        return copy if copy.size and written == copy.size else None

    def _load_state(self, copy: Copy, flags: int) -> bool:
        read = llama_cpp.llama_state_seq_set_data_ext(
            self._owner.handle, pointer_to(copy), copy.size, self.seq_id, flags
        )
        return bool(read == copy.size)

    def drop_copies(self) -> None:
        """Free the copies of states, to which the text can be cut back."""
        self._checkpoint = None
        self._marks.clear()

    def clear(self) -> None:
        """Remove the whole text."""
        self.length, self._length_unsure = 0, True
        self.positions.cut(0)
        self.drop_copies()
        self._remove(self.seq_id, -1)
        self._within_snapshots, self._length_unsure = 0, False
