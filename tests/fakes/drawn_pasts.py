"""Texts with what their tokens were drawn from, and a search for what may be copied from them."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from fakes.drawn_copies import drawn_at, either, law, limit_of

from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.drafters.suffix_store import PastTexts
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.speculation.drafter import Outcome

TOKENS, DEPTH = 4, 8


class Classes(NamedTuple):
    """The real ones, or some with a mistake."""

    suffix: type[Suffix] = Suffix
    earlier: type[EarlierTexts] = EarlierTexts
    store: type[PastTexts] = PastTexts


REAL = Classes()


class Past(NamedTuple):
    """An ended text, and what is known of its tokens, by their places."""

    text: Sequence[int]
    laws: dict[int, Distribution]


def write(drafter: Suffix, begun: Past, random: Random, noise: Noise) -> Past:
    """A text of a target whose distributions are random; it ends with a token of its own."""
    text, laws = list(begun.text), dict(begun.laws)
    drafter.begin(text)
    for _ in range(random.randrange(1, 6)):
        drafter.chances(limit_of(noise))
        distributions = [law(random, TOKENS) for _ in range(random.randrange(1, 4))]
        tokens = list[int]()
        for each in distributions:
            laws[len(text) + len(tokens)] = each
            tokens.append(drawn_at(each, noise, len(text) + len(tokens)))
        drafter.observe(Outcome(tokens, 0, distributions))
        text += tokens
    end = 1000 + random.randrange(10**6)
    drafter.observe(Outcome([end], 0, [either(end)]))
    return Past([*text, end], laws)


def begun_after(past: Past | None, random: Random) -> Past:
    """The beginning of a text: one of its own, all of the last one or a part, and a few tokens.

    Where the last text goes on, it is known what its tokens were drawn from.
    """
    prompt = [random.randrange(TOKENS) for _ in range(random.randrange(1, 6))]
    if past is None or (kind := random.randrange(3)) == 0:
        return Past(prompt, {})
    if kind == 1:
        return Past([*past.text, *prompt], past.laws)
    return Past([*past.text[: random.randrange(1, len(past.text))], *prompt], {})


def drafted(reader: Suffix, random: Random, noise: Noise) -> tuple[list[int], list[int]]:
    """The draft of a text that repeats nothing but what others wrote, and the text."""
    tokens = random.sample(range(TOKENS), TOKENS)
    reader.begin(text := [2000, tokens[0]])
    for token in tokens[1 : random.randrange(1, TOKENS)]:
        reader.propose(limit_of(noise))
        reader.observe(Outcome([token], 0, [either(token, 3000)]))
        text.append(token)
    return list(reader.propose(limit_of(noise, DEPTH)).tokens), text


def places_after(pasts: Sequence[Past], text: Sequence[int]) -> set[tuple[int, int]]:
    """The places in past texts behind the longest end of the text that occurs there."""
    for length in range(len(text), 0, -1):
        found = {
            (number, start + length)
            for number, past in enumerate(pasts)
            for start in range(len(past.text) - length)
            if list(past.text[start : start + length]) == list(text[-length:])
        }
        if found:
            return found
    return set()


def can_be(draft: Sequence[int], text: Sequence[int], pasts: Sequence[Past], noise: Noise) -> bool:
    """Whether the draft is a copy of past texts, drawn anew, as long as it can be."""

    def goes_on(done: int, places: set[tuple[int, int]]) -> bool:
        if done == len(draft):
            ended = (place == len(pasts[number].text) for number, place in places)
            return done == DEPTH or not places or any(ended)
        for number, place in places:
            past = pasts[number]
            if place == len(past.text):
                continue
            known, copied = past.laws.get(place), past.text[place]
            unsure = known is not None and len(known) > 1
            token = drawn_at(known, noise, len(text) + done) if known and unsure else copied
            if token != draft[done]:
                continue
            behind = [*text, *draft[: done + 1]]
            later = {(number, place + 1)} if token == copied else places_after(pasts, behind)
            if goes_on(done + 1, later):
                return True
        return False

    return goes_on(0, places_after(pasts, text))


# The draft of a seed, the text before it, what it is copied from, and the noise of the text.
Read = tuple[list[int], list[int], list[Past], Noise]


def told_apart(read: Callable[[int], Read], seeds: int) -> tuple[int, int]:
    """How many drafts cannot be of the next noise, and how many no plain copies, by the search."""
    apart = copied = 0
    for seed in range(seeds):
        draft, text, pasts, noise = read(seed)
        apart += not can_be(draft, text, pasts, Noise(seed + 1))
        copied += not can_be(draft, text, [Past(each.text, {}) for each in pasts], noise)
    return apart, copied
