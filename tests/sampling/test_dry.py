"""DRY, with llama.cpp's own sampler as the oracle."""

import ctypes
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import llama_cpp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import localspec
from localspec.engine.audit import Recorded, audit
from localspec.engine.recipe import Recipe
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.dry_breakers import breaker_tokens
from localspec.llama.model import Model
from localspec.models import registry
from localspec.sampling.block_maxima import Row
from localspec.sampling.dry import _repeated, dry_penalties
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler

DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
BREAKERS = {
    "usual": ("\n", ":", '"', "*"),
    "none": (),
    "long": ("the", "ls -l", "\n\n", "e"),
    "cut": ("x" * 60, "é", "\x00a"),
    "characters": ("é", "日本", "…\n"),
}
CHOICES = [
    SamplingParams(dry_multiplier=0.8, dry_penalty_last_n=n, dry_base=base, dry_allowed_length=most)
    for n in (3, 40, 400)
    for base in (1.0, 1.75, 1e6)
    for most in (0, 2, 5)
]


@pytest.fixture(scope="module")
def model(own_cache: None):  # type: ignore[no-untyped-def]
    with Model(registry.bundled().target) as model:
        yield model


def llama_dry(model: Model, params: SamplingParams, recent: Sequence[int], row: Row) -> Row:
    """The logits that llama.cpp's sampler makes of a row."""
    texts = [text.encode() for text in params.dry_sequence_breakers]
    made = llama_cpp.llama_sampler_init_dry(
        model._vocab,
        params.dry_multiplier,
        params.dry_base,
        params.dry_allowed_length,
        len(recent) if params.dry_penalty_last_n < 0 else params.dry_penalty_last_n,
        (ctypes.c_char_p * len(texts))(*texts),
        len(texts),
    )
    data = np.zeros(row.size, DATA)
    data["id"], data["logit"] = np.arange(row.size), row
    pointer = data.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
    array = llama_cpp.llama_token_data_array(pointer, data.size, -1, False)
    for token in recent:
        llama_cpp.llama_sampler_accept(made, token)
    llama_cpp.llama_sampler_apply(made, ctypes.byref(array))
    llama_cpp.llama_sampler_free(made)
    return data["logit"].copy()


def our_dry(model: Model, params: SamplingParams, recent: Sequence[int], row: Row) -> Row:
    sampler = Sampler(params, Noise(0))
    # What the text's own prefix remembers, token by token.
    prefix = sampler.prefix(recent[:1])
    for token in recent[1:]:
        prefix = prefix.then(token)
    assert prefix.recent == sampler.prefix(recent).recent
    row = row.copy()
    for token, penalty in dry_penalties(params, prefix.recent).items():
        row[token] -= np.float32(penalty)
    return row


def texts(model: Model, seed: int) -> list[int]:
    """A text with many repetitions, and with pieces of breakers."""
    random = np.random.default_rng(seed)
    few = random.integers(0, model.n_vocab, 3)
    marks = model.tokenize('ls -l: "the" *\n\né', add_special=False, parse_special=False)
    # Tokens of a few bytes begin characters here that other tokens end.
    bytes_ = model.tokenize("é日…è", add_special=False, parse_special=False)
    tokens = [*random.choice([*few, *marks[:3], *bytes_], 60)]
    return [int(token) for token in [*tokens, *marks, *tokens[:20], *marks[2:], *tokens[:7]]]


def resolved(model: Model, params: SamplingParams, breakers: Sequence[str]) -> SamplingParams:
    return SamplingParams(
        dry_multiplier=params.dry_multiplier,
        dry_base=params.dry_base,
        dry_allowed_length=params.dry_allowed_length,
        dry_penalty_last_n=params.dry_penalty_last_n,
        dry_sequence_breakers=breakers,
        dry_breaker_tokens=breaker_tokens(model, breakers),
    )


@pytest.mark.parametrize("breakers", BREAKERS.values(), ids=BREAKERS)
def test_it_is_llama_cpps(model: Model, breakers: Sequence[str]) -> None:
    text, row = texts(model, len(breakers)), np.random.default_rng(9).normal(size=model.n_vocab)
    logits, changed = row.astype(np.float32), 0
    for chosen in CHOICES:
        params = resolved(model, chosen, breakers)
        for size in (2, 30, len(text)):
            expected = llama_dry(model, params, text[:size], logits)
            found = our_dry(model, params, text[:size], logits)
            np.testing.assert_array_equal(found, expected)
            changed += int((expected != logits).any())
    assert changed > 20


def test_breakers_that_cut_characters_are_llama_cpps_too(model: Model) -> None:
    """What must follow each token is compared by what it leaves of a repetition."""
    logits, changed = np.zeros(model.n_vocab, np.float32), 0
    pieces = model.tokenize("é日…", add_special=False, parse_special=False)
    params = resolved(model, SamplingParams(dry_multiplier=1), BREAKERS["characters"])
    for last in pieces:
        text = [5, 6, 7, 8, last, 5, 6, 7, 8, last]
        expected = llama_dry(model, params, text, logits)
        np.testing.assert_array_equal(our_dry(model, params, text, logits), expected)
        changed += int((expected != 0).any())
    assert changed > 0


@given(st.lists(st.integers(0, 2), min_size=2, max_size=300), st.sampled_from([1, 64, 65, 10**6]))
def test_repetitions_are_as_long_as_they_are(tokens: list[int], most: int) -> None:
    """Long ones are found by another algorithm."""
    for each in (tokens, tokens * 3, [1] * len(tokens)):
        expected = [
            next((n for n, (a, b) in enumerate(zip(each[at:], each, strict=False)) if a != b), None)
            for at in range(1, len(each))
        ]
        whole = [len(each) - at for at in range(1, len(each))]
        lengths = [
            min(most, room if length is None else length)
            for length, room in zip(expected, whole, strict=True)
        ]
        assert _repeated(np.array(each, np.int64), most).tolist() == lengths


