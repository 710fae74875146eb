"""The library's context of some texts: its places, its threads, and what is left of it."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import llama_cpp
import numpy as np
import pytest
from fakes.checked import KINDS, SLIDING, TOLERANCE, company_of, context_of

from localspec.errors import DeviceError, LocalspecError, ModelLoadError
from localspec.llama import kv_cache
from localspec.llama.context import Context
from localspec.llama.kv_cache import MAX_IDS
from localspec.llama.model import Model
from localspec.llama.rollback import Rollback
from localspec.speculation.draft import Draft

TEXT = list(range(20, 60))


@pytest.fixture(params=["llama", "mamba"])
def cache(request: pytest.FixtureRequest, models: dict[str, Model]) -> Iterator[Context]:
    made = company_of(models[request.param], request.param, n_ctx=64, texts=3)
    yield made
    made.close()


def assert_reads_on(cache: Context, text: Any, evaluated: int) -> None:
    """The next row is that of the text alone, and so many of its tokens were evaluated."""
    kind = "llama" if cache.rollback is Rollback.PARTIAL else "mamba"
    row, before = text.extend([7]), text.evaluated
    with context_of(cache.model, kind, n_ctx=64) as fresh:
        assert np.abs(row - fresh.extend(text.tokens)).max() < TOLERANCE
    assert before == evaluated + 1


def test_a_place_that_is_left_is_taken_again(cache: Context) -> None:
    first, second, third = (cache.new_sequence() for _ in range(3))
    assert [each.seq_id for each in cache.sequences] == [0, 1, 2]
    with pytest.raises(LocalspecError, match="all 3 places of this context are taken"):
        cache.new_sequence()
    second.extend(TEXT)
    second.close()
    second.close()
    another = cache.new_sequence()
    assert another.seq_id == 1 and cache.sequences == [first, third, another]
    another.extend([5])
    assert_reads_on(cache, another, 1)
    for each in (first, third, another):
        each.close()
    with pytest.raises(LocalspecError, match="closed"):
        _ = cache.memory


def test_a_text_leaves_a_cache_that_was_lost_without_making_it_anew(cache: Context) -> None:
    first, second = cache.new_sequence(), cache.new_sequence()
    first.extend(TEXT)
    second.extend(TEXT[:9])
    cache.has_failed = True
    cache.free()
    second.close()
    assert (cache.renewals, cache.sequences) == (0, [first])
    assert_reads_on(cache, first, 80)


def test_as_many_texts_as_the_library_has_ids(models: dict[str, Model]) -> None:
    cache = company_of(models["llama"], "llama", n_ctx=4)
    with cache.new_sequence() as text, pytest.raises(LocalspecError, match="257 texts are too"):
        cache.resize(MAX_IDS)
        assert cache.params.texts == 256
        text.extend([5])
        cache.resize(MAX_IDS + 1)


def test_threads_are_those_of_the_library(cache: Context) -> None:
    text = cache.new_sequence()
    text.extend(TEXT)

    def in_use() -> tuple[int, int]:
        return llama_cpp.llama_n_threads(cache.handle), llama_cpp.llama_n_threads_batch(
            cache.handle
        )

    cache.set_threads(2)
    assert in_use() == (2, 2) and cache.params.threads == 2
    cache.resize(4)
    assert in_use() == (2, 2)
    assert_reads_on(cache, text, 40)
    cache.close()
    cache.set_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_known_of_a_kind(models: dict[str, Model], kind: str) -> None:
    family, _, rollback = KINDS[kind]
    for swa_full in (False, True):
        with context_of(models[family], kind, n_ctx=40, swa_full=swa_full) as text:
            cache = text.context
            assert cache.splits_unequal == (rollback is not Rollback.PARTIAL)
            assert cache.window == (16 if family == "gemma3" and not swa_full else 0)
            # The library's own cells are a multiple of 256.
            assert cache.n_cells == 40
    assert kind != SLIDING or cache.chunk == 512


def test_a_context_of_narrow_passes(models: dict[str, Model]) -> None:
    with context_of(models["llama"], "llama", ubatch=32) as text:
        assert text.context.chunk == 32
        text.extend(TEXT)


def test_a_cache_that_was_lost_is_made_anew_by_whoever_asks(cache: Context) -> None:
    text = cache.new_sequence()
    text.extend(TEXT)
    cache.has_failed = True
    cache.free()
    assert cache.memory == llama_cpp.llama_get_memory(cache.handle)
    assert (cache.renewals, cache.has_failed, text.memory.length) == (1, False, 0)
    assert_reads_on(cache, text, 80)


def test_without_memory_for_another_the_next_use_tries_again(
    cache: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ModelLoadError("no memory")

    text = cache.new_sequence()
    text.extend(TEXT)
    with monkeypatch.context() as patch:
        patch.setattr(kv_cache, "new_context", refused)
        with pytest.raises(DeviceError, match="the device has failed, and then no memory"):
            cache.renew()
        with pytest.raises(DeviceError, match="no memory"):
            cache.resize(4)
        assert cache.has_failed and cache.renewals == 0
    cache.resize(4)
    assert (cache.renewals, cache.has_failed, cache.params.texts) == (1, False, 4)
    assert_reads_on(cache, text, 80)
    cache.has_failed = True
    cache.close()
    with pytest.raises(LocalspecError, match="closed"):
        _ = cache.handle


@pytest.fixture
def living(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The library's contexts that were made from here on, and are not freed."""
    handles, make, free = list[int](), kv_cache.new_context, llama_cpp.llama_free

    def made(*arguments: Any) -> Any:
        handle = make(*arguments)
        handles.append(id(handle))
        return handle

    def freed(handle: Any) -> None:
        if id(handle) in handles:
            handles.remove(id(handle))
        free(handle)

    monkeypatch.setattr(kv_cache, "new_context", made)
    monkeypatch.setattr(llama_cpp, "llama_free", freed)
    return handles


