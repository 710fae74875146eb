"""Model: tokens and text, of the bundled vocabulary and of tiny ones."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import tiny
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import LocalspecError
from localspec.llama.model import Model


@pytest.mark.parametrize(
    "text", ["def f(x):\n    return x", "π ≈ 3.14159 — naïve 日本語 🦙", "\x00\x7f", " " * 40]
)
def test_pieces_make_the_text_again(target_model: Model, text: str) -> None:
    tokens = target_model.tokenize(text, add_special=False)
    assert b"".join(target_model.piece(token) for token in tokens).decode() == text


def test_special_tokens(target_model: Model) -> None:
    assert target_model.tokenize("a")[0] == target_model.bos == 0
    assert target_model.tokenize("<|im_end|>", add_special=False) == [target_model.eos]
    assert target_model.ends_generation(target_model.eos)
    assert not target_model.ends_generation(target_model.tokenize("a")[1])
    assert target_model.piece(target_model.eos) == b""
    assert target_model.piece_text(target_model.eos) == "<|im_end|>"


def test_a_long_text_is_tokenized_whole(target_model: Model) -> None:
    text = "x = 1\n" * 5000
    tokens = target_model.tokenize(text, add_special=False)
    assert b"".join(target_model.piece(token) for token in tokens).decode() == text


def test_a_closed_model_says_so(target_path) -> None:  # type: ignore[no-untyped-def]
    model = Model(target_path)
    model.close()
    model.close()
    for use in (lambda: model.handle, lambda: model.tokenize("a"), lambda: model.piece(5)):
        with pytest.raises(LocalspecError, match="closed"):
            use()


def test_a_model_is_not_freed_while_its_tokens_are_counted(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    model, tokenize = Model(target_path), Model.tokenize

    def held(self: Model, text: str, **options: bool) -> list[int]:
        counting.set()
        assert go_on.wait(60)
        return tokenize(self, text, **options)

    def close() -> None:
        model.close()
        closed.set()

    monkeypatch.setattr(Model, "tokenize", held)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(model.count_tokens("ls -l"))),
        threading.Thread(target=close),
    ]
    threads[0].start()
    assert counting.wait(60)
    threads[1].start()
    assert not closed.wait(0.2)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert closed.is_set() and found[0] > 1
    with pytest.raises(LocalspecError, match="closed"):
        model.count_tokens("ls -l")


# Texts that go on from others.

# Of these SentencePiece makes words with and without the space in front, which can be spelt.
PIECES = ["▁", "a", "r", "n", "▁a", "ar", "▁ar", "arn", "▁▁", "▁n", "\n", "\n\n"]


@pytest.fixture(scope="module")
def models(
    target_model: Model, drafter_model: Model, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Model]]:
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "_WORDS", [*PIECES, *tiny._WORDS[len(PIECES) :]])
        paths = {
            family: tiny.write_tiny(folder / f"{family}.gguf", family)
            for family in ("llama", "qwen3")
        }
    with Model(paths["llama"]) as llama, Model(paths["qwen3"]) as qwen3:
        yield {"llama": llama, "qwen3": qwen3, "target": target_model, "drafter": drafter_model}


def spelt(model: Model, tokens: list[int]) -> str:
    return b"".join(model.piece(token) for token in tokens).decode()


NAMES = st.sampled_from(["llama", "qwen3", "target", "drafter"])
TEXTS = st.text(
    st.sampled_from("arn \né€𝄞") | st.characters(exclude_categories=["Cs"]), max_size=12
)


@given(name=NAMES, before=TEXTS, text=TEXTS)
def test_a_text_that_goes_on_is_spelt_as_it_is(
    models: dict[str, Model], name: str, before: str, text: str
) -> None:
    model = models[name]
    first = model.tokenize(before)
    tokens = first + model.tokenize_after(text)
    # A vocabulary of this kind cannot tell its own mark from the space that it stands for.
    seen, meant = (each.replace("▁", " ") for each in (spelt(model, tokens), text))
    assert seen == spelt(model, first).replace("▁", " ") + meant


def test_no_space_is_put_in_front(models: dict[str, Model]) -> None:
    llama = models["llama"]
    assert spelt(llama, llama.tokenize("arn ar", add_special=False)) == " arn ar"
    after = llama.tokenize_after("arn ar")
    assert [llama.piece(token) for token in after] == [b"arn", b" ar"]
    assert [llama.piece(token) for token in llama.tokenize_after(" ar")] == [b" ar"]
    assert [llama.piece(token) for token in llama.tokenize_after("\n\nar")] == [b"\n\n", b"ar"]
    assert [llama.piece(token) for token in llama.tokenize_after("rn")] == [b"r", b"n"]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A SentencePiece vocabulary in which a tag is a control token, and one its author's own."""
    words = [*PIECES, "<own>", "<ctl>"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "_WORDS", [*words, *tiny._WORDS[len(words) :]])
        patch.setattr(tiny, "_TYPES", {"<own>": 4, "<ctl>": 3})
        path = tiny.write_tiny(tmp_path_factory.mktemp("tagged") / "tagged.gguf", "llama")
    with Model(path) as model:
        yield model


