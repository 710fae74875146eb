"""Several texts in one context: each as long as it may be, behind a prefix that they share."""

from collections.abc import Iterator
from typing import Any

import llama_cpp
import numpy as np
import pytest
from fakes import tiny
from fakes.checked import KINDS, SLIDING, STATES, TOLERANCE, Make

from localspec.errors import LocalspecError
from localspec.llama import cached_text
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import Draft
from localspec.speculation.passes import Pass
from localspec.utils.tokens import common_prefix

LONG = 2_000
RANDOM = np.random.default_rng(5)


def some(count: int) -> list[int]:
    return [int(token) for token in RANDOM.integers(3, tiny.N_VOCAB, count)]


PREFIX = some(LONG)


@pytest.fixture
def texts(make: Make) -> Iterator[Any]:
    opened: list[KVSequence] = []

    def several(kind: str, count: int, **options: Any) -> list[KVSequence]:
        first = make(kind, texts=count, **options)
        opened.extend(first.context.new_sequence() for _ in range(count - 1))
        for each in opened:
            each.chunk = first.chunk
        return [first, *opened]

    yield several
    for each in opened:
        each.close()


def assert_same(
    text: KVSequence, fresh: KVSequence, behind: list[int], tolerance: float = TOLERANCE
) -> None:
    """The next tokens of a text have the rows that they have in a fresh context."""
    fresh.truncate(0)
    for tokens in (behind, some(9), some(1)):
        text.extend(tokens)
        fresh.truncate(0)
        expected = fresh.extend(text.tokens)
        # Its own cells hold the tokens: they are read again by a row of their own.
        text.truncate(len(text.tokens) - 1)
        row = text.extend(fresh.tokens[-1:])
        assert float(np.abs(row - expected).max()) < tolerance


# Flash attention computes long passes in tiles, whose digits depend on where the text's cells are.
@pytest.mark.parametrize(("flash_attention", "tolerance"), [(False, TOLERANCE), (True, 0.05)])
def test_texts_behind_a_long_prefix_that_they_share(
    make: Make, texts: Any, flash_attention: bool, tolerance: float
) -> None:
    options = {"n_ctx": 2304, "flash_attention": flash_attention}
    owner, second, third = texts("llama", 3, **options)
    fresh = make("llama", **options)
    owner.extend([*PREFIX, *some(40)])
    second.extend(some(10))
    for text, length in ((second, LONG), (third, 1_500)):
        assert text.take_prefix([*PREFIX[:length], *some(3)]) == length
        assert text.tokens == PREFIX[:length]
    assert (second.evaluated, third.evaluated) == (10, 0)
    for text in (second, third, owner):
        assert_same(text, fresh, some(5), tolerance)
    third.truncate(700)
    assert_same(third, fresh, some(5), tolerance)
    owner.close()
    another = second.context.new_sequence()
    another.extend(some(300))
    for text in (second, third, another):
        assert_same(text, fresh, some(5), tolerance)
    another.close()


def test_cells_that_are_shared_are_free_once_nobody_has_them(texts: Any) -> None:
    owner, second = texts("llama", 2, n_ctx=512)
    for _ in range(5):
        owner.truncate(0)
        owner.extend(PREFIX[:400])
        assert second.take_prefix(PREFIX[:400]) == 400
        owner.truncate(0)
        owner.extend(some(512))
        second.extend(some(112))
        assert len(owner.tokens) == len(second.tokens) == 512
        second.truncate(0)


def test_only_committed_tokens_of_an_open_pass_are_shared(make: Make, texts: Any) -> None:
    owner, second = texts("llama", 2)
    fresh = make("llama")
    owner.extend(PREFIX[:100])
    pending, draft = PREFIX[100], PREFIX[101:104]
    owner.score(pending, Draft(draft))
    assert second.take_prefix(PREFIX[:200]) == 100
    owner.commit([0, 1])
    assert owner.tokens == PREFIX[:103]
    for text in (owner, second):
        assert_same(text, fresh, some(5))


def test_what_the_cache_lacks_is_not_shared(make: Make, texts: Any) -> None:
    owner, second = texts("llama", 2)
    owner.extend(PREFIX[:100])
    owner.context.renew()
    assert not second.share(owner, 100)
    assert second.take_prefix(PREFIX[:100]) == 0
    assert_same(second, make("llama"), some(5))


