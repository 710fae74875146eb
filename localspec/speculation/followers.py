"""Followers: the drafters that are told of a text, and those of them that read its hidden rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from localspec.errors import LOST, WorkerError
from localspec.sampling.distribution import Distribution
from localspec.speculation.drafter import Drafter, Evaluated, HiddenReader, Outcome
from localspec.speculation.passes import Passes, Scores
from localspec.speculation.policy import Policy
from localspec.speculation.words import Words


class Followers:
    """The drafters of a policy that follow one text.

    clock: the time in seconds, without the time in which other texts were computed. words: the text
    as drafters know it that read no images.

    A drafter whose machine or device is gone follows no more, and the text goes on without it.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self.words = Words(())
        self._policy, self._clock = policy, clock
        # The drafters that read hidden rows of this text, and those that read them in this step.
        self._readers: list[HiddenReader] = []
        self._reading: list[HiddenReader] = []
        # What cheap drafters are told later.
        self._untold: list[tuple[Drafter, Outcome]] = []

    def choose(self, text: Sequence[int], shared: int) -> int:
        """Choose who follows a text and who reads it; return how many tokens all readers know.

        text: its last token is pending. shared: how many tokens the target's cache holds.
        """
        self.words, prompt = Words(text), text[:-1]
        self._readers, fewest = [], len(prompt)
        for each in self._policy.drafters:
            if isinstance(each, HiddenReader):
                with self._unless_lost(each):
                    held = self.words.place(each, each.held(self.words.as_read_by(each, prompt)))
                    if self._policy.reads(each, max(0, shared - held)):
                        self._readers.append(each)
                        fewest = min(fewest, held)
        self._reading = self._readers
        return fewest

    def begin(self, text: Sequence[int]) -> None:
        """Tell all of them of the text."""
        for drafter in self._policy.drafters:
            with self._unless_lost(drafter):
                drafter.begin(self.words.as_read_by(drafter, text))

    def observe(
        self,
        tokens: Sequence[int],
        drafter: Drafter | None,
        accepted: int,
        drawn_from: Sequence[Distribution],
        *,
        late: bool = False,
    ) -> None:
        """Tell all of them what a step committed.

        accepted: how many of the tokens, from the first on, `drafter` proposed. late: whether the
        cheap ones are told by `catch_up`.
        """
        if late:
            # What is told later must outlast the next decode.
            drawn_from = [each.shortlist() for each in drawn_from]
        else:
            self.catch_up()
        for each in self._policy.drafters:
            outcome = Outcome(tokens, accepted if each is drafter else 0, drawn_from)
            if late and each.traits.cheap:
                self._untold.append((each, outcome))
            else:
                with self._unless_lost(each):
                    each.observe(outcome)

    def catch_up(self) -> None:
        """Tell the drafters what they were not told yet."""
        untold, self._untold = self._untold, []
        for drafter, outcome in untold:
            drafter.observe(outcome)

    def begin_step(self) -> None:
        """Choose who reads the rows of the next step."""
        self._reading = [each for each in self._readers if self._policy.reads(each)]

    @property
    def is_reading(self) -> bool:
        """Whether anyone reads rows now."""
        return bool(self._reading)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers whose rows are read."""
        return tuple(sorted({i for each in self._reading for i in each.traits.reads_hidden}))

    def show(
        self,
        text: Sequence[int],
        start: int,
        tokens: Sequence[int],
        scores: Scores,
        rows: Sequence[int],
        *,
        marked: bool = False,
    ) -> Passes[dict[str, float]]:
        """Hand the hidden rows of the last pass to the drafters that read them.

        start: the place of the first of `tokens` in the text. tokens: those of the pass that stay.
        rows: their rows; those of tokens that were evaluated once more come before. marked: as in
        Evaluated. Returns the seconds that each drafter took, by its name.
        """
        seconds: dict[str, float] = {}
        if not self._reading:
            return seconds
        again = scores.again
        kept = [*range(again), *(again + row for row in rows)]
        # A copy: later passes reuse the library's buffers.
        hidden = {layer: each[kept] for layer, each in scores.hidden.items()}
        known = (*text[start - again : start], *tokens)
        evaluated = Evaluated(start - again, known, hidden, marked)
        for reader in [*self._reading]:
            began = self._clock()
            with self._unless_lost(reader):
                if (shown := self.words.shown_to(reader, evaluated)).tokens:
                    yield from reader.read(shown)
            seconds[reader.name] = self._clock() - began
        return seconds

    def lose(self, drafter: Drafter, error: Exception) -> None:
        """Go on without a drafter, as what it computes on is gone."""
        self._policy.lose(drafter, for_good=isinstance(error, WorkerError))
        self._readers = [each for each in self._readers if each is not drafter]
        self._reading = [each for each in self._reading if each is not drafter]

    @contextmanager
    def _unless_lost(self, drafter: Drafter) -> Iterator[None]:
        """Tell a drafter something; if what it computes on is gone, go on without it."""
        try:
            yield
        except LOST as error:
            self.lose(drafter, error)