TAGGED = st.text(st.sampled_from("arn \né"), max_size=4) | st.sampled_from(["<own>", "<ctl>"])


@given(st.lists(TAGGED, max_size=6).map("".join), st.booleans())
def test_no_space_is_put_behind_a_special_token_that_the_model_would_write(
    tagged: Model, text: str, parse_special: bool
) -> None:
    tokens = tagged.spell_after(text, parse_special=parse_special)
    assert "".join(map(tagged.piece_text, tokens)).replace("\ufffd\ufffd", "é") == text
    control = tagged.tokenize("<ctl>", add_special=False)[0]
    assert tokens.count(control) == (text.count("<ctl>") if parse_special else 0)


def test_what_the_model_would_write_has_the_longest_tokens(tagged: Model) -> None:
    assert spelt(tagged, tagged.tokenize_after("<own> arn")) == "<own>  arn"
    tokens = tagged.spell_after("<own> arn\n<ctl>\n\nar")
    pieces = [tagged.piece_text(token) for token in tokens]
    assert pieces == ["<own>", " ar", "n", "\n", "<ctl>", "\n\n", "ar"]


def test_characters_that_are_not_in_the_vocabulary_do_not_respell_the_others(tagged: Model) -> None:
    """Its own mark is read as a space, whatever is done."""
    assert spelt(tagged, tagged.spell_after("ar▁<own>▁ar")) == "ar <own> ar"


def test_nothing_goes_on_as_nothing(models: dict[str, Model]) -> None:
    assert [model.tokenize_after("") for model in models.values()] == [[]] * 4


@pytest.mark.parametrize("text", ["</s>ar", "</s>\nar", "</s>", "<s> ar"])
def test_behind_a_special_token_all_is_as_in_a_text_of_its_own(
    models: dict[str, Model], text: str
) -> None:
    for model in (models["llama"], models["qwen3"]):
        assert model.tokenize_after(text) == model.tokenize(text, add_special=False)
        assert model.tokenize_after(text)[0] in (model.bos, model.eos)


def test_a_special_token_further_on_keeps_what_follows_it(models: dict[str, Model]) -> None:
    llama = models["llama"]
    alone = llama.tokenize("ar</s>ar", add_special=False)
    assert spelt(llama, alone) == " ar ar"
    after = llama.tokenize_after("ar</s>ar")
    assert spelt(llama, after) == "ar ar"
    assert after[-2:] == alone[-2:]


def test_no_bos_in_the_middle(models: dict[str, Model]) -> None:
    for model in models.values():
        assert model.tokenize("ar")[0] == model.bos
        assert model.bos not in model.tokenize_after("ar")
