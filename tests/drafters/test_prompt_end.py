"""A draft model that leaves out the middle of a long prompt: what it reads, and what it drafts."""

import random
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pytest
from fakes.toy import ToyCache, ToyModel, proposed
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.drafters.draft_model import DraftModel
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome, backlog, can_leave_out
from localspec.utils.tokens import common_prefix

N_VOCAB, END = 8, 64
SAMPLER = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))


class ReadsAll(ToyModel):
    """Its logits depend on every token before."""

    def logits(self, text: Sequence[int]) -> NDArray[np.float32]:
        rng = np.random.default_rng(crc32(bytes(text)))
        return rng.normal(size=N_VOCAB).astype(np.float32) * 3


MODEL = ReadsAll(np.zeros((N_VOCAB,) * 3))


def words(count: int, seed: int = 1) -> list[int]:
    return random.Random(seed).choices(range(N_VOCAB), k=count)


def limit(text: list[int], *, from_end: bool, depth: int = 4) -> Limit:
    return Limit(depth, SAMPLER.prefix(text), SAMPLER, from_end=from_end)


def drafter_of(cache: ToyCache) -> DraftModel:
    return DraftModel(cache, name="small", n_vocab=N_VOCAB)


def drawn(text: list[int], read: list[int], count: int) -> list[int]:
    """What the model draws behind a text of which it has read a part, without a cache."""
    tokens: list[int] = []
    for _ in range(count):
        prefix = SAMPLER.prefix([*text, *tokens])
        law = SAMPLER.distribution(MODEL.logits([*read, *tokens]), prefix)
        tokens.append(SAMPLER.sample(law, prefix))
    return tokens


def test_of_a_long_prompt_it_reads_the_end() -> None:
    cache, text = ToyCache(MODEL), words(300)
    drafter = drafter_of(cache)
    drafter.begin(text)
    assert (backlog(drafter), backlog(drafter, from_end=True)) == (300, END)
    read, kept = text[-END:], 0
    for accepted in (0, 2, 4, 1):
        draft = [*proposed(drafter, limit(text, from_end=True)).tokens]
        assert draft == drawn(text, read, 4) != drawn(text, text, 4)
        assert cache.tokens == [*read, *draft[:-1]]
        kept += accepted
        tokens = [*draft[:accepted], 5]
        drafter.observe(Outcome(tokens, accepted))
        text, read = [*text, *tokens], [*read, *tokens]
    # It reads no token twice, and what stood of its drafts not at all.
    assert cache.evaluated == END + 3 + sum(1 + 3 + (each == 4) for each in (0, 2, 4))


def test_all_of_the_prompt_is_read_where_it_is_wanted_later() -> None:
    cache, text = ToyCache(MODEL), words(300)
    drafter = drafter_of(cache)
    drafter.begin(text)
    draft = [*proposed(drafter, limit(text, from_end=True)).tokens]
    drafter.observe(Outcome(draft, 4))
    text += draft
    assert backlog(drafter) == len(text)
    assert [*proposed(drafter, limit(text, from_end=False)).tokens] == drawn(text, text, 4)
    assert cache.tokens[: len(text)] == text
    assert not can_leave_out(drafter), "there is nothing left to leave out"
    assert backlog(drafter, from_end=True) == backlog(drafter)


@pytest.mark.parametrize(("unread", "leaves_out"), [(2 * END - 1, False), (2 * END, True)])
def test_a_short_part_is_not_worth_leaving_out(unread: int, leaves_out: bool) -> None:
    cache, text = ToyCache(MODEL), words(50)
    drafter = drafter_of(cache)
    drafter.begin(text)
    proposed(drafter, limit(text, from_end=False))
    text = [*text, *words(unread, seed=2)]
    drafter.begin(text)
    assert can_leave_out(drafter) is leaves_out
    draft = [*proposed(drafter, limit(text, from_end=True)).tokens]
    # What the cache holds of the text stays in front of its end.
    assert draft == drawn(text, [*text[:50], *text[-END:]] if leaves_out else text, 4)


