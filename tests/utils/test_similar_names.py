"""Which names a mistyped or abbreviated one may mean."""

import pytest

from localspec.utils.similar_names import did_you_mean, similar_names

OPTIONS = ["--temperature", "--stop", "--stream", "--ctx", "--gpu-layers", "--max-tokens", "--help"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--temp", ["--temperature"]),
        ("--st", ["--stop", "--stream"]),
        ("--max_tokens", ["--max-tokens"]),
        ("--ctx-size", ["--ctx"]),
        ("--layers", ["--gpu-layers"]),
        ("--tempreature", ["--temperature"]),
        ("--HELP", ["--help"]),
        ("--", []),
        ("--colour", []),
    ],
)
def test_similar_names(typed: str, meant: list[str]) -> None:
    assert similar_names(typed, OPTIONS) == meant


def test_did_you_mean() -> None:
    assert did_you_mean("--st", OPTIONS) == "did you mean --stop or --stream?"
    assert did_you_mean("--st", OPTIONS, most=1) == "did you mean --stop?"
    assert did_you_mean("--colour", OPTIONS) == ""