@pytest.mark.parametrize("kind", [*STATES, "gemma3", SLIDING])
def test_elsewhere_a_state_is_copied(make: Make, texts: Any, kind: str) -> None:
    owner, second, third = texts(kind, 3)
    fresh = make(kind)
    owner.extend(PREFIX[:300])
    owner.score(PREFIX[300], Draft([*PREFIX[301:303], 5]))
    # Its draft has no verdict: there is no state that could be copied.
    assert second.take_prefix(PREFIX[:400]) == 0
    owner.commit([0, 1])
    for missing in owner.catch_up(0):
        owner.context.decode([missing])
    assert second.take_prefix([*PREFIX[:303], *some(4)]) == 303
    # The owner's text goes on differently: its state is of no use.
    assert third.take_prefix([*PREFIX[:250], *some(40)]) == 0
    assert second.evaluated == 0
    owner.extend(some(30))
    for text in (second, owner, third):
        assert_same(text, fresh, some(5)) if kind not in STATES else extended(text, fresh)


@pytest.mark.parametrize("kind", [*STATES, "gemma3", SLIDING])
def test_a_beginning_up_to_a_mark_is_copied(make: Make, texts: Any, kind: str) -> None:
    """Whatever the owner has written behind it, also while its draft has no verdict."""
    owner, second, third = texts(kind, 3)
    fresh = make(kind)
    for length in (80, 200):
        owner.extend(PREFIX[len(owner.tokens) : length])
        owner.mark()
    owner.extend(PREFIX[200:420])
    # A text that had another one before, and one that is new.
    second.extend(some(30))
    owner.score(PREFIX[420], Draft([*PREFIX[421:423], 5]))
    assert second.take_prefix([*PREFIX[:210], *some(40)]) == 200
    assert second.tokens == PREFIX[:200]
    assert third.take_prefix([*PREFIX[:199], *some(40)]) == 80
    assert (second.evaluated, third.evaluated) == (30, 0)
    owner.commit([0])
    for text in (second, third, owner, second):
        extended(text, fresh)
    # It has the mark too, and outlives the text that it is from.
    owner.truncate(0)
    owner.extend(some(300))
    assert second.truncate(210) in (200, 210)
    assert third.take_prefix([*PREFIX[:200], *some(40)]) == 200
    for text in (third, second, owner):
        extended(text, fresh)


@pytest.mark.parametrize("kind", ["qwen35", "qwen35 with two"])
def test_a_decode_of_other_texts_loses_snapshots(make: Make, texts: Any, kind: str) -> None:
    """The library moves the cell between theirs."""
    (first, second, third), fresh = texts(kind, 3), make(kind)
    for text in (first, second, third):
        text.extend(some(9))
    first.context.decode([Pass(first, some(3)), Pass(third, some(3))])
    second.truncate(8)
    for text in (first, second, third):
        extended(text, fresh)


@pytest.mark.parametrize("kind", STATES)
def test_a_checkpoint_of_the_text_before_is_no_checkpoint(
    make: Make, texts: Any, kind: str
) -> None:
    """Not even where the beginning that is taken is as long."""
    (owner, second), fresh = texts(kind, 2), make(kind)
    owner.extend(PREFIX[:80])
    owner.mark()
    owner.extend(PREFIX[80:99])
    second.extend(some(80))
    second.checkpoint()
    assert second.take_prefix([*PREFIX[:80], *some(9)]) == 80
    second.score(5, Draft(some(12)))
    second.commit([0])
    extended(second, fresh)


