"""Suffix drafter: copy the tokens after an earlier occurrence of the text's longest suffix.

Behind a difference from what it copied, it goes on with the same passage (see `passage`) where that
was right more often. Where it copies what the target wrote, it draws the tokens anew (see
`drawn_copy`).
"""

from collections.abc import Iterable, Sequence

from localspec.drafters.copies import (
    Copy,
    copy_after_match,
    copy_of_passage,
    disputed_copy,
    drawn_anew,
    likeliest,
)
from localspec.drafters.copy_rates import CopyRates
from localspec.drafters.drawn_copy import Drawing, DrawnCopy
from localspec.drafters.drawn_from import DrawnFrom
from localspec.drafters.earlier_texts import CONTEXT, EarlierTexts
from localspec.drafters.passage import PASSAGE, Passage
from localspec.drafters.prediction import Prediction
from localspec.drafters.suffix_automaton import NOWHERE, Match, SuffixAutomaton
from localspec.errors import InvalidValueError
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.utils.tokens import common_prefix


class Suffix:
    """Copies the tokens after an earlier occurrence of the text's longest repeated suffix.

    shortest: the shortest match to copy after, in tokens; behind a difference, the fewest tokens.
    earlier: other texts to copy from too, such as those of earlier conversations.
    rates: the chances learnt before; they are updated in place.
    differences: whether to go on copying behind differences.
    max_replaced: the most tokens kept of texts that were cut off or replaced.

    An automaton cannot be cut back cheaply, and a text that was cut off is worth keeping: an answer
    that is generated again often repeats the old one. So the old text stays, as a text of its own,
    and the new text is pushed from CONTEXT tokens before the cut. When there are more than
    `max_replaced` old tokens, the automaton is built again from the current text.

    After a match of PASSAGE tokens it follows that passage, of the current text or of the past (the
    earlier texts), through differences. The past has an index and chances of its own, so that its
    texts do not crowd out the current one. What is copied next is from the passage, after the
    longest match, or after the longest match in the past, whichever was right most often in such a
    place. A text of which something is known (`predict`) has a further source until another text
    begins, which leaves nothing behind: see Prediction.

    Time per token pushed: about 2 us, per token committed: about 7 us. Memory per token of past,
    current and old texts: about 140 bytes.
    """

    name = "suffix"

    def __init__(
        self,
        *,
        shortest: int = 1,
        earlier: EarlierTexts | None = None,
        rates: CopyRates | None = None,
        differences: bool = True,
        max_replaced: int = 65_536,
    ) -> None:
        if shortest < 1:
            raise InvalidValueError(f"shortest is {shortest}; it must be 1 or more")
        if max_replaced < 0:
            raise InvalidValueError(f"max_replaced is {max_replaced}; it must be 0 or more")
        self.traits = Traits(cheap=True, chances=self.chances, reads_media=True)
        self.rates = CopyRates() if rates is None else rates
        self._differences = differences
        self._shortest = shortest
        self._max_replaced = max_replaced
        self._text: list[int] = []
        # False while the automaton is being changed: an interrupt would leave it unusable.
        self._consistent = True
        self._automaton = SuffixAutomaton()
        self._earlier = EarlierTexts() if earlier is None else earlier
        self._earlier.readers.add(self)
        self._past, self._past_drawn_from = self._earlier.up_to_date()
        self._in_past = NOWHERE
        # Where the text repeats itself and the past: looked up once per token.
        self._match: Match | None = None
        self._past_match: Match | None = None
        self._passage: Passage | None = None
        # The texts that the passage is in.
        self._followed = self._automaton
        # What the next text is expected to be, and the prediction of the current one.
        self._expected: Sequence[int] = ()
        self._prediction: Prediction | None = None
        self._drawn_from = DrawnFrom()
        # Where in the text the automaton's last text begins; and how often the text was changed.
        self._start = self._changes = 0
        # How tokens of the text are drawn, once that is known and there is noise; and the copies
        # after the matches that are drawn so, once they are asked for.
        self._drawing: Drawing | None = None
        self._drawn: list[DrawnCopy] | None = None
        # The copies that may come next, once they are asked for.
        self._found: list[Copy] | None = None

    def predict(self, tokens: Sequence[int]) -> None:
        """Expect the text that begins next to go on with these tokens; none: nothing is known."""
        self._expected = tokens

    def begin(self, tokens: Sequence[int]) -> None:
        """Change to this text; keep the text that it replaces, up to `max_replaced` tokens."""
        expected, self._expected = self._expected, ()
        self._prediction = Prediction(expected, tokens[-CONTEXT:]) if expected else None
        shared = common_prefix(self._text, tokens)
        consistent, self._consistent = self._consistent, False
        self._changes += 1
        self._drawing = self._drawn = self._found = None
        grows = consistent and shared == len(self._text)
        if grows:
            start = known = shared
        else:
            start = self._start = self._cut(shared) if consistent else self._rebuild()
            self._in_past, known = NOWHERE, shared - CONTEXT
        past, self._past_drawn_from = self._earlier.up_to_date()
        if past is not self._past:
            self._past, self._in_past, known = past, NOWHERE, len(tokens) - CONTEXT
        self._automaton.read(tokens[start:])
        self._find_matches(tokens[max(0, known) :])
        self._text[shared:] = tokens[shared:]
        self._passage = None
        self._follow()
        self._consistent = True

    def forget(self) -> None:
        """Forget all texts that were written; those given before and the learnt chances stay."""
        self._consistent = False
        self._changes += 1
        self._start = self._rebuild()
        self._earlier.forget()
        self._text = []
        self._in_past = NOWHERE
        self._match = self._past_match = self._passage = self._prediction = None
        self._expected = ()
        self._drawing = self._drawn = self._found = None
        self._consistent = True

    def drawn_from(self, text: Sequence[int]) -> DrawnFrom:
        """What the tokens of a text were drawn from, by their places in it, as far as it is known.

        It is known of the text that was begun last, of what it has in common with this one. May be
        called in any thread: where the drafter's text is changed meanwhile, nothing is known.
        """
        known, changes = DrawnFrom(), self._changes
        if not self._consistent:
            return known
        own, start = self._text[:], self._start
        shared = common_prefix(own, text)
        behind = len(self._automaton.tokens) - len(own)
        known.extend(start, self._drawn_from.part(behind + start, behind + shared))
        return known if changes == self._changes else DrawnFrom()

    def propose(self, limit: Limit) -> Draft:
        """Copy up to `limit.depth` tokens."""
        best = self._best(limit)
        return Draft(best.take(limit.depth)[0], predicted=best.predicted) if best else NOTHING

    def chances(self, limit: Limit) -> Sequence[float]:
        """The chance that each token of a proposal is right, given that those before it are.

        There are as many as `propose` would propose. The product of the first n is the chance that
        n tokens are accepted.
        """
        best = self._best(limit)
        if best is None or limit.depth < 1:
            return []
        chances = best.take(limit.depth)[1]
        chances[0] = best.chance
        return chances

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens, and learn whether it would have copied each of them."""
        self._consistent = False
        self._changes += 1
        for number, token in enumerate(outcome.tokens):
            self._learn(token)
            self._drawn = self._found = None
            if outcome.drawn_from:
                self._drawn_from.add(len(self._automaton.tokens), outcome.drawn_from[number])
            if self._passage and not self._passage.observe(token):
                self._passage = None
            if self._prediction:
                self._prediction.observe(token)
            self._automaton.push(token)
            self._text.append(token)
            self._find_matches([token])
            self._follow()
        self._consistent = True

    def _learn(self, token: int) -> None:
        """Learn whether each copy that may come next was right."""
        for copy in self._copies():
            for table in copy.tables:
                table.learn(copy.length, copy.token == token)
        for drawn in self._draws():
            drawn.learn(token)

    def _best(self, limit: Limit) -> Copy | None:
        """The copy whose first token is most likely."""
        # A rejection rule has other randomness, and copies count as certain there.
        drawing = None if limit.needs_probs else Drawing.of(limit.sampler)
        if drawing != self._drawing:
            self._drawing, self._drawn = drawing, None
        copies = self._copies()
        for drawn in self._draws():
            copies = [
                drawn_anew(each, drawn) if each.match is drawn.match else each for each in copies
            ]
        found = likeliest(copies := [each for each in copies if each.length >= self._shortest])
        # A prediction is preferred where it follows the text as long, and goes on alike.
        alike = (each for each in copies if each.predicted and found and each.as_sure_as(found))
        return next(alike, found)

    def _draws(self) -> Sequence[DrawnCopy]:
        """The copies after matches with tokens drawn anew, where there is something to draw."""
        if self._drawn is None:
            own, past, rates = self._automaton, self._past, self.rates
            places = (
                (own, self._match, own.repeat, self._drawn_from, rates.of_drawn),
                (past, self._past_match, self._in_past, self._past_drawn_from, rates.of_past_drawn),
            )
            self._drawn = [
                DrawnCopy(
                    texts,
                    match,
                    start=start,
                    position=len(self._text),
                    drawn_from=drawn_from,
                    drawing=self._drawing,
                    rates=tables,
                )
                for texts, match, start, drawn_from, tables in places
                if self._drawing and match and drawn_from
            ]
        return self._drawn

    def _copies(self) -> list[Copy]:
        """All copies that may come next; of equally likely ones the first is better."""
        if self._found is None:
            self._found = self._find_copies()
        return self._found

    def _find_copies(self) -> list[Copy]:
        match, past, rates = self._match, self._past_match, self.rates
        copies = [passage] if (passage := self._passage_copy()) else []
        if match:
            if passage:
                tables = rates.match, rates.match_disputed
                copy = disputed_copy(self._automaton, match, tables, passage.token)
            else:
                tables = rates.after(match.agreed), rates.match
                copy = copy_after_match(self._automaton, match, tables, rates.match)
            copies.append(copy)
        if past:
            best = likeliest(copies)
            token = best.token if best else None
            copies.append(disputed_copy(self._past, past, (rates.past, rates.past_disputed), token))
        # What the others learn does not depend on a prediction, so that it spoils nothing.
        return [*self._prediction.copies(), *copies] if self._prediction else copies

    def _passage_copy(self) -> Copy | None:
        passage = self._passage
        if passage is None or not passage.differs:
            return None
        match = self._past_match if self._followed is self._past else self._match
        return copy_of_passage(passage, self._followed, match, self.rates)

    def _find_matches(self, tokens: Iterable[int]) -> None:
        """Look up the matches at the end of the text. tokens: those not looked for yet."""
        if self._past.tokens:
            for token in tokens:
                self._in_past = self._past.advance(self._in_past, token)
        self._match = self._automaton.match()
        self._past_match = self._past.occurrence(self._in_past)

    def _follow(self) -> None:
        """Follow the passage after the longest match, if that is long enough."""
        if not self._differences:
            return
        match, past = self._match, self._past_match
        texts, longest = self._automaton, match
        if past and (match is None or past.length > match.length):
            texts, longest = self._past, past
        if longest is None or longest.length < PASSAGE:
            return
        if self._passage is None:
            self._passage = Passage(texts.tokens, longest.end + 1, longest.length)
        elif longest.length >= self._passage.length:
            self._passage.go_on(texts.tokens, longest.end + 1, longest.length)
        else:
            return
        self._followed = texts

    def _cut(self, shared: int) -> int:
        """Cut the text after `shared` tokens; return from where on to push the new text."""
        start = max(0, shared - CONTEXT)
        if len(self._automaton.tokens) + 1 - start > self._max_replaced:
            return self._rebuild()
        self._automaton.end_text()
        return start

    def _rebuild(self) -> int:
        """Forget the texts; return from where on to push the text: 0."""
        self._automaton, self._drawn_from = SuffixAutomaton(), DrawnFrom()
        return 0
