"""Earlier texts: what all texts of an engine may copy from, and what is added as they end."""

from collections import deque
from collections.abc import Iterable, Sequence
from weakref import WeakSet

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
        self._index: SuffixAutomaton | None = None
        # The first so many entries of the index are of texts that stay.
        self._staying = 0
        self._ended = deque[Sequence[int]]()
        # Those that were indexed last, as the next ones may go on from them.
        self._latest = deque[Sequence[int]](maxlen=_LATEST)

    @property
    def problem(self) -> str | None:
        """Why texts could not be read from the disk or written there; None: they could."""
        return self.store.problem if self.store else None

    def add(self, text: Sequence[int]) -> None:
        """Add a text that has ended; it may go on from one that was added before."""
        if len(self.readers) > 1:
            self._ended.append(text)
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

    def up_to_date(self) -> SuffixAutomaton:
        """The index of all texts so far. Called by one drafter at a time.

        Later calls may return another one; that of a text stays as it is or grows.
        """
        index = self._index or self._with_given()
        while self._ended:
            index = self._with(self._ended.popleft(), index)
        self._index = index
        return index

    def forget(self) -> None:
        """Forget ended texts; those on the disk stay."""
        self._ended.clear()
        self._latest.clear()
        self._index = None

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

    def _with(self, text: Sequence[int], index: SuffixAutomaton) -> SuffixAutomaton:
        """The index with a text, as far as that does not only repeat the latest ones."""
        known = max((common_prefix(text, each) for each in self._latest), default=0)
        if known < len(text):
            most = min(_MOST_ADDED, self._kept)
            self._latest.append(text)
            try:
                index.extend(text[max(0, known - CONTEXT, len(text) - most) :])
                index.end_text()
            except BaseException:
                # An interrupt: nothing can be added to this index any more.
                self.forget()
                raise
        if len(index.tokens) - self._staying > 3 * self._kept // 2:
            return self._with_latest(index)
        return index

    def _with_latest(self, index: SuffixAutomaton) -> SuffixAutomaton:
        """An index of the texts that stay, and of the last `kept` tokens of others."""
        made = SuffixAutomaton()
        for tokens in (index.tokens[: self._staying], index.tokens[-self._kept :]):
            made.read(tokens)
        return made