@pytest.mark.parametrize("count", [1, END - 1, END, END + 1, 2 * END - 1])
def test_the_next_turn_goes_on_behind_the_end(count: int) -> None:
    cache, text = ToyCache(MODEL), words(300)
    drafter = drafter_of(cache)
    drafter.begin(text)
    proposed(drafter, limit(text, from_end=True))
    more = words(count, seed=3)
    longer = [*text, *more]
    drafter.begin(longer)
    assert (backlog(drafter, from_end=True), backlog(drafter)) == (count, 300 + count)
    read = [*text[-END:], *more]
    assert [*proposed(drafter, limit(longer, from_end=True)).tokens] == drawn(longer, read, 4)
    # Of a long one it leaves out what is in front of the end, again.
    longest = [*longer, *words(300, seed=5)]
    drafter.begin(longest)
    assert backlog(drafter, from_end=True) == END
    read = longest[-END:]
    assert [*proposed(drafter, limit(longest, from_end=True)).tokens] == drawn(longest, read, 4)
    assert [*proposed(drafter, limit(longest, from_end=False)).tokens] == drawn(longest, longest, 4)
    # A text that differs in what was read begins anew.
    edited = [*words(10, seed=9), *text[:-5], *words(400, seed=4)]
    drafter.begin(edited)
    assert backlog(drafter) == len(edited)


def test_a_text_that_is_cut_within_what_was_left_out_is_read_anew() -> None:
    cache, text = ToyCache(MODEL), words(300)
    drafter = drafter_of(cache)
    drafter.begin(text)
    proposed(drafter, limit(text, from_end=True))
    for length in (200, 100, 3):
        drafter.begin(text[:length])
        assert backlog(drafter) == length
    assert [*proposed(drafter, limit(text[:3], from_end=True)).tokens] == drawn(
        text[:3], text[:3], 4
    )


def test_a_text_that_is_cut_behind_the_gap_is_read_from_its_own_end() -> None:
    """The end has never fewer tokens behind what was left out."""
    cache, text = ToyCache(MODEL), words(300)
    drafter = drafter_of(cache)
    for length in (299, 237):
        drafter.begin(text)
        proposed(drafter, limit(text, from_end=True))
        cut = text[:length]
        drafter.begin(cut)
        assert backlog(drafter, from_end=True) == END
        assert [*proposed(drafter, limit(cut, from_end=True)).tokens] == drawn(cut, cut[-END:], 4)


def test_an_end_needs_less_context_than_the_text() -> None:
    drafter, text = drafter_of(ToyCache(MODEL, n_ctx=100)), words(300)
    drafter.begin(text)
    for _ in range(2):
        assert len(proposed(drafter, limit(text, from_end=False))) == 0
        assert len(proposed(drafter, limit(text, from_end=True))) == 4


def test_a_cache_that_cannot_be_cut_at_the_end_of_what_it_shares_reads_the_end_alone() -> None:
    """As that of a recurrent model, which goes back to its beginning."""

    class Recurrent(ToyCache):
        def truncate(self, length: int) -> int:
            if length < len(self.tokens):
                self.tokens.clear()
            return len(self.tokens)

    cache, text = Recurrent(MODEL), words(200)
    drafter = drafter_of(cache)
    drafter.begin(text)
    proposed(drafter, limit(text, from_end=False))
    text = [*text[:150], *words(300, seed=2)]
    drafter.begin(text)
    evaluated = cache.evaluated
    draft = [*proposed(drafter, limit(text, from_end=True)).tokens]
    assert draft == drawn(text, text[-END:], 4)
    assert cache.evaluated - evaluated == END + 3


@given(st.data())
def test_whatever_happens_it_has_read_the_text_or_its_two_ends(data: st.DataObject) -> None:
    """And it draws what the model draws behind exactly that."""
    cache = ToyCache(MODEL)
    drafter, text = drafter_of(cache), words(data.draw(st.integers(1, 400)))
    drafter.begin(text)
    for number in range(data.draw(st.integers(1, 6))):
        match data.draw(st.sampled_from(["draft", "draft", "longer", "cut", "edit"])):
            case "longer":
                text = [*text, *words(data.draw(st.integers(1, 300)), number)]
            case "cut":
                text = text[: data.draw(st.integers(1, len(text)))]
            case "edit":
                place = data.draw(st.integers(0, len(text) - 1))
                text = [*text[:place], (text[place] + 1) % N_VOCAB, *text[place + 1 :]]
            case _:
                from_end = data.draw(st.booleans())
                could = can_leave_out(drafter)
                draft = [*proposed(drafter, limit(text, from_end=from_end)).tokens]
                read = cache.tokens[: len(cache.tokens) - 3]
                assert draft == drawn(text, read, 4)
                assert (read != text) <= (from_end and could)
                tail = min(END, len(read))
                assert read[len(read) - tail :] == text[len(text) - tail :]
                same = common_prefix(read, text) + common_prefix(read[::-1], text[::-1])
                assert same >= len(read), "one part of the text is left out, and no more"
                accepted = data.draw(st.integers(0, 4))
                tokens = [*draft[:accepted], 5]
                drafter.observe(Outcome(tokens, accepted))
                text = [*text, *tokens]
                continue
        drafter.begin(text)
