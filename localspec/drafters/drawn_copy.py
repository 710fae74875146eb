"""Drawn copies: where the text repeats what the target wrote, its tokens are drawn anew.

A copied token was drawn with the noise of its own place. The target's distribution there is much
like the one here, so drawing from it with the noise of this place gives the token that the target
will draw more often than the copied one is (`Noise`: the coupling of target and drafter). The lead
of the drawn token tells how sure that is. Where it is not the copied token, the copy goes on after
the longest end of text and draft that occurred before.

At temperature 0 a distribution is one token, the copied one, and nothing is drawn. Where a text has
another temperature than the one it copies from, its own counts: at 0 the likeliest token is taken.
"""

from bisect import bisect_right
from typing import NamedTuple

from localspec.drafters.copy_rates import DrawnRates, MatchTable
from localspec.drafters.drawn_from import PARTS, Choice, DrawnFrom
from localspec.drafters.suffix_automaton import Match, Position, SuffixAutomaton
from localspec.sampling.noise import Noise
from localspec.sampling.sampler import Sampler

# A token drawn from a place is a guess at its distribution here; the tables of `CopyRates.drawn`
# are for leads below these, and for larger ones.
LEADS = (0.5, 1.0, 2.0, 4.0, 8.0)


class Drawing(NamedTuple):
    """How a text draws tokens: its noise, and its temperature.

    temperature: None where that depends on the distribution; then it is what it was before.
    adaptive: whether adaptive-p is on, whose distributions have no temperature.
    """

    noise: Noise
    temperature: float | None
    adaptive: bool = False

    @classmethod
    def of(cls, sampler: Sampler) -> "Drawing | None":
        """That of a sampler; None where it draws with other randomness than noise."""
        params, randomness = sampler.params, sampler.randomness
        if not isinstance(randomness, Noise):
            return None
        if params.is_greedy:
            return cls(randomness, 0.0)
        adaptive = params.stateful == "adaptive_p"
        own = None if adaptive or params.dynatemp_range else params.temperature
        return cls(randomness, own, adaptive)

    def suits(self, choice: Choice) -> bool:
        """Whether adaptive-p has made of its logits here what it has made of them there."""
        return self.adaptive == (choice.temperature == 0)

    def leader(self, choice: Choice, position: int) -> tuple[int, float]:
        """The token drawn at a position, and its lead: in sums of score and noise, or scores."""
        if self.temperature == 0:
            first, second, *_ = sorted(range(len(choice.ids)), key=choice.below.__getitem__)
            return choice.ids[first], (choice.below[second] - choice.below[first]) / PARTS
        warmer = self.temperature / choice.temperature if self.temperature else 1.0
        return self.noise.leader(
            [-each for each in choice.below], choice.ids, PARTS * warmer, position
        )


class DrawnCopy:
    """The tokens after a match, those that had a choice drawn anew; it grows as it is asked for.

    texts: what is copied from. start: where the text stands in them. position: of its first token
    in the text. token: the first one. table: of its chance, if it was drawn; else whoever copies it
    knows better. least_survival: drawing takes ten times as long as
    copying, so tokens that are accepted less often than that are copied. hopeless: those behind
    one that is accepted less often than that are left out, as no pass verifies a row for so little.
    """

    least_survival, hopeless = 0.1, 0.03

    def __init__(
        self,
        texts: SuffixAutomaton,
        match: Match,
        *,
        start: Position,
        position: int,
        drawn_from: DrawnFrom,
        drawing: Drawing,
        rates: DrawnRates,
    ) -> None:
        self.table: MatchTable | None = None
        self.match = match
        self._texts, self._text_end, self._drawn_from = texts, start, drawn_from
        self._position, self._drawing, self._rates = position, drawing, rates
        self._tokens: list[int] = []
        self._chances: list[float] = []
        self._survival = 1.0
        self._ended = False
        self._go_on_after(match)
        self._grow()
        self.token = self._tokens[0]

    def take(self, count: int) -> tuple[list[int], list[float]]:
        """Up to `count` tokens, and the chance of each, given that those before it are right."""
        while len(self._tokens) < count and not self._ended and self._survival >= self.hopeless:
            self._grow()
        return self._tokens[:count], self._chances[:count]

    def learn(self, token: int) -> None:
        """Learn which token came."""
        if self.table:
            self.table.learn(self.match.length, self.token == token)
        elif self._drawn_from.was_sure(self.match.end + 1):
            self._rates.sure.learn(self.match.length, self.token == token)

    def _grow(self) -> None:
        """Add a token, unless the copied text has ended."""
        tokens, place = self._texts.tokens, self._place
        if place >= len(tokens):
            # At the end of the text it goes on with the copy itself.
            place = self._start + (place - self._start) % (len(tokens) - self._start)
        token = copied = tokens[place]
        if copied < 0:
            self._ended = True
            return
        choice = self._drawn_from.choice_at(place)
        if choice and self._survival >= self.least_survival and self._drawing.suits(choice):
            token, lead = self._drawing.leader(choice, self._position + len(self._tokens))
            table = self._rates.drawn[bisect_right(LEADS, lead)]
            if not self._tokens:
                self.table = table
        else:
            table = self._rates.sure if self._drawn_from.was_sure(place) else self._rates.copied
        chance = table.chance(self._length)
        self._survival *= chance
        self._tokens.append(token)
        self._chances.append(chance)
        self._place += 1
        self._length += 1
        if token != copied:
            self._go_on_elsewhere()

    def _go_on_after(self, match: Match) -> None:
        self._place = self._start = match.end + 1
        self._length = match.length

    def _go_on_elsewhere(self) -> None:
        """Go on after the longest end of text and draft that occurred before."""
        position = self._text_end
        for token in self._tokens:
            position = self._texts.advance(position, token)
        match = self._texts.occurrence(position)
        if match is None:
            self._ended = True
        else:
            self._go_on_after(match)
