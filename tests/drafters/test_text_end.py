"""A drafter with another vocabulary that leaves out the middle of a long prompt."""

import random
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import pytest
from fakes.letters import Letters
from fakes.mutants import Code, Edit
from fakes.text_oracle import READERS, WORDS, Oracle
from fakes.toy import ToyCache, ToyModel, proposed
from numpy.typing import NDArray

from localspec.drafters.text_drafter import TextDrafter
from localspec.drafters.text_part import TextPart
from localspec.drafters.translation import Translation
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome, backlog, can_leave_out, has_room
from localspec.utils.tokens import common_prefix

END = 64
SAMPLER = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))
# Mostly letters and spaces; the two bytes of a character, and control tokens.
USUAL = [0, 1, 2, 3, 4, 8] * 5 + [5, 6, 7, 9]
# What is in front of a control token stays as it is.
CONTROL = 9
TRANSLATIONS = {name: Translation(WORDS, own) for name, own in READERS.items()}
Make = Callable[[ToyCache, str], TextDrafter]


class ReadsAll(ToyModel):
    """Its logits depend on every token before."""

    def logits(self, text: Sequence[int]) -> NDArray[np.float32]:
        rng = np.random.default_rng(crc32(bytes(text)))
        return rng.normal(size=self.n_vocab).astype(np.float32) * 3


class Noted(ToyCache):
    """A cache that notes what was read in front of the last draft."""

    read: Sequence[int] = ()

    def checkpoint(self) -> None:
        self.read = [*self.tokens]


class Recurrent(Noted):
    """It goes back to its beginning alone, as that of a recurrent model."""

    def truncate(self, length: int) -> int:
        if length < len(self.tokens):
            self.tokens.clear()
        return len(self.tokens)


def words(count: int, seed: int = 1) -> list[int]:
    return random.Random(seed).choices(USUAL, k=count)


def model_of(own: Letters) -> ReadsAll:
    return ReadsAll(np.zeros((own.n_vocab,) * 3))


def make(cache: ToyCache, name: str) -> TextDrafter:
    return TextDrafter(cache, name="text", translation=TRANSLATIONS[name])


def read_for(drafter: TextDrafter, text: list[int], *, from_end: bool) -> list[int]:
    """What it has read for a draft, which is the oracle's behind that."""
    cache = drafter._cache
    assert isinstance(cache, Noted)
    cache.read = ()
    limit = Limit(4, SAMPLER.prefix(text), SAMPLER, from_end=from_end)
    draft = [*proposed(drafter, limit).tokens]
    # Of a draft of one token, none is evaluated.
    read = [*(cache.read or cache.tokens)]
    oracle = Oracle(drafter._translation.own.tokenizer, cache._model)  # type: ignore[arg-type]
    room = cache.n_ctx - len(read)
    assert draft == oracle.draft(text, 4, SAMPLER, certain=False, read=read, room=room)
    return read


def spelled(name: str, text: list[int]) -> list[int]:
    return Oracle(READERS[name], model_of(READERS[name])).spelled(text)


def loose(name: str, text: list[int]) -> int:
    """How many of the drafter's last tokens may change, whatever comes: found by trying."""
    now = spelled(name, text)
    longer = [spelled(name, [*text, *words(3, seed)]) for seed in range(60)]
    return len(now) - min(common_prefix(now, each) for each in longer)


@pytest.mark.parametrize("name", READERS)
def test_of_a_long_prompt_it_reads_the_end(name: str) -> None:
    cache, text = Noted(model_of(READERS[name])), words(400)
    drafter = make(cache, name)
    drafter.begin(text)
    count = backlog(drafter, from_end=True)
    assert END + loose(name, text) <= count < END + 12
    assert backlog(drafter) == len(spelled(name, text))
    read = read_for(drafter, text, from_end=True)
    assert read == spelled(name, text)[-count:]
    # What comes is read behind that, spelled as in the whole text.
    for step, tokens in enumerate(([0], [2, 1, 0], [5], [6, 2], [9], [1])):
        text = [*text, *tokens]
        drafter.observe(Outcome(tokens, 0))
        front = len(spelled(name, text)) - len(read_for(drafter, text, from_end=True))
        assert front == len(spelled(name, text[:400])) - count, step
        assert read_for(drafter, text, from_end=True) == spelled(name, text)[front:]
    assert read_for(drafter, text, from_end=False) == spelled(name, text)
    assert not can_leave_out(drafter), "there is nothing left to leave out"


@pytest.mark.parametrize("name", READERS)
def test_the_next_turn_goes_on_behind_the_end(name: str) -> None:
    cache, text = Noted(model_of(READERS[name])), words(400)
    drafter = make(cache, name)
    drafter.begin(text)
    first = read_for(drafter, text, from_end=True)
    front = len(spelled(name, text)) - len(first)
    longer = [*text, *words(60, seed=3)]
    drafter.begin(longer)
    evaluated = cache.evaluated
    assert read_for(drafter, longer, from_end=True) == spelled(name, longer)[front:]
    assert cache.evaluated - evaluated < 60 * 2 + 8
    # Of a long one it leaves out what is in front of the end, again.
    longest = [*longer, *words(400, seed=5), CONTROL]
    drafter.begin(longest)
    assert read_for(drafter, longest, from_end=True) == spelled(name, longest)[-END:]


