"""KV sequence: one text in a context: its tokens, and how it is extended, cut back and copied."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.llama.batch import Batch, require_at_most
from localspec.llama.context_params import ATTENTION_STEP, OUTPUT_ROWS
from localspec.llama.model import Model
from localspec.llama.prefix import place_to_mark, take_prefix
from localspec.llama.rollback import Memory, Rollback
from localspec.llama.state import State, restore, state_of
from localspec.llama.tree import Tree
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.passes import Pass, Scores, draft_pass
from localspec.utils.closing import Closing
from localspec.utils.tokens import common_prefix

if TYPE_CHECKING:
    from localspec.llama.context import Context

_CLOSED = "this text was closed; begin another"
# A pass over a draft also evaluates up to this many missing tokens; more get their own pass.
_MAX_REPLAYED = 8


class KVSequence(Closing):
    """One text in a context, made by `Context.new_sequence`. Close it (or use `with`).

    tokens: the committed text. chunk: prompt tokens per pass. evaluated: the tokens in all passes,
    without padding. After an interrupted pass the cache may hold more than `tokens`; the next call
    rolls back the rest. After a rollback it may hold less; the next pass first evaluates those.

    Of the last pass: again is the number of tokens that it evaluated once more, rows_in_pass all
    its rows without padding, and branch_ids the ids of its draft's branches, until `commit`.

    least_rows: the least rows of a pass; smaller passes are padded (`batch_invariance` finds the
    value that makes logits independent of the width). is_uniform: whether passes have no more rows
    either, whatever `chunk` says; then drafts are chains, so that cells lie in their order. padded:
    maps the rows that a decode with a draft needs to the rows that it gets. Padding is removed from
    the cache at once, where it can be. wants_padding: whether it gets logits, as equal passes do.
    """

    def __init__(self, context: "Context", memory: Memory) -> None:
        self.context = context
        self.memory = memory
        self.n_vocab = context.n_vocab
        self.chunk = context.chunk
        self.least_rows = 1
        self.is_uniform = False
        self.padded: Callable[[int], int] = int
        self.wants_padding = False
        self.tokens: list[int] = []
        self.evaluated = 0
        self.again = 0
        self.rows_in_pass = 0
        self._pending: Sequence[int] = ()  # the tokens of the last pass, until `commit`
        self._draft = NOTHING
        self.branch_ids: list[int] = []
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
    def is_settled(self) -> bool:
        """Whether the last pass has its verdict."""
        return not self._pending

    @property
    def takes_back(self) -> int | None:
        """As in Limit."""
        return self.memory.takes_back

    @property
    def rollback(self) -> Rollback:
        """How the text can be cut back."""
        return self.memory.kind

    @property
    def n_cells(self) -> int:
        """The most tokens of the text, padding of a pass included."""
        return self.context.n_cells

    @property
    def n_ctx(self) -> int:
        """The most tokens of the text: `n_cells` without the padding of the last pass."""
        return self.n_cells - (self.least_rows - 1)

    @property
    def branches(self) -> int:
        """The most branches of a tree of drafted tokens; 1 where only chains are scored."""
        return 1 if self.is_uniform else 1 + self.context.params.branches

    def set_width(self, least_rows: int, *, is_uniform: bool = False) -> None:
        """Set `least_rows` and `is_uniform`."""
        self.least_rows, self.is_uniform = least_rows, is_uniform

    @property
    def most_kept(self) -> int:
        """The most tokens of the next pass that can become text.

        A GPU's kernels add in an order that depends on the length of attention (CUDA: mmf.cuh). So
        uniform passes keep no token for which a pass that begins with it would have a longer one.
        """
        if not self.is_uniform:
            return self.chunk
        end = min(self.memory.length, len(self.tokens)) + self.least_rows
        return min(self.least_rows, -end % ATTENTION_STEP + 1)

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

    # Extending: prompts, and the drafter's own tokens.

    def shared(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of `tokens` and the text."""
        return common_prefix(self.tokens, tokens)

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens to the text and evaluate them in chunks. `tokens` must not be empty.

        Returns the logits after the last token, (n_vocab,) float32: a view, valid until the next
        decode of the context.
        """
        self.roll_back()
        self._require_space(len(tokens))
        for missing in self.catch_up(self.most_kept - 1):
            self._decode(missing)
        at = 0
        while at < len(tokens):
            chunk = tokens[at : at + self.most_kept - len(self._missing)]
            scores = self._decode(Pass(self, chunk))
            at += len(chunk)
        logits: NDArray[np.float32] = scores.logits[0]
        return logits

    def set_tokens(self, tokens: Sequence[int]) -> None:
        """Make `tokens` the text; only tokens after the common prefix are evaluated."""
        held = self.truncate(self.shared(tokens))
        if held < len(tokens):
            self.extend(tokens[held:])

    def truncate(self, length: int) -> int:
        """Cut the text to its first `length` tokens; returns how many are left.

        Fewer may be left, down to 0, if the cache cannot be cut there: the caller then evaluates
        the missing tokens again.
        """
        self.roll_back()
        del self.tokens[self.memory.cut(length) :]
        return len(self.tokens)

    def share(self, other: "KVSequence", length: int) -> bool:
        """Replace the text by the first `length` tokens of another text of the same context.

        Nothing is evaluated. Returns False, and changes nothing, where this is not possible: in
        another context, or in memory that has a state or a sliding window.
        """
        if other.context is not self.context:
            return False
        self.roll_back()
        # The other text may have an open pass, which stays as it is.
        held = min(len(other.tokens), other.memory.length)
        if length > held or not self.memory.share(other.memory, length):
            return False
        self.tokens = other.tokens[:length]
        return True

    def take_prefix(self, tokens: Sequence[int]) -> int:
        """Take the beginning of `tokens` from another text, if that holds more; as `shared`."""
        return take_prefix(self, tokens)

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        """How many of these tokens texts of the context have begun with; 0 needs no mark."""
        return place_to_mark(self, tokens)

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

    # Saving and restoring.

    def state(self) -> State:
        """A copy of the text in the KV cache, to restore later or in another context.

        Tokens that the cache lacks after a rollback are not part of it. The copy is empty if the
        library cannot copy this cache.
        """
        return state_of(self)

    def restore(self, state: State) -> bool:
        """Replace the text by a state's, without evaluating tokens.

        Returns False, with an empty cache, if the state does not fit: the caller then evaluates the
        tokens. A state of a recurrent model or of a sliding window covers only the end of its text:
        the text can be extended, and truncated back to the state's length, but not to less.
        """
        return restore(self, state)

    # Scoring a draft.

    def catch_up(self, most: int = _MAX_REPLAYED) -> Iterator[Pass]:
        """The passes that evaluate the missing tokens, where these are more than `most`."""
        self.roll_back()
        if len(self._missing) > most:
            while self._missing:
                yield Pass(self, ())

    def score(self, pending: int, draft: Draft) -> Scores:
        """Score the pending token and the drafted tokens in a decode of their own."""
        for missing in self.catch_up():
            self._decode(missing)
        return self._decode(draft_pass(self, pending, draft))

    def commit(self, path: Sequence[int]) -> None:
        """Append the pending token and the drafted tokens of `path`; remove all other tokens."""
        draft, self._draft = self._draft, NOTHING
        if self.branch_ids:
            ids = Tree(draft).branches_through(path[-1]) if path else [0]
            winner = [self.seq_id, *self.branch_ids][ids[0]]
            start = len(self.tokens) + len(self._pending)
            self.memory.join(winner, self.branch_ids, start, start + len(path))
            self.branch_ids = []
        self.tokens += [*self._pending, *(draft.tokens[node] for node in path)]
        self._pending = ()
        self.roll_back()

    def close(self) -> None:
        """Remove the text from the context; the context is freed with its last text."""
        self._closed = True
        self.context.leave(self)

    # For the context, which decodes the passes of several texts.

    def require_possible(self, requested: Pass) -> None:
        """Raise LocalspecError if the text cannot have this pass."""
        if self._closed:
            raise LocalspecError(_CLOSED)
        if requested.drafted and self.rollback is Rollback.NOTHING:
            raise LocalspecError(f"this model's cache can forget {self.rollback.value}: no drafts")
        if requested.parents and (branches := 1 + self.branches_of(requested)) > self.branches:
            raise LocalspecError(
                f"the draft has {branches} branches, and this context has room for only "
                f"{self.branches}; propose a chain"
            )
        require_at_most(requested.wanted, OUTPUT_ROWS, "rows with logits")
        require_at_most(self.rows_of(requested), self.context.chunk, "rows")
        self._require_space(len(requested))

    def rows_of(self, requested: Pass) -> int:
        """The rows of this pass, with the missing tokens that it evaluates first."""
        missing = max(0, len(self.tokens) - self.memory.length)
        return min(missing + len(requested), max(self.most_kept, len(requested)))

    def evaluate_missing_before(self, requested: Pass) -> None:
        """Evaluate the missing tokens if they are too many to go before the pass.

        A decode that was interrupted or refused can lose a recurrent state.
        """
        room = max(0, self.most_kept - len(requested))
        if len(requested) and len(self.tokens) - self.memory.length > room:
            for missing in self.catch_up(room):
                self._decode(missing)

    def branches_of(self, requested: Pass) -> int:
        """How many further sequence ids this pass needs for the branches of its draft."""
        return requested.draft.branches - 1 if requested.parents else 0

    def prepare(self, requested: Pass) -> None:
        """Make it possible to remove the pass's draft."""
        if requested.drafted:
            self.memory.prepare(requested.drafted)

    def add_rows(self, requested: Pass, batch: Batch, free_ids: list[int]) -> None:
        """Add the rows of a pass to the batch. free_ids: sequence ids for branches; some go."""
        again = self._missing[: max(0, self.most_kept - len(requested))]
        self.again = len(again)
        start, certain = self.memory.length, len(requested) - (requested.drafted or 0)
        further = self.branches_of(requested)
        if not further:
            self.rows_in_pass = len(again) + len(requested)
            batch.add(
                [*again, *requested.tokens],
                start=start,
                seq_id=self.seq_id,
                wanted=requested.wanted,
                embeddings=requested.embeddings,
            )
            return
        self.branch_ids = [free_ids.pop(0) for _ in range(further)]
        self.memory.fork(self.branch_ids)
        ids = [self.seq_id, *self.branch_ids]
        for token in again:
            batch.add_row(token, position=start, seq_ids=ids, wanted=False)
            start += 1
        for token in requested.tokens[:certain]:
            batch.add_row(token, position=start, seq_ids=ids)
            start += 1
        tree = Tree(requested.draft)
        for node, token in enumerate(requested.tokens[certain:]):
            through = [ids[branch] for branch in tree.branches_through(node)]
            batch.add_row(token, position=start + tree.level(node), seq_ids=through)
        self.rows_in_pass = len(again) + len(requested)

    def add_padding(self, requested: Sequence[Pass], batch: Batch) -> int:
        """Add padding to a batch whose last rows are this text's; return how many rows.

        requested: all passes of the batch.
        """
        rows = len(batch)
        has_prompt = any(each.wanted != len(each) for each in requested)
        more = 0 if has_prompt else self.padded(rows) - rows
        start = self.memory.length + self.rows_in_pass
        count = max(0, min(more, self.n_cells - start), self.least_rows - rows)
        if count:
            # The last layers compute the wanted rows, and choose kernels (a GPU: graphs) by them.
            wanted = count if self.least_rows > 1 or self.wants_padding else 0
            batch.add([0] * count, start=start, seq_id=self.seq_id, wanted=wanted)
        return count

    def end_pass(self, requested: Pass) -> None:
        """The pass was computed: its tokens become text now, or by `commit`."""
        self._draft = requested.draft
        self._pending = requested.tokens[: len(requested) - len(self._draft)]
        rows = self.rows_in_pass
        if self.branch_ids:
            # The first branch has the text's own sequence id.
            rows -= len(self._draft) - Tree(self._draft).depth_of_first_branch
        self.memory.end_pass(rows)
        if requested.drafted is None:
            self.tokens.extend(self._pending)
            self._pending = ()
        self.evaluated += self.rows_in_pass

    def remove_padding(self, count: int) -> None:
        """Remove the padding of the last pass from the cache."""
        end = self.memory.length
        self.memory.end_pass(count)
        if self.memory.cut(end) != end:
            raise LocalspecError("the padding of a pass cannot be forgotten; do without")

    def roll_back(self) -> None:
        """Remove the tokens of the last pass that are not part of the text."""
        if self._closed:
            raise LocalspecError(_CLOSED)
        _ = self.context.handle  # which must be open
        if self.branch_ids:
            for branch in self.branch_ids:
                self.memory.remove_branch(branch)
            self.branch_ids = []
        self.memory.cut(len(self.tokens))

    @property
    def _missing(self) -> list[int]:
        """The last tokens of the text that are not in the cache, after a rollback."""
        return self.tokens[self.memory.length :]

    def _decode(self, requested: Pass) -> Scores:
        return self.context.decode([requested])[0]

    def _require_space(self, count: int) -> None:
        if len(self.tokens) + count > self.n_ctx:
            raise LocalspecError(f"the context of {self.n_ctx} tokens is full; use a larger one")


def sequence_of(requested: Pass) -> KVSequence:
    """The text of a pass, which is one of this library."""
    return cast(KVSequence, requested.sequence)
