"""Slow copies: what the suffix drafter should propose, by searching all tokens at every step.

`SlowPassage` keeps no place in a replacement: it spells out the whole rest of the passage, with all
replacements, and compares the text with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.drafters import passage
from localspec.drafters.copy_rates import CopyRates, MatchTable
from localspec.drafters.suffix_automaton import NOWHERE, Match, SuffixAutomaton

# A token of the rest, where the source goes on after it, and the old tokens if it is replaced.
Spelled = tuple[int, int, tuple[int, ...]]


def spelled(
    source: Sequence[int], place: int, new_by_old: dict[tuple[int, ...], list[int]]
) -> list[Spelled]:
    """The rest of a passage, with replacements."""
    rest: list[Spelled] = []
    while place < len(source) and source[place] >= 0:
        found = [old for old in new_by_old if tuple(source[place : place + len(old)]) == old]
        if found:
            [old] = found
            new = new_by_old[old]
            places = [place] * (len(new) - 1) + [place + len(old)]
            rest += [(token, after, old) for token, after in zip(new, places, strict=True)]
            place += len(old)
        else:
            place += 1
            rest.append((source[place - 1], place, ()))
    return rest


@dataclass
class SlowPassage:
    """A passage from its definition. source: all tokens; it grows by itself."""

    source: list[int]
    place: int
    equal: int
    new_by_old: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    partly: list[int] = field(default_factory=list)
    differs: bool = False
    # Where the open difference begins, where the source went on, and the text since.
    opened: tuple[int, int, list[int]] | None = None

    def rest(self) -> list[Spelled]:
        return spelled(self.source, self.place, self.new_by_old)[len(self.partly) :]

    def copy(self, count: int) -> tuple[list[int], list[int]]:
        rest = self.rest()
        tokens = [token for token, _, _ in rest]
        if min(self.source[self.place :]) >= 0:
            while tokens and len(tokens) < count:
                # What would stand there if the copy so far were right.
                tokens.append(tokens[len(tokens) - len(rest)])
        replaced = [at for at, (_, _, old) in enumerate(rest) if old]
        return tokens[:count], [at for at in replaced if at < count]

    def observe(self, token: int) -> bool:
        expected, after, old = self.rest()[0]
        if token == expected:
            self.partly = [*self.partly, token] if old and after == self.place else []
            self.place = after
            self._equal(token)
        else:
            before, self.partly = self.partly, []
            if old:
                del self.new_by_old[old]
            if not before and self.source[self.place] == token:
                self.place += 1
                self._equal(token)
            else:
                self._differ(before, token)
        alive = self.place >= len(self.source) or self.source[self.place] >= 0
        return alive and (self.opened is None or len(self.opened[2]) <= passage.LONGEST)

    def _equal(self, token: int) -> None:
        self.equal += 1
        if self.opened is None:
            return
        began, found, since = self.opened
        since.append(token)
        if self.equal >= passage.EQUAL and not self.partly:
            old, new = tuple(self.source[began:found]), since[: len(since) - self.equal]
            if old and new and max(len(old), len(new)) <= passage.REPLACED:
                others = {each: to for each, to in self.new_by_old.items() if each[0] != old[0]}
                self.new_by_old = {**others, old: new}
            self.opened = None

    def _differ(self, before: list[int], token: int) -> None:
        began, _, since = self.opened or (self.place, 0, list(before))
        behind = self.source[began : began + passage.REACH]
        behind = behind[: next((i for i, each in enumerate(behind) if each < 0), len(behind))]
        self.differs = True
        if token in behind:
            found, self.equal = began + behind.index(token), 1
            self.place = found + 1
        else:
            found = self.place = began + 1
            self.equal = 0
        self.opened = (began, found, [*since, token])


@dataclass
class SlowSuffix:
    """The suffix drafter over one text. long: the match that begins a passage.

    followed: the texts of the passage: the current one or the past.
    """

    long: int
    past: SuffixAutomaton
    fed: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    rates: CopyRates = field(default_factory=CopyRates)
    passage: SlowPassage | None = None
    followed: SuffixAutomaton = field(default_factory=SuffixAutomaton)

    def begin(self, tokens: Sequence[int]) -> None:
        self.fed.extend(tokens)
        self._follow()

    def observe(self, token: int) -> None:
        match, past = self.fed.match(), self._past_match()
        copied, replaced, agree = self._of_passage()
        best, _ = self._present(1)
        if match:
            known = self.fed.tokens[match.end + 1]
            right = known == token
            self.rates.match.learn(match.length, right)
            if not copied:
                self._after_match(match).learn(match.length, right)
            elif copied[0] != known:
                self.rates.match_disputed.learn(match.length, right)
        if past:
            known = self.past.tokens[past.end + 1]
            if best and best[0] != known:
                self.rates.past_disputed.learn(past.length, known == token)
            self.rates.past.learn(past.length, known == token)
        if self.passage and copied:
            table = self._table(bool(replaced), agree)
            for each in (table,) if replaced else (table, self.rates.passage):
                each.learn(self.passage.equal + 1, copied[0] == token)
        if self.passage:
            self.passage.source = list(self.followed.tokens)
            if not self.passage.observe(token):
                self.passage = None
        self.fed.push(token)
        self._follow()

    def proposal(self, depth: int) -> tuple[list[int], list[float]]:
        """The tokens and their chances."""
        tokens, chances = self._present(depth)
        past = self._past_match()
        if not past:
            return tokens, chances
        known = self.past.copy(past, depth)
        agree = not tokens or known[0] == tokens[0]
        table = self.rates.past if agree else self.rates.past_disputed
        expected = [table.chances(past.length + i, 1)[0] for i in range(len(known))]
        return (tokens, chances) if tokens and chances[0] >= expected[0] else (known, expected)

    def _past_match(self) -> Match | None:
        position = NOWHERE
        for token in self.fed.tokens:
            position = self.past.advance(position, token)
        return self.past.occurrence(position)

    def _present(self, depth: int) -> tuple[list[int], list[float]]:
        match = self.fed.match()
        copied, replaced, agree = self._of_passage(depth)
        disputed = bool(copied) and copied[0] != self._token_after(self.fed)
        later = self.rates.match_disputed if disputed else self.rates.match
        first = later if copied or not match else self._after_match(match)
        if self.passage and copied:
            length = self.passage.equal + 1
            chances = [self.rates.passage.chances(length + i, 1)[0] for i in range(len(copied))]
            chances[0] = self._table(0 in replaced, agree).chances(length, 1)[0]
            for at in replaced:
                chances[at] = self.rates.replaced.chances(length + at, 1)[0]
            if not match or chances[0] >= first.chances(match.length, 1)[0]:
                return copied, chances
        if not match:
            return [], []
        tokens = self.fed.copy(match, depth)
        expected = [later.chances(match.length + i, 1)[0] for i in range(len(tokens))]
        return tokens, [first.chances(match.length, 1)[0], *expected[1:]]

    def _after_match(self, match: Match) -> MatchTable:
        tables = {True: self.rates.agreed_before, False: self.rates.differed_before}
        return tables.get(match.agreed, self.rates.once)

    def _of_passage(self, depth: int = 1) -> tuple[list[int], list[int], bool]:
        if not self.passage or not self.passage.differs:
            return [], [], True
        self.passage.source = list(self.followed.tokens)
        copied, replaced = self.passage.copy(depth)
        return copied, replaced, bool(copied) and copied[0] == self._token_after(self.followed)

    def _token_after(self, texts: SuffixAutomaton) -> int | None:
        """The token after the longest match in these texts."""
        match = self._past_match() if texts is self.past else self.fed.match()
        return texts.tokens[match.end + 1] if match else None

    def _table(self, replaced: bool, agree: bool) -> MatchTable:
        if replaced:
            return self.rates.replaced
        return self.rates.agreed if agree else self.rates.disputed

    def _follow(self) -> None:
        found = [(self.fed.match(), self.fed), (self._past_match(), self.past)]
        # Of equally long ones, that of the current text.
        length, texts, match = 0, self.fed, None
        for each, among in found:
            if each and each.length > length:
                length, texts, match = each.length, among, each
        if not match or length < self.long:
            return
        known = self.passage.new_by_old if self.passage else {}
        if not self.passage or length > self.passage.equal:
            self.followed = texts
            self.passage = SlowPassage(list(texts.tokens), match.end + 1, length, known)