def test_no_context_of_the_library_is_left(models: dict[str, Model], living: list[int]) -> None:
    cache = company_of(models["llama"], "llama", n_ctx=64, texts=1)
    text = cache.new_sequence()
    text.extend(TEXT)
    for texts in (2, 3):
        cache.resize(texts)
        assert len(living) == 1
    cache.renew()
    assert len(living) == 1
    text.close()
    assert not living


def test_a_larger_cache_that_does_not_fit_changes_nothing(
    models: dict[str, Model], living: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the last head beside it, which is made last."""
    caches = [company_of(models["llama"], "llama", n_ctx=64, texts=1) for _ in range(3)]
    texts = [each.new_sequence() for each in caches]
    for text in texts:
        text.extend(TEXT)
    cache, *heads = caches
    cache.head_contexts += heads
    targets = []

    def made(places: int, target: Any = None) -> Any:
        targets.append(target)
        return Context.new_handle(cache, places)

    def refused(*_: object) -> None:
        raise ModelLoadError("no memory")

    for head in heads:
        monkeypatch.setattr(head, "new_handle", made)
    with monkeypatch.context() as patch:
        patch.setattr(heads[1], "new_handle", refused)
        with pytest.raises(ModelLoadError, match="no memory"):
            cache.resize(2)
        assert len(living) == 3 and [each.params.texts for each in caches] == [1, 1, 1]
        # One that was lost is made anew first.
        heads[1].has_failed = True
        heads[1].free()
        with pytest.raises(DeviceError, match="no memory"):
            cache.resize(2)
        assert len(living) == 2 and [each.params.texts for each in caches] == [1, 1, 1]
    heads[1].renew()
    # A head has its own number of places, in the new cache of its target.
    cache.resize(2)
    assert targets[-2:] == [cache.handle] * 2
    assert len(living) == 3 and [each.params.texts for each in caches] == [2, 1, 1]
    for each, text, evaluated in zip(caches, texts, (40, 40, 80), strict=True):
        assert_reads_on(each, text, evaluated)
    cache.close()
    assert not living and not cache.head_contexts


def test_heads_are_freed_before_their_target_and_made_anew_behind_it(
    models: dict[str, Model], living: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = [company_of(models["llama"], "llama", n_ctx=64) for _ in range(3)]
    cache, *heads = caches
    cache.head_contexts += heads
    texts = [each.new_sequence() for each in caches]
    freed = list[Context]()
    for each in caches:

        def free(each: Context = each, usual: Callable[[], None] = each.free) -> None:
            freed.append(each)
            usual()

        monkeypatch.setattr(each, "free", free)
    with monkeypatch.context() as patch:
        patch.setattr(heads[0], "new_handle", Mock(side_effect=ModelLoadError("no memory")))
        cache.renew()
    assert freed == [heads[1], heads[0], cache]
    # That of the one with too little memory is made with its next use.
    assert [each.renewals for each in caches] == [1, 0, 1] and len(living) == 2
    for each, text in zip(caches, texts, strict=True):
        assert_reads_on(each, text, 0)
    assert [each.renewals for each in caches] == [1, 1, 1]
    cache.close()
    assert not living


def test_a_pass_without_a_verdict_is_forgotten_by_a_larger_cache(cache: Context) -> None:
    """Its text is copied as it was in front of it, and nothing of that is read again."""
    text = cache.new_sequence()
    text.extend(TEXT)
    text.score(5, Draft([6]))
    cache.resize(4)
    assert_reads_on(cache, text, 42)


def test_texts_come_back_into_a_cache_that_was_emptied(cache: Context) -> None:
    """Also after an interrupt; what has no verdict is forgotten."""
    texts = [cache.new_sequence() for _ in range(3)]
    texts[0].extend(TEXT)
    texts[1].extend(TEXT[:20])
    texts[0].score(5, Draft([6]))
    with pytest.raises(KeyboardInterrupt), cache.emptied():
        llama_cpp.llama_memory_clear(cache.memory, True)
        raise KeyboardInterrupt
    for text, evaluated in zip(texts, (42, 20, 0), strict=True):
        assert_reads_on(cache, text, evaluated)


def test_a_copy_that_the_library_does_not_take_back_is_read_again(
    cache: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = llama_cpp.llama_state_seq_set_data_ext

    def refused(*arguments: Any) -> int:
        load(*arguments)
        return 0

    text = cache.new_sequence()
    text.extend(TEXT)
    text.mark()
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_state_seq_set_data_ext", refused)
        with cache.emptied():
            llama_cpp.llama_memory_clear(cache.memory, True)
    assert text.memory.length == 0 and not text.memory.marks
    assert_reads_on(cache, text, 80)
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_state_seq_set_data_ext", refused)
        cache.resize(4)
    assert text.memory.length == 0
    assert_reads_on(cache, text, 122)
