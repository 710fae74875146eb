"""Earlier texts: what all texts of an engine may copy from, and what is added as they end."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakSet

from localspec.drafters.drawn_copy import DrawnFrom
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


class EarlierTexts:
    """The texts that the suffix drafters of an engine copy from, beside the text of each.

    given: texts that stay, the oldest first, which may be read several times. store: of texts on
    the disk, where those that end are stored, too. kept: how many tokens of ended and stored texts
    are left when they have become half as many again.

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
        # The first so many entries of the index are of texts that stay.
        self._staying = 0
        self._ended = deque[tuple[Sequence[int], DrawnFrom]]()
        # Those that were indexed last, as the next ones may go on from them.
        self._latest = deque[Sequence[int]](maxlen=_LATEST)

    @property
    def problem(self) -> str | None:
        """Why texts could not be read from the disk or written there; None: they could."""
        return self.store.problem if self.store else None

    @property
    def are_added(self) -> bool:
        """Whether texts that have ended are of use here."""
        return len(self.readers) > 1 or self._writer is not None

    def add(self, text: Sequence[int], drawn_from: DrawnFrom | None = None) -> None:
        """Add a text that has ended; it may go on from one that was added before.

        drawn_from: what its tokens were drawn from, by their places in it, as far as known.
        """
        if len(self.readers) > 1:
            self._ended.append((text, DrawnFrom() if drawn_from is None else drawn_from))
        if self._writer:
            self._writer.put(text)

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
        indexed = self._indexed or Indexed(self._with_given(), DrawnFrom())
        while self._ended:
            indexed = self._with(*self._ended.popleft(), indexed)
        self._indexed = indexed
        return indexed

    def forget(self) -> None:
        """Forget ended texts; those on the disk stay."""
        self._ended.clear()
        self._latest.clear()
        self._indexed = None

    def _with_given(self) -> SuffixAutomaton:
        index = SuffixAutomaton()
        for text in self._given:
            index.extend(text)
            index.end_text()
        self._staying = len(index.tokens)
        for text in self.store.load() if self.store else ():
            index.extend(text)
            index.end_text()
        return index

    def _with(self, text: Sequence[int], drawn_from: DrawnFrom, indexed: Indexed) -> Indexed:
        """The index with a text, as far as that does not only repeat the latest ones."""
        index = indexed.texts
        known = max((common_prefix(text, each) for each in self._latest), default=0)
        if known < len(text):
            most = min(_MOST_ADDED, self._kept)
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
        if len(index.tokens) - self._staying > 3 * self._kept // 2:
            return self._with_latest(*indexed)
        return indexed

    def _with_latest(self, index: SuffixAutomaton, drawn_from: DrawnFrom) -> Indexed:
        """An index of the texts that stay, and of the last `kept` tokens of others."""
        count = len(index.tokens)
        made, known = SuffixAutomaton(), DrawnFrom()
        for first, after in ((0, self._staying), (count - self._kept, count)):
            known.extend(len(made.tokens), drawn_from.part(first, after))
            made.read(index.tokens[first:after])
        return Indexed(made, known)
