"""Prompts with a gap: the order of their tokens, against one that is spelled out here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.fim import ALL, GAP, Expected, write_fim_model
from fakes.tiny import tiny_model

from localspec.engine.fim_prompt import Snippet, fim_prompt, infill_prompt
from localspec.errors import InvalidValueError
from localspec.llama.model import Model

AHEAD, BEHIND = "DEF F(X):\n  ", "\nPRINT(F)\n"
SNIPPETS = [Snippet("A.PY", "X = 1\n"), Snippet("B.PY", "Y = 2\n")]


@pytest.fixture(params=["by text", "by id", "without BOS", "no names"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Model, Expected]]:
    path = write_fim_model(
        tmp_path / "fim.gguf",
        GAP if request.param == "no names" else ALL,
        by_id=request.param == "by id",
        adds_bos=request.param != "without BOS",
    )
    with Model(path) as model:
        yield model, Expected(path)


def test_the_order_of_a_gap(case: tuple[Model, Expected]) -> None:
    model, expected = case
    wanted = expected.gap(AHEAD, BEHIND)
    assert fim_prompt(model, AHEAD, BEHIND) == wanted
    assert fim_prompt(model, expected.text(AHEAD), BEHIND) == wanted
    assert fim_prompt(model, "", "") == expected.gap("", "")


def test_what_looks_like_a_token_is_text(case: tuple[Model, Expected]) -> None:
    model, expected = case
    mark = expected.name("suf")
    found = fim_prompt(model, f"A{mark}", mark)
    assert found.count(expected["suf"]) == 1
    text = b"".join(model.piece(token) for token in found).decode()
    assert text.removeprefix("<s>") == f"A{mark}{mark}"


def test_the_order_with_other_files(case: tuple[Model, Expected]) -> None:
    model, expected = case
    if "rep" not in expected:
        marker = expected.text("\n\n--- snippet ---\n\n")
        others = [*marker, *expected.text("X = 1\n"), *marker, *expected.text("Y = 2\n")]
    else:
        others = [
            *(expected["rep"], *expected.text("myproject\n")),
            *(expected["sep"], *expected.text("A.PY\nX = 1\n")),
            *(expected["sep"], *expected.text("B.PY\nY = 2\n")),
            *(expected["sep"], *expected.text("filename\n")),
        ]
    found = infill_prompt(
        model, AHEAD, BEHIND, written="RET", snippets=SNIPPETS, context=4096, most_tokens=64
    )
    assert found == [*others, *expected.gap(f"{AHEAD}RET", BEHIND)]


def test_long_texts_are_cut_to_what_is_near_the_gap(case: tuple[Model, Expected]) -> None:
    model, expected = case
    ahead, behind = "XYZ\n" * 1000, "UVW\n" * 1000
    snippets = [Snippet("A.PY", "KLM\n" * 1000)]
    found = infill_prompt(
        model, ahead, behind, written="RET", snippets=snippets, context=4096, most_tokens=96
    )
    # Of 2,048 tokens: three quarters, and a quarter without two tokens and what is written.
    wanted = expected.gap(ahead[-1536:] + "RET", behind[: 512 - 2 - 3])
    assert found[-len(wanted) :] == wanted
    assert len(found) - len(wanted) == 4096 - 2048 - 96
    small = infill_prompt(model, ahead, behind, snippets=snippets, context=64, most_tokens=8)
    assert small[-33:] == expected.gap(ahead[-24:], behind[:6])[-33:]
    assert len(small) < 64


def test_a_model_that_was_not_taught() -> None:
    with Model(tiny_model("llama")) as model:
        for prompt in (lambda: fim_prompt(model, "a", "b"), lambda: _infill(model)):
            with pytest.raises(InvalidValueError, match="cannot fill in the middle"):
                prompt()


def test_a_text_that_is_none(case: tuple[Model, Expected]) -> None:
    with pytest.raises(InvalidValueError, match="no valid Unicode"):
        fim_prompt(case[0], "a", "\ud800")


def _infill(model: Model) -> list[int]:
    return infill_prompt(model, "a", "b", context=512, most_tokens=8)
