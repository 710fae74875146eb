"""Which drafter a target gets, and what is said when it gets none."""

import shutil
from pathlib import Path

import pytest
from fakes.mamba import write_mamba

from localspec.engine import load
from localspec.errors import DrafterMismatchError, InvalidValueError, ModelNotFoundError


@pytest.fixture(scope="module")
def mamba(tmp_path_factory, target_path) -> Path:  # type: ignore[no-untyped-def]
    return write_mamba(tmp_path_factory.mktemp("models") / "mamba.gguf", target_path)


def test_the_bundled_target_gets_its_own_drafter(drafter_path: Path) -> None:
    with load() as engine:
        assert engine.drafting.drafter is not None
        assert engine.drafting.drafter.name == drafter_path.stem
        assert engine.drafting.model_path == drafter_path
        assert engine.drafting.reason is None


def test_another_target_gets_prompt_lookup_and_says_why(tmp_path: Path, target_path: Path) -> None:
    copy = shutil.copy(target_path, tmp_path / "unknown.gguf")
    with load(copy) as engine:
        assert engine.drafting.drafter is not None
        assert engine.drafting.drafter.name == "lookup"
        assert engine.drafting.reason == "no drafter is known for unknown.gguf"


def test_none_is_none() -> None:
    with load(draft="none") as engine:
        assert engine.drafting.drafter is None
        assert engine.drafting.reason == "drafting was turned off"


def test_a_recurrent_target_decodes_plainly_and_says_why(mamba: Path) -> None:
    with load(mamba) as engine:
        assert engine.drafting.drafter is None
        assert engine.drafting.reason == "this model's cache can forget only everything at once"
        first = engine.generate("def f(x):", max_tokens=24, seed=3)
        again = engine.generate("def f(x):", max_tokens=24, seed=3)
    assert set(first.origins) == {"plain"}
    assert again.token_ids == first.token_ids
    # Nothing of it could be kept.
    assert again.stats.prompt_evaluated == again.stats.prompt_tokens


@pytest.mark.parametrize("draft", ["lookup", "ngram"])
def test_drafting_asked_for_on_a_recurrent_target_is_refused(mamba: Path, draft: str) -> None:
    with pytest.raises(DrafterMismatchError, match="forget only everything at once"):
        load(mamba, draft)


def test_a_recurrent_drafter_is_refused(mamba: Path) -> None:
    with pytest.raises(DrafterMismatchError, match=r"mamba.gguf cannot draft: its cache"):
        load(draft=mamba)


def test_a_target_can_draft_for_itself(target_path: Path) -> None:
    with load(target_path, target_path, threads=1) as engine:
        result = engine.generate("def f(x):", max_tokens=24, temperature=0.8, seed=1)
    assert result.stats.acceptance_rate == 1


def test_what_is_no_drafter_is_named() -> None:
    with pytest.raises(
        ModelNotFoundError, match="there is no drafter 'nothing'; choose auto, none"
    ):
        load(draft="nothing")
    with pytest.raises(InvalidValueError, match="it needs name, begin, propose and observe"):
        load(draft=3)  # type: ignore[arg-type]
