"""KV sequence: one text in a context: how it is extended, and how drafts for it are scored."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.llama.batch import Batch, require_at_most
from localspec.llama.cached_text import CLOSED, CachedText
from localspec.llama.context_params import ATTENTION_STEP, OUTPUT_ROWS
from localspec.llama.kv_cache import KVCache
from localspec.llama.media import encoded
from localspec.llama.rollback import Memory
from localspec.llama.tree import Tree
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.passes import WIDE, Pass, Scores, draft_pass
from localspec.speculation.target import prompt_part
from localspec.utils.media import MediaToken, has_media, same_kind

# A pass over a draft also evaluates up to this many missing tokens; more get their own pass.
_MAX_REPLAYED = 8


class KVSequence(CachedText):
    """One text in a context, made by `Context.new_sequence`. Close it (or use `with`).

    chunk: prompt tokens per pass. evaluated: the tokens in all passes, without padding. After a
    rollback the cache may hold less than `tokens`; the next pass first evaluates those. Of the last
    pass: again is the number of tokens that it evaluated once more, and rows_in_pass all its rows
    without padding.

    least_rows: the least rows of a pass; smaller passes are padded (`batch_invariance` finds the
    value that makes logits independent of the width). is_uniform: whether passes have no more rows
    either, whatever `chunk` says; then drafts are chains, so that cells lie in their order. padded:
    maps the rows that a decode with a draft needs to the rows that it gets. Padding is removed from
    the cache at once, where it can be. wants_padding: whether it gets logits, as equal passes do.
    """

    context: "KVCache[KVSequence]"

    def __init__(self, context: "KVCache[KVSequence]", memory: Memory) -> None:
        super().__init__(context, memory)
        self.n_vocab = context.n_vocab
        self.chunk = context.chunk
        self.least_rows = 1
        self.is_uniform = False
        self.padded: Callable[[int], int] = int
        self.wants_padding = False
        self.evaluated = 0
        self.again = 0
        self.rows_in_pass = 0
        self._draft = NOTHING

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

    def part(self, tokens: Sequence[int], at: int, end: int, most: int) -> int:
        """As in Target."""
        if tokens[at] < 0:
            return same_kind(tokens, at, min(end - at, self.context.chunk))
        return prompt_part(same_kind(tokens, at, min(end - at, most + WIDE)), most)

    # Extending: prompts, and the drafter's own tokens.

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens to the text and evaluate them in chunks. `tokens` must not be empty.

        Returns the logits after the last token, (n_vocab,) float32: a view, valid until the next
        decode of the context.
        """
        self.roll_back()
        self._require_space(len(tokens))
        for missing in self.catch_up(self.most_kept - 1):
            self._decode(missing)
        at, end = 0, len(tokens)
        while at < end:
            most = self.most_kept - len(self._missing)
            chunk = tokens[at : at + self.part(tokens, at, end, most)]
            scores = self._decode(Pass(self, chunk))
            at += len(chunk)
        logits: NDArray[np.float32] = scores.logits[0]
        return logits

    def set_tokens(self, tokens: Sequence[int]) -> None:
        """Make `tokens` the text; only tokens after the common prefix are evaluated."""
        held = self.truncate(self.shared(tokens))
        if held < len(tokens):
            self.extend(tokens[held:])

    # Scoring a draft.

    def catch_up(self, most: int = _MAX_REPLAYED) -> Iterator[Pass]:
        """The passes that evaluate the missing tokens, where these are more than `most`."""
        self.roll_back()
        if len(self._missing) > most or has_media(self._missing):
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

    # For the context, which decodes the passes of several texts.

    def require_possible(self, requested: Pass) -> None:
        """Raise LocalspecError if the text cannot have this pass."""
        if self._closed:
            raise LocalspecError(CLOSED)
        if requested.drafted and not self.scores_drafts:
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
        if not len(requested) or self.memory.length >= len(self.tokens):
            return
        room = max(0, self.most_kept - len(requested))
        for missing in self.catch_up(-1 if self.media_of(requested) else room):
            self._decode(missing)

    def media_of(self, requested: Pass) -> MediaToken | None:
        """The first row of this pass if it is one of an image or a sound; then all rows are.

        None for passes of heads, which have rows of their own.
        """
        if requested.embeddings is not None:
            return None
        first = (requested.tokens or self._missing or (0,))[0]
        return first if isinstance(first, MediaToken) else None

    def branches_of(self, requested: Pass) -> int:
        """How many further sequence ids this pass needs for the branches of its draft."""
        return requested.draft.branches - 1 if requested.parents else 0

    def prepare(self, requested: Pass) -> None:
        """Make it possible to remove the pass's draft."""
        if requested.drafted:
            self.memory.prepare(requested.drafted)

    def add_rows(self, requested: Pass, batch: Batch, free_ids: list[int]) -> None:
        """Add the rows of a pass to the batch. free_ids: sequence ids for branches; some go."""
        again = self._again(requested)
        self.again = len(again)
        if media := self.media_of(requested):
            self._add_media(media, [*again, *requested.tokens], requested.wanted, batch)
            return
        start, certain = self.memory.position, len(requested) - (requested.drafted or 0)
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

    def _add_media(
        self, first: MediaToken, tokens: Sequence[int], wanted: int, batch: Batch
    ) -> None:
        """Add rows of an image or a sound. first: the first of them."""
        media, place, count = encoded(first), first.place, len(tokens)
        begin, rows = self.memory.length - place, media.rows()[place : place + count]
        self.memory.positions.add(begin, media.count, media.positions)
        start = self.memory.positions.of(begin)
        sections = media.sections(start)
        batch.add([], start=start + place, seq_id=self.seq_id, wanted=wanted, embeddings=rows)
        if sections is None:
            batch.repeat_positions()
        else:
            batch.set_sections(sections[:, place : place + count])
        self.rows_in_pass = count

    def _again(self, requested: Pass) -> Sequence[int]:
        """The missing tokens that a pass evaluates first."""
        missing = self._missing
        if not missing or len(requested):
            return missing[: max(0, self.most_kept - len(requested))]
        most = self.context.chunk if missing[0] < 0 else self.most_kept
        return missing[: same_kind(missing, 0, most)]

    def add_padding(self, requested: Sequence[Pass], batch: Batch) -> int:
        """Add padding to a batch whose last rows are this text's; return how many rows.

        requested: all passes of the batch.
        """
        if self.media_of(requested[-1]):
            return 0
        rows = len(batch)
        has_prompt = any(each.wanted != len(each) for each in requested)
        more = 0 if has_prompt else self.padded(rows) - rows
        end = self.memory.length + self.rows_in_pass
        count = max(0, min(more, self.n_cells - end), self.least_rows - rows)
        if count:
            start = self.memory.position + self.rows_in_pass
            # The last layers compute the wanted rows, and choose kernels (a GPU: graphs) by them.
            wanted = count if self.least_rows > 1 or self.wants_padding else 0
            batch.add([0] * count, start=start, seq_id=self.seq_id, wanted=wanted)
        return count

    def end_pass(self, requested: Pass) -> None:
        """The pass was computed: its tokens become text now, or by `commit`."""
        self._draft = requested.draft
        self._pending = requested.tokens[: len(requested) - len(self._draft)]
        self.memory.end_pass(self.rows_in_pass)
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
