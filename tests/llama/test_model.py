"""Model: tokens and text of the bundled vocabulary."""

import pytest

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
    assert target_model.ends(target_model.eos)
    assert not target_model.ends(target_model.tokenize("a")[1])
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
