"""Cached text: one text in a KV cache, and how it is cut back, copied and shared."""

from collections.abc import Sequence
from typing import Protocol

from localspec.errors import LocalspecError
from localspec.llama.model import Model
from localspec.llama.rollback import Memory, Owner, Rollback
from localspec.llama.state import NO_STATE, State
from localspec.utils.closing import Closing
from localspec.utils.media import outside_media
from localspec.utils.tokens import common_prefix

CLOSED = "this text was closed; begin another"
# Fewer tokens are evaluated about as fast as they are found and copied.
LEAST_SAVED = 32


class Company(Owner, Protocol):
    """The context of a text, with the texts beside it; as in KVCache."""

    n_cells: int
    has_failed: bool

    @property
    def sequences(self) -> Sequence["CachedText"]: ...

    def renew(self) -> None: ...

    def leave(self, sequence: "CachedText") -> None: ...


class CachedText(Closing):
    """One text in a KV cache. Close it (or use `with`).

    tokens: the committed text. After an interrupted pass the cache may hold more than that; the
    next call rolls back the rest. After a rollback it may hold less. branch_ids: the sequence ids
    of further branches of the draft in the cache. foreseen_place: how many tokens of the next text
    later ones may begin with, beside those that texts in the context begin with.
    """

    def __init__(self, context: Company, memory: Memory) -> None:
        self.context = context
        self.memory = memory
        self.tokens: list[int] = []
        self.branch_ids: list[int] = []
        self.foreseen_place = 0
        self._pending: Sequence[int] = ()  # the tokens of the last pass, until `commit`
        self._closed = False

    @property
    def model(self) -> Model:
        """The model of the context."""
        return self.context.model

    @property
    def seq_id(self) -> int:
        """The sequence id of the text."""
        return self.memory.seq_id

    @property
    def takes_back(self) -> int | None:
        """As in Limit."""
        return self.memory.takes_back

    @property
    def rollback(self) -> Rollback:
        """How the text can be cut back."""
        return self.memory.kind

    @property
    def scores_drafts(self) -> bool:
        """Whether the cache can forget a draft."""
        return self.rollback is not Rollback.NOTHING

    @property
    def n_cells(self) -> int:
        """The most tokens of the text, padding of a pass included."""
        return self.context.n_cells

    @property
    def n_ctx(self) -> int:
        """The most tokens of the text."""
        return self.n_cells

    @property
    def shares_cells(self) -> bool:
        """Whether texts of the context share the cells of a common prefix."""
        return self.rollback is Rollback.PARTIAL and not self.model.sliding_window

    @property
    def only_chains(self) -> str | None:
        """Why this model's cache can never score a tree; None for attention without a window."""
        if self.rollback is not Rollback.PARTIAL:
            return f"this model's cache can forget {self.rollback.value}, and not single branches"
        if self.model.sliding_window:
            return "this model's sliding window cannot be shared by branches"
        return None

    def shared(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of `tokens` and the text."""
        return common_prefix(self.tokens, tokens)

    def truncate(self, length: int) -> int:
        """Cut the text to its first `length` tokens; returns how many are left.

        Fewer may be left, down to 0, if the cache cannot be cut there, or within an image: the
        caller then evaluates the missing tokens again.
        """
        self.roll_back()
        del self.tokens[self.memory.cut(outside_media(self.tokens, length)) :]
        return len(self.tokens)

    def share(self, other: "CachedText", length: int) -> bool:
        """Replace the text by the first `length` tokens of another text of the same context.

        Nothing is evaluated. Returns False, and changes nothing, where this is not possible: in
        another context, or in memory that lacks some of them, has a state or a sliding window.
        """
        if other.context is not self.context or length > other.memory.length:
            return False
        self.roll_back()
        # The other text may have an open pass, which stays as it is.
        if not self.memory.share(other.memory, length):
            return False
        self.tokens = other.tokens[:length]
        return True

    def take_prefix(self, tokens: Sequence[int]) -> int:
        """Replace the text by the beginning of `tokens` that another text holds, if that is longer.

        Attention without a window shares the other text's cells, which costs nothing; the last text
        that uses a cell frees it. Of other memories a state is copied: that of a whole text, or of
        the beginning up to a mark. Of a text whose pass has no verdict yet, only the committed
        tokens are shared, and only what is marked is copied. Returns the length of the common
        prefix of `tokens` and the text.
        """
        others = [each for each in self.context.sequences if each is not self]
        lengths = [(each._usable(tokens), each) for each in others]
        length, other = max(lengths, key=lambda each: each[0], default=(0, self))
        if length - self.shared(tokens) >= LEAST_SAVED:
            if self.shares_cells:
                self.share(other, length)
            elif length == other._whole(tokens):
                self.restore(other.state())
            else:
                self.roll_back()
                taken = self.memory.take_mark(other.memory, length)
                self.tokens = [*tokens[:length]] if taken else []
        return self.shared(tokens)

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        """How many of the tokens a text of the context begins with, this one or another.

        Later texts may begin so too: instructions, or a conversation without the reasoning of its
        last answer. 0 where no mark is needed to come back there.
        """
        if self.shares_cells:
            return 0
        foreseen = min(self.foreseen_place, len(tokens))
        return max(foreseen, *(each.shared(tokens) for each in self.context.sequences))

    def checkpoint(self) -> None:
        """Make it possible to truncate to the present text later; replaces the last checkpoint."""
        self.roll_back()
        self.memory.checkpoint()

    def mark(self) -> None:
        """Save the state of the present text, so that a later truncate can return to it.

        A few marks are kept, and the least useful go first. A mark is deleted when the text is
        cut to less. If the cache can be cut anywhere, this does nothing.
        """
        self.roll_back()
        self.memory.mark()

    def state(self) -> State:
        """A copy of the text in the KV cache, to restore later or in another context.

        Tokens that the cache lacks after a rollback are not part of it. The copy is empty if the
        library cannot copy this cache.
        """
        if self.context.has_failed:
            self.context.renew()
        self.roll_back()
        data = self.memory.copy() if self.memory.length else None
        if data is None:
            return NO_STATE
        return State(tuple(self.tokens[: self.memory.length]), data)

    def restore(self, state: State) -> bool:
        """Replace the text by a state's, without evaluating tokens.

        Returns False, with an empty cache, if the state does not fit: the caller then evaluates the
        tokens. A state of a recurrent model or of a sliding window covers only the end of its text:
        the text can be extended, and truncated back to the state's length, but not to less.
        """
        self.truncate(0)
        if not state.tokens or len(state.tokens) > self.n_ctx:
            return not state.tokens
        restored = self.memory.load(state.data, state.tokens)
        if restored:
            self.tokens = list(state.tokens)
        return restored

    def close(self) -> None:
        """Remove the text from the context; the context is freed with its last text."""
        self._closed = True
        self.context.leave(self)

    def roll_back(self) -> None:
        """Remove the tokens of the last pass that are not part of the text."""
        if self._closed:
            raise LocalspecError(CLOSED)
        _ = self.context.handle  # which must be open
        if self.branch_ids:
            for branch in self.branch_ids:
                self.memory.remove_branch(branch)
            self.branch_ids = []
        self.memory.cut(len(self.tokens))

    def _usable(self, tokens: Sequence[int]) -> int:
        """How many of the tokens another text can take from this one."""
        if self.shares_cells:
            return self.memory.positions.whole(min(self.shared(tokens), self.memory.length))
        return max(self._whole(tokens), self.memory.marked_within(self.shared(tokens)))

    def _whole(self, tokens: Sequence[int]) -> int:
        """The length of the text if it is a prefix of the tokens, else 0."""
        length = len(self.tokens)
        # Until a pass has its verdict, the cache holds more than the text.
        return length if self.memory.length == length == self.shared(tokens) else 0
