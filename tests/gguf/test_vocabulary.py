"""A vocabulary read from the header is the one the library reads."""

from pathlib import Path

import pytest
from fakes.vocabularies import words, write_model

from localspec.gguf.reader import read_header
from localspec.gguf.vocabulary import TOKENIZER_NAMES, HeaderVocabulary
from localspec.llama.model import Model

NAMES = ("vocabulary_type", "n_vocab", "bos", "eos", "adds_bos", "adds_eos")
NEWLINE = {0: "\\n"}


def vocabulary(path: Path) -> HeaderVocabulary:
    return HeaderVocabulary(read_header(path))


def assert_as_loaded(path: Path) -> None:
    found = vocabulary(path)
    with Model(path) as model:
        for name in NAMES:
            assert getattr(found, name) == getattr(model, name), name
        assert found.fingerprint == model.vocabulary_fingerprint
        texts = [model.token_text(token) for token in range(model.n_vocab)]
        assert [found.token_text(token) for token in range(found.n_vocab)] == texts


def test_the_bundled_pair(target_path: Path, drafter_path: Path) -> None:
    assert_as_loaded(target_path)
    assert_as_loaded(drafter_path)


@pytest.mark.parametrize(
    ("tokenizer", "pre", "keys"),
    [
        ("llama", None, {}),
        ("llama", None, {"ggml__add_bos_token": False, "ggml__add_eos_token": True}),
        ("llama", None, {"ggml__bos_token_id": 7, "ggml__eos_token_id": 9}),
        ("gpt2", None, {}),
        ("gpt2", "gpt-2", {"ggml__add_bos_token": True, "ggml__bos_token_id": 0}),
        ("gpt2", "gpt-2", {"ggml__eos_token_id": 12, "ggml__add_eos_token": True}),
        ("gpt2", "qwen2", {}),
        ("gpt2", "llama-bpe", {}),
        ("gpt2", "llama-bpe", {"ggml__add_bos_token": False}),
        ("gpt2", "tekken", {}),
        ("gpt2", "chameleon", {}),
        ("gpt2", "glm4", {}),
        ("gpt2", "glm4", {"ggml__bos_token_id": 3}),
        ("gpt2", "gemma4", {"ggml__bos_token_id": 2, "ggml__add_bos_token": False}),
        ("gemma4", None, {"ggml__eos_token_id": 1, "ggml__bos_token_id": 2}),
        ("bert", None, {}),
        ("t5", None, {}),
        ("t5", None, {"ggml__add_bos_token": True, "ggml__bos_token_id": 4}),
        ("rwkv", None, {}),
        ("gpt2", "gpt-2", {"ggml__bos_token_id": 600}),  # which there is not
    ],
)
def test_what_the_file_leaves_open_is_as_in_the_library(
    tokenizer: str, pre: str | None, keys: dict[str, int | bool | str], tmp_path: Path
) -> None:
    tokens = words(changed=NEWLINE if tokenizer == "rwkv" else {})
    path = write_model(tmp_path / "tiny.gguf", tokens, tokenizer=tokenizer, pre=pre, **keys)
    assert_as_loaded(path)


@pytest.mark.parametrize("tokenizer", ["llama", "gpt2", "bert"])
def test_tokens_a_small_vocabulary_has_not_are_none(tokenizer: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf", words(2), tokenizer=tokenizer)
    assert_as_loaded(path)
    assert vocabulary(path).eos == -1


def test_tokens_that_are_no_text(tmp_path: Path) -> None:
    tokens = [*map(str.encode, words(20)), b"\xff\xfe", b"end\0ed", b""]
    path = write_model(tmp_path / "tiny.gguf", tokens, tokenizer="llama", pre=None)
    assert_as_loaded(path)
    assert [vocabulary(path).token_text(token) for token in (20, 21, 22)] == [
        *(b"\xff\xfe", b"end", b"[EMPTY_22]")
    ]


def test_special_tokens_are_named_or_told_by_their_spelling(tmp_path: Path) -> None:
    tokens = words(changed={30: "<|im_end|>", 31: "<|eom_id|>"})
    spelt = write_model(tmp_path / "spelt.gguf", tokens, ggml__eos_token_id=40)
    assert vocabulary(spelt).special == {"bos": 11, "eos": 40, "eot": 30, "eom": 31}
    named = write_model(tmp_path / "named.gguf", tokens, ggml__eot_token_id=50)
    assert vocabulary(named).special["eot"] == 50


def test_fingerprints_tell_vocabularies_apart(tmp_path: Path) -> None:
    paths = [
        write_model(tmp_path / f"{count}.gguf", words(count, changed))
        for count, changed in [(600, {}), (601, {}), (602, {300: "other"})]
    ]
    assert len({vocabulary(path).fingerprint for path in paths}) == 3


def test_every_kind_of_tokenizer_has_a_name(tmp_path: Path) -> None:
    found = vocabulary(write_model(tmp_path / "tiny.gguf", words(), tokenizer="t5", pre=None))
    assert TOKENIZER_NAMES[found.vocabulary_type] == "UGM"


def test_a_tokenizer_nobody_knows_is_none(tmp_path: Path) -> None:
    found = vocabulary(write_model(tmp_path / "tiny.gguf", words(), tokenizer="new", pre=None))
    assert TOKENIZER_NAMES[found.vocabulary_type] == "none"
    assert found.special == {} and found.adds_bos is False
