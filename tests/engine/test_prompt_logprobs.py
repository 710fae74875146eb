"""Log-probabilities of a prompt, beside the library's own loop, and the text behind them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import llama_cpp
import numpy as np
import pytest
from fakes.drafter_kinds import EXACT
from fakes.pycode import load
from fakes.tiny import FAMILIES, N_VOCAB, write_tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine import slot
from localspec.engine.engine import Engine
from localspec.engine.generation import Token
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.context_params import CHUNK, LEAST_CHUNK
from localspec.sampling.filters import BrokenLogitsError
from localspec.speculation.passes import WIDE
from localspec.speculation.prompt_logprobs import PromptLogprobs
from localspec.utils.media import MediaToken

# Around the passes of a prompt, whose last token is read with the first step.
LENGTHS = [1, 2, 3, WIDE, WIDE + 1, WIDE + 2, WIDE + 9, 2 * WIDE, 2 * WIDE + 1, 2 * WIDE + 2, 300]
CONTEXT = 512


def ids_of(length: int, seed: int = 0) -> list[int]:
    """A prompt of random tokens, none of which is a control token."""
    random = np.random.default_rng(seed)
    return [1, *map(int, random.integers(3, N_VOCAB, length - 1))][:length]


class Library:
    """Logits of the library's own loop, one token at a time."""

    def __init__(self, path: Path) -> None:
        kinds = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
        self._llama = llama_cpp.Llama(
            str(path),
            n_ctx=CONTEXT,
            n_batch=1,
            n_threads=1,
            logits_all=True,
            verbose=False,
            **kinds,
        )

    def logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """(tokens - 1, n_vocab): behind each token but the last."""
        self._llama.reset()
        self._llama.eval(ids)
        rows = np.array(self._llama.scores[: len(ids) - 1], np.float64)
        rows -= rows.max(axis=1, keepdims=True, initial=-np.inf)
        return np.asarray(rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)))


def check(found: list[Token] | None, ids: Sequence[int], wanted: np.ndarray, top: int) -> None:
    assert found is not None
    assert [each.id for each in found] == list(ids)
    assert {each.origin for each in found} == {"prompt"}
    assert found[0].logprob is None and not found[0].top
    for token, row in zip(found[1:], wanted, strict=True):
        assert token.logprob == pytest.approx(row[token.id], abs=2e-3)
        values = [value for _, value in token.top]
        assert values == pytest.approx(sorted(row, reverse=True)[:top], abs=2e-3)
        assert [row[other] for other, _ in token.top] == pytest.approx(values, abs=2e-3)


# gpt2 has a table of as many positions as its tiny file says.
@pytest.fixture(scope="module", params=sorted(FAMILIES.keys() - {"gpt2"}))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    return write_tiny(path, request.param, quantised=False, context=CONTEXT)


@pytest.fixture(scope="module")
def engine(family: Path) -> Iterator[Engine]:
    with load(family, draft="none", **(EXACT | {"context": CONTEXT})) as engine:
        yield engine


@pytest.fixture(scope="module")
def library(family: Path) -> Library:
    return Library(family)


@pytest.mark.parametrize("length", LENGTHS)
def test_they_are_those_of_the_librarys_loop(engine: Engine, library: Library, length: int) -> None:
    ids = ids_of(length, seed=length)
    result = engine.generate(ids, prompt_logprobs=True, top_logprobs=3, max_tokens=0)
    check(result.prompt_logprobs, ids, library.logprobs(ids), 3)
    assert (result.stop_reason, result.token_ids, result.text) == ("length", [], "")


# Around the rows that can have logits, and twice as many.
UBATCHES = [LEAST_CHUNK, WIDE + 1, 100, 2 * WIDE - 1, 2 * WIDE, CHUNK]
LONGER = [60, *range(63, 68), *range(99, 103), *range(126, 131), 165, 193, 200, 300]


@pytest.mark.parametrize("ubatch", UBATCHES)
def test_they_are_those_of_the_librarys_loop_in_smaller_passes(
    family: Path, library: Library, ubatch: int
) -> None:
    wanted = library.logprobs(whole := ids_of(LONGER[-1]))
    with load(family, draft="none", ubatch=ubatch, **(EXACT | {"context": CONTEXT})) as engine:
        for length in LONGER:
            engine.slots.own.target.truncate(0)
            found = engine.generate(whole[:length], prompt_logprobs=True, max_tokens=0)
            check(found.prompt_logprobs, whole[:length], wanted[: length - 1], 0)
            assert found.stats.prompt_evaluated == length


def test_what_two_prompts_begin_with_is_computed_once(engine: Engine, library: Library) -> None:
    shared, width = ids_of(200, seed=7), 3 * WIDE
    for number in range(3):
        ids = [*shared, *ids_of(20, seed=number)]
        result = engine.generate(ids, prompt_logprobs=True, top_logprobs=2, max_tokens=3, seed=1)
        check(result.prompt_logprobs, ids, library.logprobs(ids), 2)
        assert len(result.token_ids) <= 3
        if number and engine.slots.own.target.takes_back is None:
            assert result.stats.prompt_evaluated <= WIDE + 1 < width


