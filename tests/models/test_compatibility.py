"""What is checked of a target and a drafter beside their vocabularies."""

from pathlib import Path

import pytest
from fakes.tiny import write_tiny
from fakes.vocabularies import words, write_model

from localspec.models.compatibility import checks
from localspec.models.suggestions import text_model
from localspec.models.vocabulary_match import CheckResult, failed_check


@pytest.mark.parametrize(
    ("families", "verdict", "detail"),
    [
        (("llama", "qwen3moe"), CheckResult.FITS, "attention: any last"),
        (
            ("qwen35", "mamba"),
            CheckResult.HARMLESS,
            "hybrid, recurrent: the target and the drafter",
        ),
        (("mamba", "llama"), CheckResult.HARMLESS, "recurrent, attention: the target must copy"),
        (("llama", "qwen35"), CheckResult.HARMLESS, "attention, hybrid: the drafter must copy"),
    ],
)
def test_running_states_are_copied(
    families: tuple[str, str], verdict: CheckResult, detail: str, tmp_path: Path
) -> None:
    target, drafter = (
        text_model(write_tiny(tmp_path / f"{family}.gguf", family)) for family in families
    )
    [rollback] = [each for each in checks(target, drafter) if each.name == "rollback"]
    assert rollback.verdict is verdict and rollback.detail.startswith(detail)


def test_a_sliding_window_fits(tmp_path: Path) -> None:
    target, drafter = (
        text_model(write_tiny(tmp_path / f"{family}.gguf", family))
        for family in ("gemma3", "qwen3")
    )
    [rollback] = [each for each in checks(target, drafter) if each.name == "rollback"]
    assert rollback.verdict is CheckResult.FITS
    assert rollback.detail.startswith("sliding window, attention")


def test_a_context_is_the_targets_own_unless_another_is_wanted(tmp_path: Path) -> None:
    target = text_model(write_model(tmp_path / "target.gguf", words(), layers=4, context=512))
    drafter = text_model(write_model(tmp_path / "drafter.gguf", words(), layers=1, context=512))
    assert failed_check(checks(target, drafter)) is None
    [found] = [each for each in checks(target, drafter, 600) if each.name == "context"]
    assert found.verdict is CheckResult.HARMLESS and found.detail.startswith("600 tokens")