def test_where_no_word_ends_there_is_no_place_to_cut() -> None:
    """The tokens of a long stretch without a border may change up to its middle."""
    name = "longer"
    for count, could in ((300, False), (2000, True)):
        cache = Noted(model_of(READERS[name]), n_ctx=5000)
        drafter, text = make(cache, name), [0, 1] * (count // 2)
        drafter.begin(text)
        assert can_leave_out(drafter) is could
        read_for(drafter, text, from_end=True)


def test_another_wording_is_read_from_its_end() -> None:
    name = "shorter"
    cache, text = Noted(model_of(READERS[name])), words(20)
    drafter = make(cache, name)
    wording = "ab ba " * 60
    drafter.reword(text, wording)
    drafter.begin(text)
    own = READERS[name].tokenize(wording, add_special=True, parse_special=True)
    assert backlog(drafter) == len(own) and backlog(drafter, from_end=True) == END
    assert read_for(drafter, text, from_end=True) == own[-END:]


def test_an_end_needs_less_context_than_the_text() -> None:
    name = "longer"
    drafter, text = make(Noted(model_of(READERS[name]), n_ctx=100), name), words(400)
    drafter.begin(text)
    for _ in range(2):
        for from_end in (False, True):
            limit = Limit(4, SAMPLER.prefix(text), SAMPLER, from_end=from_end)
            assert bool(len(proposed(drafter, limit))) is from_end


def test_what_comes_in_an_answer_is_not_left_out() -> None:
    name, text = "shorter", words(60)
    drafter = make(Noted(model_of(READERS[name])), name)
    drafter.begin(text)
    read_for(drafter, text, from_end=False)
    drafter.observe(Outcome(words(300, seed=3), 0))
    assert backlog(drafter) > 2 * END and not can_leave_out(drafter)


def begun_anew(make: Make) -> None:
    """Its last tokens may still change, though the cache holds them, as tokens come first."""
    name = "longer"
    for seed in range(20):
        drafter, text = make(Noted(model_of(READERS[name])), name), words(40, seed)
        drafter.begin(text)
        read_for(drafter, text, from_end=False)
        drafter.begin(text)
        drafter.observe(Outcome([0, 1, 0], 0))
        text = [*text, 0, 1, 0]
        assert read_for(drafter, text, from_end=False) == spelled(name, text)


def cut_behind_the_gap(make: Make) -> None:
    """A text is cut right behind the gap and goes on: what ends the gap may become other tokens."""
    name, text = "longer", words(400)
    for length in range(len(text) - END - 10, len(text) - END // 2):
        drafter = make(Noted(model_of(READERS[name])), name)
        drafter.begin(text)
        read_for(drafter, text, from_end=True)
        cut = text[:length]
        drafter.begin(cut)
        for token in (0, 1, 3, 4):
            require_two_ends(read_for(drafter, cut, from_end=True), spelled(name, cut))
            drafter.observe(Outcome([token], 0))
            cut = [*cut, token]


def found_in_the_cache(make: Make) -> None:
    """The whole text is in the cache again, as it was kept elsewhere: nothing is left out of it."""
    name, text = "shorter", words(400)
    drafter = make(cache := Noted(model_of(READERS[name])), name)
    drafter.begin(text)
    read_for(drafter, text, from_end=True)
    cache.tokens = spelled(name, text)
    drafter.begin(text)
    assert not backlog(drafter) and not can_leave_out(drafter)


def chat(make: Make, name: str, seed: int) -> None:
    """It outgrows the context, between answers and in them; wherever it does not fit, its end does.

    What is read for a draft is the end at most, and seldom enough.
    """
    chance, text = random.Random(seed), words(200, seed)
    cache = chance.choice((Noted, Recurrent))(model_of(READERS[name]), n_ctx=300)
    drafter = make(cache, name)
    for turn in range(5):
        drafter.begin(text)
        moved, gap = 0, drafter._part.gap
        for step in range(chance.choice((3, 50))):
            from_end = not has_room(drafter) or (can_leave_out(drafter) and chance.random() < 0.5)
            before, lacking = cache.evaluated, backlog(drafter, from_end=from_end)
            read, whole = read_for(drafter, text, from_end=from_end), spelled(name, text)
            assert len(read) < 300 and (from_end or read == whole)
            if not isinstance(cache, Recurrent):
                drafted = len(cache.tokens) - len(read)
                assert cache.evaluated - before - drafted == max(1, lacking)
            require_two_ends(read, whole)
            moved, gap = moved + (drafter._part.gap != gap), drafter._part.gap
            tokens = words(chance.randint(1, 5), 100 * seed + 10 * turn + step)
            drafter.observe(Outcome(tokens, 0))
            text = [*text, *tokens]
        assert moved <= 3, "room was left for the tokens that came"
        text = [*text, *words(chance.choice((2, 40, 400)), seed + turn)]
    assert not has_room(drafter) and can_leave_out(drafter)


def require_two_ends(read: list[int], whole: list[int]) -> None:
    """It has read the text, but for one part in front of its last tokens."""
    tail = min(END, len(read))
    assert read[len(read) - tail :] == whole[len(whole) - tail :]
    same = common_prefix(read, whole) + common_prefix(read[::-1], whole[::-1])
    assert same >= len(read), "one part of the text is left out, and no more"


def walk(make: Make, name: str, seed: int) -> int:
    """Texts that go on, are cut and edited; each draft is the oracle's behind what was read.

    Returns how often a part of the text was left out.
    """
    chance, left_out = random.Random(seed), 0
    cache = chance.choice((Noted, Noted, Recurrent))(model_of(READERS[name]), n_ctx=5000)
    drafter, text = make(cache, name), words(chance.randint(1, 400), seed)
    drafter.begin(text)
    for number in range(8):
        match chance.choice(("draft", "draft", "draft", "longer", "cut", "edit")):
            case "longer":
                text = [*text, *words(chance.randint(1, 300), seed + number)]
            case "cut":
                text = text[: chance.randint(1, len(text))]
            case "edit":
                place = chance.randrange(len(text))
                text = [*text[:place], chance.choice(USUAL), *text[place + 1 :]]
            case _:
                from_end, could = chance.random() < 0.7, can_leave_out(drafter)
                before, lacking = cache.evaluated, backlog(drafter, from_end=from_end)
                read, whole = read_for(drafter, text, from_end=from_end), spelled(name, text)
                drafted = len(cache.tokens) - len(read)
                if not isinstance(cache, Recurrent):
                    assert cache.evaluated - before - drafted == max(1, lacking)
                assert (read != whole) <= (from_end and could)
                require_two_ends(read, whole)
                left_out += read != whole
                tokens = words(chance.randint(1, 4), seed + number)
                drafter.observe(Outcome(tokens, 0))
                text = [*text, *tokens]
                continue
        drafter.begin(text)
    return left_out


def check(make: Make) -> None:
    """Whatever happens, it has read the text or its two ends, and drafts behind that."""
    begun_anew(make)
    for name in READERS:
        assert sum(walk(make, name, seed) for seed in range(100)) > 60
        for seed in range(8):
            chat(make, name, seed)
    cut_behind_the_gap(make)
    found_in_the_cache(make)


def test_whatever_happens_it_has_read_the_text_or_its_two_ends() -> None:
    check(make)


MISTAKES = {
    "the gap is filled": Edit(
        TextPart.of, "return text[start + len(self.gap) :]", "return text[start:]"
    ),
    "tokens that may change are left out": Edit(TextPart.choose, "length - end", "length - 2"),
    "less than the end stays behind the gap": Edit(
        TextPart.begin, "len(text) - loose - END_TOKENS", "len(text) - loose"
    ),
    "the gap stays where its end may change": Edit(
        TextPart.begin, "self.gap and self.gap.stop <= len(text) - loose - END_TOKENS", "self.gap"
    ),
    "the gap stays where nothing behind it is held": Edit(
        TextPart.begin, "shared(part) <= max(self.gap.start, shared(whole))", "False"
    ),
    "what cannot be cut is held": Edit(TextPart.choose, "cut(front)", "front"),
    "what stands behind the gap is in front of it": Edit(
        TextPart.choose, "min(held, self.gap.start), range(0)", "held, range(0)"
    ),
    "a second gap keeps what is behind the first": Edit(
        TextPart.choose, "min(held, self.gap.start) if self.gap else held", "held"
    ),
    "the front leaves no room": Edit(TextPart.choose, "if front + end + END_TOKENS > room", "if 0"),
    "it leaves room for few tokens": Edit(TextPart.choose, "int(room) // 2", "int(room) - 2"),
    "few tokens that do not fit stay": Edit(
        TextPart._may_leave_out, "if self.size(length) >= room:", "if 0:"
    ),
    "a new text keeps the certain tokens of the old": Edit(
        TextDrafter.begin, "min(len(self._held), len(read) - self._loose)", "len(read)"
    ),
    "all is certain": Edit(
        TextDrafter._hold, "min(count, self._part.size(self._text.stable))", "count"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake: str) -> None:
    mistaken = Code(MISTAKES[mistake]).of(TextDrafter)

    def make(cache: ToyCache, name: str) -> TextDrafter:
        drafter: TextDrafter = mistaken(cache, name="text", translation=TRANSLATIONS[name])
        return drafter

    with pytest.raises(AssertionError):
        check(make)