def test_another_number_of_likely_tokens_is_computed_anew(engine: Engine) -> None:
    ids = ids_of(100)
    for top in (1, 4, 0, 4):
        found = engine.generate(ids, prompt_logprobs=True, top_logprobs=top, max_tokens=0)
        assert found.prompt_logprobs
        assert {len(each.top) for each in found.prompt_logprobs[1:]} == {top}


@settings(max_examples=10)
@given(steps=st.lists(st.tuples(st.integers(1, 260), st.integers(0, 2), st.booleans()), max_size=6))
def test_histories(engine: Engine, library: Library, steps: list[tuple[int, int, bool]]) -> None:
    """Prompts that share beginnings, with and without; plain texts in between."""
    whole = [ids_of(280, seed=0)[:140] + ids_of(281, seed=seed)[1:141] for seed in range(3)]
    for length, which, asks in steps:
        ids = whole[which][:length]
        options: dict[str, Any] = {"prompt_logprobs": True, "top_logprobs": 1} if asks else {}
        result = engine.generate(ids, max_tokens=2, seed=length, ignore_eos=True, **options)
        if asks:
            check(result.prompt_logprobs, ids, library.logprobs(ids), 1)
        else:
            assert result.prompt_logprobs is None
        held = engine.slots.own.target.tokens
        assert held == [*ids, *result.token_ids][: len(held)]


@pytest.fixture(scope="module")
def plain(target_path: Path) -> Iterator[Engine]:
    with load(target_path, draft="none", context=CONTEXT, threads=1) as engine:
        yield engine


def require_same_digits_behind(engine: Engine, length: int) -> None:
    """Of a text behind a prompt of so many tokens, with and without its log-probabilities."""
    code = "def total(items):\n    for item in items:\n        yield item * 2\n\n" * 30
    ids = engine.tokenize(code)[:length]
    found = []
    for options in ({}, {"prompt_logprobs": True}):
        engine.slots.own.target.truncate(0)
        result = engine.generate(ids, max_tokens=6, logprobs=True, temperature=0.0, **options)
        found.append((result.token_ids, result.logprobs))
    assert found[0] == found[1]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_text_behind_them_has_the_same_digits(plain: Engine, length: int) -> None:
    """The last pass of a prompt is a wide one here, too: kernels of narrow ones add otherwise."""
    require_same_digits_behind(plain, length)


@pytest.mark.parametrize("ubatch", UBATCHES[:-1])
def test_the_text_behind_them_has_the_same_digits_in_smaller_passes(
    target_path: Path, ubatch: int
) -> None:
    with load(target_path, draft="none", context=CONTEXT, threads=1, ubatch=ubatch) as engine:
        for length in (66, 100, 102, 110, 128, 140, 165, 200, 300):
            require_same_digits_behind(engine, length)


@pytest.mark.parametrize("rest", [3, 30, WIDE, WIDE + 5])
def test_they_have_the_same_digits_behind_a_shared_beginning(plain: Engine, rest: int) -> None:
    shared = plain.tokenize("def total(items):\n    yield sum(items)\n\n" * 30)[:230]
    prompt = [*shared, *plain.tokenize("class Stack:\n    items = []\n" * 9)[1 : rest + 1]]
    options: dict[str, Any] = {"prompt_logprobs": True, "max_tokens": 0, "top_logprobs": rest % 7}
    cold, _, warm = (plain.generate(ids, **options) for ids in (prompt, [*shared, 5, 6], prompt))
    assert cold.prompt_logprobs == warm.prompt_logprobs
    assert cold.stats.prompt_evaluated == len(prompt) > warm.stats.prompt_evaluated


def test_a_short_prompt_has_the_digits_of_a_narrow_pass(plain: Engine) -> None:
    """Whatever was read before it."""
    ids = plain.tokenize("def total(items):\n    yield sum(items)\n\n" * 30)
    options: dict[str, Any] = {"prompt_logprobs": True, "max_tokens": 0, "top_logprobs": 9}
    cold, _, warm = (plain.generate(ids[:count], **options) for count in (40, 200, 40))
    assert cold.prompt_logprobs == warm.prompt_logprobs


def test_logits_that_are_no_numbers_are_told() -> None:
    for value in (np.nan, np.inf):
        logits = np.zeros((2, 10), np.float32)
        logits[0, 3] = value
        with pytest.raises(BrokenLogitsError, match="the model's logits contain"):
            PromptLogprobs([1, 2, 3], 2).take(0, logits)


