"""KVSequence on the bundled target: the cache holds what `tokens` says, whatever happens."""

from collections.abc import Callable
from time import sleep

import llama_cpp
import numpy as np
import pytest

from localspec.errors import LocalspecError
from localspec.llama.context import Context, single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.reference_loop import ReferenceLoop
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.sampling.params import SamplingParams
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.passes import Pass, draft_pass

Make = Callable[..., KVSequence]
TEXT = list(range(40, 75))


def cached(context: KVSequence) -> int:
    """How many tokens the library itself says are in the cache."""
    return int(llama_cpp.llama_memory_seq_pos_max(context.context.memory, 0)) + 1


def after(context: KVSequence, token: int) -> np.ndarray:
    """Logits after one more token; the cache is left as it was."""
    row = context.score(token, NOTHING).logits[0].copy()
    context.commit([])
    context.truncate(len(context.tokens) - 1)
    return row


def test_a_transformer_can_forget_any_last_tokens(target_model: Model, make_context: Make) -> None:
    context = make_context(target_model)
    assert context.rollback is Rollback.PARTIAL
    assert cached(context) == 0 == len(context.tokens)


def test_scoring_a_draft_gives_the_rows_of_decoding_one_by_one(
    target_model: Model, make_context: Make
) -> None:
    plain, drafted = make_context(target_model), make_context(target_model)
    plain.extend(TEXT[:10])
    drafted.extend(TEXT[:10])
    for width in range(1, 17):
        chain = TEXT[10 : 10 + width]
        rows = drafted.score(chain[0], Draft(chain[1:])).logits.copy()
        drafted.commit([])
        drafted.truncate(10)
        for row, token in zip(rows, chain, strict=True):
            assert np.array_equal(row, plain.score(token, NOTHING).logits[0])
            plain.commit([])
        plain.truncate(10)


class EndedError(BaseException):
    """Stands for the end of the process."""


