"""Earlier texts: what all texts of an engine may copy from, and what is added as they end."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakSet

from localspec.drafters.drawn_from import DrawnFrom, DrawnText
from localspec.drafters.past_writer import PastWriter
from localspec.drafters.suffix_automaton import SuffixAutomaton
from localspec.drafters.suffix_store import PastTexts
from localspec.utils.tokens import common_prefix

# Where a text is indexed without its beginning, this many tokens before that are indexed with it,
# so that matches right after are long.
CONTEXT = 64
# As many as a drafter keeps of its own replaced texts.
KEPT_TOKENS = 65_536
# The end of a text that goes on by itself, such as the last turns of an agent.
_MOST_ADDED = 16_384
# As many texts as are likely to go on by turns.
_LATEST = 16


class Indexed(NamedTuple):
    """Texts in an index, and what their tokens were drawn from, by their places there."""

    texts: SuffixAutomaton
    drawn_from: DrawnFrom


class _Successor:
    """An index of the texts that stay and of the latest others, read from another index in parts.

    staying: so many entries of the other index are of texts that stay. first: the first one of the
    other texts that is read.
    """

    def __init__(self, staying: int, first: int) -> None:
        self.indexed = Indexed(SuffixAutomaton(), DrawnFrom())
        self._staying, self._first = staying, first
        self._place = 0 if staying else first

    def unread(self, entries: int) -> int:
        """How many of the other index's entries are left to read."""
        before = self._first - self._staying if self._place < self._staying else 0
        return entries - self._place - before

    def read(self, other: Indexed, count: int) -> None:
        """Read the next entries of the other index."""
        texts, drawn_from = self.indexed
        while count > 0:
            end = self._staying if self._place < self._staying else len(other.texts.tokens)
            after = min(end, self._place + count)
            drawn_from.extend(len(texts.tokens), other.drawn_from.part(self._place, after))
            texts.read(other.texts.tokens[self._place : after])
            count -= after - self._place
            self._place = self._first if after == self._staying else after


class EarlierTexts:
    """The texts that the suffix drafters of an engine copy from, beside the text of each.

    given: texts that stay, the oldest first, which may be read several times. store: of texts on
    the disk, where those that end are stored, too. kept: about how many tokens of ended and stored
    texts are left when they have become half as many again; at most those of the last text more.

    What is left is read into another index while texts are added, some tokens for each: a step
    waits for them. So the index takes up to twice its memory.

    Ended texts are indexed where several drafters copy from them: each knows its own texts. Texts
    end in any thread, and where the garbage collector ends them, also in the middle of anything. So
    they only wait then; a drafter that begins a text indexes them, and drafters take turns.
    """

    def __init__(
        self,
        given: Iterable[Sequence[int]] = (),
        store: PastTexts | None = None,
        *,
        kept: int = KEPT_TOKENS,
    ) -> None:
        self.store = store
        # The drafters that copy from these texts.
        self.readers: WeakSet[object] = WeakSet()
        self._writer = PastWriter(store) if store else None
        self._given = given
        self._kept = kept
        self._indexed: Indexed | None = None
        # What takes its place when there are too many tokens.
        self._successor: _Successor | None = None
        # The first so many entries of the index are of texts that stay.
        self._staying = 0
        self._ended = deque[DrawnText]()
        # Those that were indexed last, as the next ones may go on from them.
        self._latest = deque[Sequence[int]](maxlen=_LATEST)

    @property
    def problem(self) -> str | None:
        """Why texts could not be read from the disk or written there; None: they could."""
        return self.store.problem if self.store else None

    @property
    def are_added(self) -> bool:
        """Whether texts that have ended are of use here."""
        return self.are_indexed or self._writer is not None

    @property
    def are_indexed(self) -> bool:
        """Whether several drafters copy from texts that have ended: each knows its own."""
        return len(self.readers) > 1

    def add(self, text: Sequence[int], drawn_from: DrawnFrom | None = None) -> None:
        """Add a text that has ended; it may go on from one that was added before.

        drawn_from: what its tokens were drawn from, by their places in it, as far as known.
        """
        ended = DrawnText(text, DrawnFrom() if drawn_from is None else drawn_from)
        if self.are_indexed:
            self._ended.append(ended)
        if self._writer:
            self._writer.put(ended)

    def write(self) -> None:
        """Wait until all texts are on the disk."""
        if self._writer:
            self._writer.write()

    def end(self) -> None:
        """Note that no text is added any more."""
        if self._writer:
            self._writer.end()
            self._writer = None

    def up_to_date(self) -> Indexed:
        """The index of all texts so far. Called by one drafter at a time.

        Later calls may return another one; that of a text stays as it is or grows.
        """
        indexed = self._indexed or self._with_given()
        while self._ended:
            indexed = self._with(*self._ended.popleft(), indexed)
        self._indexed = indexed
        return indexed

    def forget(self) -> None:
        """Forget ended texts; those on the disk stay."""
        self._ended.clear()
        self._latest.clear()
        self._indexed = self._successor = None

    def _with_given(self) -> Indexed:
        index, known = SuffixAutomaton(), DrawnFrom()
        for text in self._given:
            index.extend(text)
            index.end_text()
        self._staying = len(index.tokens)
        for stored in self.store.load() if self.store else ():
            known.extend(len(index.tokens), stored.drawn_from)
            index.extend(stored.tokens)
            index.end_text()
        return Indexed(index, known)

    def _with(self, text: Sequence[int], drawn_from: DrawnFrom, indexed: Indexed) -> Indexed:
        """The index with a text, as far as that does not only repeat the latest ones."""
        index, before = indexed.texts, len(indexed.texts.tokens)
        known = max((common_prefix(text, each) for each in self._latest), default=0)
        if known < len(text):
            most = min(_MOST_ADDED, self._kept // 2)
            self._latest.append(text)
            first = max(0, known - CONTEXT, len(text) - most)
            try:
                part = drawn_from.part(first, len(text))
                indexed.drawn_from.extend(len(index.tokens), part)
                index.extend(text[first:])
                index.end_text()
            except BaseException:
                # An interrupt: nothing can be added to this index any more.
                self.forget()
                raise
        return self._or_successor(indexed, len(index.tokens) - before)

    def _or_successor(self, indexed: Indexed, added: int) -> Indexed:
        """The index, or its successor once there are too many tokens. added: the newest entries."""
        entries = len(indexed.texts.tokens)
        if (others := entries - self._staying) <= self._kept:
            return indexed
        if self._successor is None:
            self._successor = _Successor(self._staying, self._staying + self._kept // 2)
        successor, room = self._successor, max(0, 3 * self._kept // 2 + 1 - others)
        # As much for each entry that is added, so that all is read when there is no room.
        unread = successor.unread(entries)
        count = unread if not room else min(unread, -(-added * (unread + room) // (added + room)))
        try:
            successor.read(indexed, count)
        except BaseException:
            self._successor = None
            raise
        if room:
            return indexed
        self._successor = None
        return successor.indexed