@pytest.mark.parametrize("base", [1.0000009, 1.75, 1e39, 1e300])
@pytest.mark.parametrize("multiplier", [1, 1e300])
def test_the_whole_text_is_read_where_that_is_asked_for(
    model: Model, base: float, multiplier: float
) -> None:
    """Also with numbers that grow hardly at all, or beyond what a float32 holds."""
    text, logits = texts(model, 3), np.zeros(model.n_vocab, np.float32)
    chosen = SamplingParams(dry_multiplier=multiplier, dry_base=base, dry_penalty_last_n=-1)
    params = resolved(model, chosen, ())
    expected = llama_dry(model, params, text, logits)
    np.testing.assert_array_equal(our_dry(model, params, text, logits), expected)
    assert params.window == -1 and (expected != 0).any()


def test_the_longest_breaker_that_begins_at_a_token_counts() -> None:
    """As of "\\n" and "\\n\\n": what is behind the longer one is no part of a repetition."""
    params = SamplingParams(dry_multiplier=1, dry_base=2, dry_allowed_length=1)
    tail = [8, 1, 9, 7, 8, 1]
    for tails, length in (((),), 2), (((8,),), 1), (((), (8,)), 1), (((8,), ()), 1):
        broken = replace(params, dry_breaker_tokens={7: tails})
        assert dry_penalties(broken, tail) == {9: 2 ** (length - 1)}


def test_no_repetition_goes_beyond_a_breaker_at_the_end() -> None:
    text = [7, 8, 9, 7, 8]
    whole = SamplingParams(dry_multiplier=1, dry_allowed_length=1)
    assert dry_penalties(whole, text).keys() == {9}
    assert dry_penalties(replace(whole, dry_breaker_tokens={7: ((8,),)}), text) == {}


@pytest.mark.parametrize("last", [0, 1, 3, 4, 40])
def test_it_reads_no_more_than_its_own_window(model: Model, last: int) -> None:
    """Penalties may remember a longer text; of an empty one there is nothing to repeat."""
    logits = np.zeros(model.n_vocab, np.float32)
    params = SamplingParams(dry_multiplier=1, dry_allowed_length=0, dry_penalty_last_n=last)
    for text in ([], [5, 6, 5, 7, 5, 6, 5]):
        found = logits.copy()
        for token, penalty in dry_penalties(params, text).items():
            found[token] -= np.float32(penalty)
        np.testing.assert_array_equal(found, llama_dry(model, params, text, logits))


def test_what_penalties_and_it_read_are_both_remembered() -> None:
    both = SamplingParams(dry_multiplier=1, dry_penalty_last_n=9, repeat_penalty=2)
    assert (both.window, SamplingParams(dry_multiplier=1).window) == (64, 64)
    assert replace(both, penalty_window=-1).window == -1
    for penalty in ("repeat_penalty", "presence_penalty", "frequency_penalty"):
        assert SamplingParams(**{penalty: 1.5}, penalty_window=7).window == 7
    assert SamplingParams(dry_multiplier=1, dry_penalty_last_n=0).window == 0
    assert SamplingParams().window == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"dry_multiplier": -1},
        {"dry_base": 0.5},
        {"dry_allowed_length": -1},
        {"dry_penalty_last_n": -2},
        {"dry_sequence_breakers": [""]},
        {"dry_sequence_breakers": "ab"},
        {"dry_sequence_breakers": ["a", "b\ud800"]},
    ],
    ids=str,
)
def test_values_that_mean_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        GenerationConfig.of(**wrong)


BREAKERS_NAME = "dry_sequence_breakers"
SETTINGS: dict[str, Any] = {
    "dry_multiplier": 2.0,
    "dry_allowed_length": 1,
    "dry_penalty_last_n": -1,
    BREAKERS_NAME: [":"],
}


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_drafts_do_not_change_a_text_with_it(temperature: float, own_cache: None) -> None:
    """On the bundled pair; it changes the text, and an audit finds it again."""
    settings: dict[str, Any] = {"temperature": temperature, "seed": 5, "max_tokens": 48}
    settings |= {"ignore_eos": True, "logprobs": True}
    with localspec.load(threads=1) as engine:
        prompt = "ls -l\nls -l\nls -l\n"
        alone = engine.generate(prompt, depth=0, **settings, **SETTINGS)
        free = engine.generate(prompt, depth=0, **settings)
        assert alone.token_ids != free.token_ids
        # A newline ends repetitions, unless other breakers are named.
        lines = engine.generate(prompt, depth=0, **settings, **{**SETTINGS, BREAKERS_NAME: None})
        assert lines.token_ids == free.token_ids
        for depth in (2, 5):
            drafted = engine.generate(prompt, depth=depth, **settings, **SETTINGS)
            assert drafted.token_ids == alone.token_ids
            assert drafted.stats.accepted > 0
        stream = engine.stream(prompt, depth=5, **settings, **SETTINGS)
        result = stream.result()
        record = json.loads(json.dumps(asdict(engine.recipe(stream))))
        assert record["sampling"][BREAKERS_NAME] == [":"]
        recorded = Recorded(
            Recipe.read(record), result.token_ids, result.origins, result.seed, result.rule
        )
        report = audit(engine, recorded)
        assert not report.has_bug and report.tokens == 48
        # Without it, the text is another one.
        record["sampling"]["dry_multiplier"] = 0
        assert audit(engine, replace(recorded, recipe=Recipe.read(record))).has_bug
        pairs = [*pairwise(alone.token_ids)]
        assert len({*pairs}) > len({*pairwise(free.token_ids)})