def test_a_fault_that_ctypes_has_caught_ends_the_process(
    target_model: Model, make_context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on systems where ctypes catches none: what the library holds is damaged."""

    def fault(*_: object) -> int:
        raise OSError("exception: access violation reading 0x0000000000000000")

    def end(code: int) -> None:
        raise EndedError(code)

    context = make_context(target_model)
    monkeypatch.setattr(llama_cpp, "llama_decode", fault)
    monkeypatch.setattr("os._exit", end)
    with pytest.raises(EndedError, match="3"):
        context.extend(TEXT)


@pytest.mark.parametrize("accepted", range(5))
def test_commit_keeps_the_accepted_part_only(
    target_model: Model, make_context: Make, accepted: int
) -> None:
    context, fresh = make_context(target_model), make_context(target_model)
    context.extend(TEXT[:10])
    context.score(7, Draft([8, 9, 10, 11]))
    context.commit(range(accepted))
    assert context.tokens == [*TEXT[:10], *[7, 8, 9, 10, 11][: 1 + accepted]]
    assert cached(context) == len(context.tokens)
    fresh.extend(TEXT[:10])
    fresh.score(7, Draft([8, 9, 10, 11][:accepted]))
    fresh.commit(range(accepted))
    assert np.array_equal(after(context, 99), after(fresh, 99))


def test_an_interrupted_pass_is_rolled_back(target_model: Model, make_context: Make) -> None:
    """Between score and commit anything may happen, an interrupt above all."""
    context, fresh = make_context(target_model), make_context(target_model)
    for each in (context, fresh):
        each.extend(TEXT[:10])
    context.score(7, Draft([8, 9, 10]))
    assert cached(context) == 14
    assert np.array_equal(after(context, 99), after(fresh, 99))
    context.score(7, Draft([8, 9, 10]))
    assert context.truncate(5) == 5 == cached(context)


def test_a_pass_without_a_verdict_leaves_nothing_to_the_next(
    target_model: Model, make_context: Make
) -> None:
    context = make_context(target_model)
    context.extend(TEXT[:10])
    requested = draft_pass(context, 7, Draft([8, 9, 10]))
    rows = [context.context.decode([requested])[0].logits.copy() for _ in range(2)]
    assert np.array_equal(*rows) and cached(context) == 14


def test_a_prompt_whose_rows_nobody_saw_is_no_text(
    target_model: Model, make_context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    context, fresh = make_context(target_model), make_context(target_model)
    for each in (context, fresh):
        each.extend(TEXT[:10])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Context, "_scores", interrupted)
        context.extend(TEXT[10:14])
    assert context.tokens == TEXT[:10]
    assert np.array_equal(after(context, 99), after(fresh, 99))


def test_a_prompt_in_chunks_is_the_prompt(target_model: Model, make_context: Make) -> None:
    whole, chunked = make_context(target_model), make_context(target_model)
    expected = whole.extend(TEXT).copy()
    chunked.chunk = 8
    got = chunked.extend(TEXT)
    assert chunked.tokens == TEXT
    np.testing.assert_allclose(got, expected, atol=0.05)


def test_shared_prefix(target_model: Model, make_context: Make) -> None:
    context = make_context(target_model)
    context.extend(TEXT)
    assert context.shared(TEXT[:5]) == 5
    assert context.shared([*TEXT[:5], 1, 2]) == 5
    assert context.shared([*TEXT, 1]) == len(TEXT)
    assert context.shared([1]) == 0


def test_the_limit_is_said_before_the_library_is_asked(
    target_model: Model, make_context: Make
) -> None:
    context = make_context(target_model, n_ctx=20)
    with pytest.raises(LocalspecError, match="context of 20 tokens is full"):
        context.extend(TEXT)
    assert context.tokens == []
    context.extend(TEXT[:20])
    context.truncate(0)
    context.set_width(4)  # the padding of the last pass needs cells too
    with pytest.raises(LocalspecError, match="context of 17 tokens is full"):
        context.extend(TEXT[:18])
    context.extend(TEXT[:17])


def test_padding_is_for_drafts_and_ends_with_the_cells(
    target_model: Model, make_context: Make
) -> None:
    context, plain = make_context(target_model, n_ctx=20), make_context(target_model, n_ctx=20)
    context.padded = lambda rows: rows + 6
    [scores] = context.context.decode([Pass(context, TEXT[:13])])
    assert scores.padding == 0
    plain.extend(TEXT[:13])
    for draft, padding in (([8, 9], 4), ([10], 2), ([], 1)):
        scores = context.score(7, Draft(draft))
        assert (scores.padding, scores.width) == (padding, 1 + len(draft) + padding)
        np.testing.assert_allclose(scores.logits, plain.score(7, Draft(draft)).logits, atol=0.05)
        for each in (context, plain):
            each.commit(range(len(draft)))
            assert cached(each) == len(each.tokens)


def test_texts_of_one_decode_pay_for_their_rows(target_model: Model) -> None:
    """The padding is of the last; to the other text it is one of the rows beside it."""
    company = Context(target_model, ContextParams(n_ctx=64, threads=1, texts=2))
    one, two = company.new_sequence(), company.new_sequence()
    for text in (one, two):
        text.extend(TEXT[:5])
        text.padded = lambda rows: rows + 3
    passes = [draft_pass(two, 7, NOTHING), draft_pass(one, 7, Draft([8, 9]))]
    last, first = company.decode(passes)
    assert (first.padding, last.padding) == (0, 3)
    assert (first.others, last.others) == ((1 + 3,), (3,))
    assert first.seconds == last.seconds == pytest.approx(first.share + last.share)
    assert first.share == pytest.approx(3 * last.share)
    for text in (one, two):
        text.close()


def test_a_closed_context_says_so(target_model: Model) -> None:
    context = single_sequence(target_model, ContextParams(n_ctx=64, threads=1))
    context.close()
    context.close()
    with pytest.raises(LocalspecError, match="closed"):
        context.extend([1])
    with pytest.raises(LocalspecError, match="closed"):
        context.truncate(0)


def test_trees_are_refused_in_words(target_model: Model, make_context: Make) -> None:
    with pytest.raises(LocalspecError, match="chain"):
        make_context(target_model).score(1, Draft([2, 3], parents=[-1, -1]))


def test_our_plain_loop_is_the_library_s_own(target_model: Model, make_context: Make) -> None:
    """The library is the oracle: a bare decode loop over its C API, greedy."""
    prompt = target_model.tokenize("def tokenize(self, text):")
    with ReferenceLoop(target_model, n_ctx=512, threads=1) as bare:
        expected = bare.generate(prompt, 64, SamplingParams(temperature=0)).tokens

    context, ours = make_context(target_model), []
    row = context.extend(prompt)
    for _ in range(64):
        ours.append(int(row.argmax()))
        row = context.extend([ours[-1]])
    assert ours == expected


def test_the_seconds_of_a_pass_last_to_its_end(
    target_model: Model, make_context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU still computes when `llama_decode` returns; the wait for it belongs to the pass."""
    wait = 0.05

    def slow(handle: object) -> None:
        sleep(wait)

    context = make_context(target_model)
    context.extend(TEXT[:10])
    monkeypatch.setattr(llama_cpp, "llama_synchronize", slow)
    assert context.score(TEXT[10], NOTHING).seconds >= wait
