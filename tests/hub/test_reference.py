"""References: what is a repository of the Hub, and what is none."""

import pytest
from huggingface_hub.utils import HFValidationError, validate_repo_id
from hypothesis import assume, given
from hypothesis import strategies as st

from localspec.hub.reference import Repository, repository

# As names of the Hub are: no dot or hyphen at either end, none of them doubled.
_NAMES = st.from_regex(r"[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*", fullmatch=True).filter(
    lambda name: len(name) <= 40
)
_QUANTS = st.from_regex(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)?", fullmatch=True)


@given(_NAMES, _NAMES, st.none() | _QUANTS)
def test_a_reference_is_read_as_it_is_written(user: str, name: str, quant: str | None) -> None:
    assume(not name.lower().endswith(".gguf") and user not in ("hf.co", "huggingface.co"))
    reference = Repository(f"{user}/{name}", quant)
    assert repository(str(reference)) == reference
    for prefix in ("hf.co/", "huggingface.co/", "https://huggingface.co/"):
        assert repository(f"{prefix}{reference}") == reference


def _is_allowed(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


@given(st.text("aB1._-", min_size=1, max_size=5), st.text("aB1._-", min_size=1, max_size=5))
def test_names_are_repositories_where_the_hub_allows_them(user: str, name: str) -> None:
    text = f"{user}/{name}"
    assert repository(text) == (Repository(text) if _is_allowed(text) else None)


@pytest.mark.parametrize("ending", [".git", ".gguf"])
def test_two_endings_are_never_those_of_repositories(ending: str) -> None:
    assert repository("user/repo") and repository(f"user/repo{ending}") is None


@pytest.mark.parametrize(
    "text",
    [
        "model.gguf",
        "models/model.gguf",
        "models/model.GGUF",
        "models/model.gguf:Q8_0",
        "./models/model",
        "../models/model",
        "~/models",
        "/models/model",
        "models\\model",
        "C:\\models\\model",
        "three/parts/here",
        "user/repo:",
        "user/repo:Q4:K",
        "user/repo Q8_0",
        "user/-repo",
        "user/re--po",
        "user/re..po",
        "user/",
        "/repo",
        "user",
        "",
    ],
)
def test_paths_and_what_the_hub_does_not_allow_are_no_repositories(text: str) -> None:
    assert repository(text) is None


def test_a_slash_at_the_end_of_an_address_does_not_matter() -> None:
    assert repository("https://huggingface.co/Qwen/Qwen3-8B-GGUF/") == repository(
        "Qwen/Qwen3-8B-GGUF"
    )