@pytest.mark.parametrize("kind", ["mamba", SLIDING])
def test_a_beginning_that_the_library_does_not_load_is_read(
    make: Make, texts: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, second = texts(kind, 2)
    owner.extend(PREFIX[:80])
    owner.mark()
    owner.extend(PREFIX[80:99])
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_state_seq_set_data_ext", lambda *_: 0)
        assert second.take_prefix([*PREFIX[:80], *some(9)]) == 0
    assert second.tokens == []
    extended(second, make(kind))


@pytest.mark.parametrize("kind", [*STATES, "gemma3", SLIDING])
def test_what_was_copied_up_to_a_mark_is_freed(make: Make, texts: Any, kind: str) -> None:
    """Each text may hold the whole context, however often it has taken a beginning."""
    (owner, second), fresh = texts(kind, 2, n_ctx=300), make(kind, n_ctx=300)
    for _ in range(4):
        for text in (owner, second):
            text.truncate(0)
        owner.extend(PREFIX[:100])
        owner.mark()
        owner.extend(PREFIX[100:150])
        assert second.take_prefix([*PREFIX[:100], *some(10)]) == 100
        for text in (owner, second):
            text.extend(some(290 - len(text.tokens)))
    for text in (owner, second):
        row = text.extend(some(10)).copy()
        fresh.truncate(0)
        assert float(np.abs(row - fresh.extend(text.tokens)).max()) < TOLERANCE


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_is_taken_of_texts_that_were_written_marked_and_cut_at_random(
    make: Make, texts: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_text, "LEAST_SAVED", 4)
    rng, fresh, all_texts, taken = np.random.default_rng(7), make(kind), texts(kind, 3), 0
    for text in all_texts:
        text.extend(some(250 if kind == SLIDING else 20))
    for _ in range(30):
        mine, other, third = (all_texts[i] for i in rng.permutation(3))
        if rng.random() < 0.7:
            other.mark()
        pending, *draft = some(rng.integers(1, 12))
        other.score(pending, Draft(draft))
        other.commit(range(rng.integers(0, len(draft) + 1)))
        third.truncate(max(0, len(third.tokens) - int(rng.integers(0, 5))))
        prompt = [*other.tokens[: max(0, len(other.tokens) - rng.integers(0, 12))], *some(3)]
        place = max(common_prefix(each.tokens, prompt) for each in all_texts)
        assert mine.place_to_mark(prompt) == (0 if mine.shares_cells else place)
        before = list(mine.tokens)
        length = mine.take_prefix(prompt)
        assert length == common_prefix(mine.tokens, prompt)
        if mine.tokens == before:
            mine.truncate(int(rng.integers(0, len(before) + 1)))
        else:
            assert mine.tokens == prompt[:length] and mine.memory.length == length
            assert length - common_prefix(before, prompt) >= 4
            taken += 1
        for text in all_texts:
            row = text.extend(some(1)).copy()
            fresh.truncate(0)
            assert float(np.abs(row - fresh.extend(text.tokens)).max()) < TOLERANCE
    assert taken >= 5


def extended(text: KVSequence, fresh: KVSequence) -> None:
    """As `assert_same`, for texts that cannot be cut by one token."""
    for count in (5, 9, 1):
        row = text.extend(some(count)).copy()
        fresh.truncate(0)
        assert float(np.abs(row - fresh.extend(text.tokens)).max()) < TOLERANCE


def test_a_few_tokens_are_not_worth_it(texts: Any) -> None:
    owner, second = texts("llama", 2)
    owner.extend(PREFIX[:100])
    second.extend(PREFIX[:69])
    assert second.take_prefix(PREFIX[:100]) == 69
    second.truncate(68)
    assert second.take_prefix(PREFIX[:100]) == 100


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_text_may_hold_the_whole_context(make: Make, texts: Any, kind: str) -> None:
    """`--ctx` is what one text may hold, whatever the others hold."""
    n_ctx = 300
    both, fresh = texts(kind, 2, n_ctx=n_ctx), make(kind, n_ctx=n_ctx)
    assert [text.n_ctx for text in both] == [n_ctx] * 2
    for each in both:
        each.extend(some(n_ctx - 60))
    # The last tokens come by turns, and the very last ones in one decode.
    for _ in range(59):
        for each in both:
            each.extend(some(1))
    last = [some(1) for _ in both]
    scores = both[0].context.decode(
        [Pass(text, tokens) for text, tokens in zip(both, last, strict=True)]
    )
    rows = [each.logits[0].copy() for each in scores]
    for text, row in zip(both, rows, strict=True):
        assert len(text.tokens) == n_ctx
        fresh.truncate(0)
        assert float(np.abs(row - fresh.extend(text.tokens)).max()) < TOLERANCE
        with pytest.raises(LocalspecError, match=f"context of {n_ctx} tokens is full"):
            text.extend(some(1))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_larger_cache_holds_the_texts_that_were_there(make: Make, texts: Any, kind: str) -> None:
    first, second = texts(kind, 2)
    fresh = make(kind)
    first.extend(some(290))
    first.score(some(1)[0], Draft(some(3)))
    first.commit([0])
    second.extend(some(20))
    evaluated = first.evaluated, second.evaluated
    first.context.resize(4)
    assert (first.evaluated, second.evaluated) == evaluated
    others = [first.context.new_sequence() for _ in range(2)]
    for text in (*others, second, first):
        extended(text, fresh)
    for text in others:
        text.close()