def test_reproducible_ones_are_those_of_any_pass(target_path: Path) -> None:
    code = "def total(items):\n    yield sum(items)\n\n" * 30
    with load(target_path, draft="none", context=CONTEXT, reproducible=True) as engine:
        ids = engine.tokenize(code)[:200]
        asked = engine.generate(ids, prompt_logprobs=True, max_tokens=20, seed=4)
        engine.slots.own.target.truncate(0)
        assert engine.generate(ids, max_tokens=20, seed=4).token_ids == asked.token_ids
        for length in (30, 90, 170):
            engine.slots.own.target.truncate(0)
            found = engine.generate(ids[:length], max_tokens=1, temperature=0.0, logprobs=True)
            if found.token_ids == ids[length : length + 1]:
                assert asked.prompt_logprobs
                assert found.logprobs == [asked.prompt_logprobs[length].logprob]


def test_drafts_are_the_same_behind_them(target_path: Path, drafter_path: Path) -> None:
    with load(target_path, draft=drafter_path, context=CONTEXT, threads=1) as engine:
        ids = engine.tokenize("def double(items):\n    return [2 * item for item in items]\n\n" * 8)
        assert len(ids) > 2 * WIDE
        found = []
        for options in ({}, {"prompt_logprobs": True}):
            for drafter in engine.drafter_set.sequences.values():
                drafter.truncate(0)
            engine.slots.own.target.truncate(0)
            result = engine.generate(ids, max_tokens=40, seed=2, depth=3, **options)
            found.append((result.token_ids, result.origins, result.stats.accepted))
    assert found[0] == found[1]
    assert found[0][2] > 5


def test_it_can_be_cancelled_and_asked_again(plain: Engine) -> None:
    ids = plain.tokenize("import os\n" * 150)
    plain.slots.own.target.truncate(0)
    config = GenerationConfig.of(prompt_logprobs=True, max_tokens=0)
    left: list[int] = [2]

    def cancelled() -> bool:
        left[0] -= 1
        return left[0] < 0

    broken = plain.slots.own.start(ids, config, cancelled=cancelled).result()
    assert broken.stop_reason == "cancelled"
    assert broken.prompt_logprobs is not None
    assert 1 < len(broken.prompt_logprobs) < len(ids)
    whole = plain.generate(ids, prompt_logprobs=True, max_tokens=0)
    assert whole.stop_reason == "length"
    known = [each.logprob for each in whole.prompt_logprobs or ()]
    assert len(known) == len(ids)
    assert [each.logprob for each in broken.prompt_logprobs] == known[: len(broken.prompt_logprobs)]


def test_as_json(plain: Engine) -> None:
    asked = plain.generate("a = 1", prompt_logprobs=True, top_logprobs=2, max_tokens=1)
    found = asked.to_dict()["prompt_logprobs"]
    assert [each["id"] for each in found] == [each.id for each in asked.prompt_logprobs or ()]
    assert found[0] == {"id": found[0]["id"], "logprob": None, "top": []}
    assert [len(each["top"]) for each in found[1:]] == [2] * (len(found) - 1)
    assert "prompt_logprobs" not in plain.generate("a = 1", max_tokens=1).to_dict()


def test_many_are_not_kept(plain: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = plain.tokenize("import os\n" * 100)[:150]
    monkeypatch.setattr(slot, "_MOST_KEPT", 4 * len(ids))
    for top, evaluated in ((2, WIDE + 1), (4, len(ids))):
        for _ in range(2):
            found = plain.generate(ids, prompt_logprobs=True, top_logprobs=top, max_tokens=0)
        assert found.stats.prompt_evaluated == evaluated


def test_texts_of_prompts(plain: Engine) -> None:
    text = "print('naïve')\n"
    found = plain.generate(text, prompt_logprobs=True, max_tokens=0).prompt_logprobs
    assert found and "".join(each.text for each in found) == text


def test_beside_another_text(target_path: Path) -> None:
    """Both are those that each has alone, to the last digit where passes are reproducible."""
    options: dict[str, Any] = {"context": CONTEXT, "threads": 1, "texts": 2, "reproducible": True}
    with load(target_path, draft="none", **options) as engine:
        ids = engine.tokenize("def first(items):\n    return items[0]\n\n" * 12)
        other = engine.tokenize("class Stack:\n")
        asked: dict[str, Any] = {"max_tokens": 60, "seed": 5, "prompt_logprobs": True}
        alone = []
        for prompt in (other, ids):
            alone.append(engine.generate(prompt, **asked))
            engine.slots.own.target.truncate(0)
        both = engine.generate([other, ids], **asked)
    for found, wanted in zip(both, alone, strict=True):
        assert found.token_ids == wanted.token_ids
        assert found.prompt_logprobs == wanted.prompt_logprobs


def test_no_tokens_are_asked_for_only_with_them() -> None:
    with pytest.raises(InvalidValueError, match="max_tokens is 0; it must be at least 1"):
        GenerationConfig.of(max_tokens=0)
    assert GenerationConfig.of(max_tokens=0, prompt_logprobs=True).max_tokens == 0


def test_images_have_none(plain: Engine) -> None:
    image = MediaToken(-5, cast(Any, None), 0)
    config = GenerationConfig.of(prompt_logprobs=True)
    with pytest.raises(InvalidValueError, match="prompt_logprobs is True; it must be False beside"):
        plain.slots.own.start([1, image, 5], config)
