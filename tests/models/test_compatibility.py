"""What is checked of a target and a drafter beside their vocabularies."""

from pathlib import Path

import pytest
from fakes.tiny import write_tiny
from fakes.vocabularies import words, write_model

from localspec.errors import ModelLoadError
from localspec.gguf.facts import facts_of
from localspec.llama.context_params import ContextParams
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.memory_plan import memory_plan
from localspec.memory.request import MemoryRequest
from localspec.models import compatibility
from localspec.models.compatibility import checks
from localspec.models.registry import bundled
from localspec.models.suggestions import text_model
from localspec.models.vocabulary_match import Check, CheckResult, failed_check


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


CONTEXT = 4096


def memory_check(free: int, monkeypatch: pytest.MonkeyPatch, context: int | None) -> Check:
    """What is said of the bundled pair on a machine with so many free bytes."""
    monkeypatch.setattr(compatibility, "free_memory", lambda: FreeMemory({HOST: free}))
    found = checks(*map(facts_of, bundled()), context)
    return next(each for each in found if each.name == "memory")


def test_memory_that_is_ample_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    check = memory_check(2**40, monkeypatch, CONTEXT)
    assert check.verdict is CheckResult.FITS
    assert check.detail.endswith(" MB for both at 4,096 tokens, 1.10 TB free")


@pytest.mark.parametrize("context", [CONTEXT, None])
@pytest.mark.parametrize("free", [0, 40_000_000, 60_000_000, 80_000_000, 100_000_000])
def test_memory_is_short_for_a_pair_when_it_is_for_loading(
    context: int | None, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = memory_check(free, monkeypatch, context)
    target, drafter = map(facts_of, bundled())
    request = MemoryRequest(
        target=target,
        drafters=(drafter,),
        context=ContextParams(context or target.header.context_length or 0),
        fixed_context=context is not None,
    )
    try:
        plan = memory_plan(request, FreeMemory({HOST: free}))
    except ModelLoadError:
        assert check.verdict is CheckResult.UNFIT
    else:
        assert check.verdict is (CheckResult.HARMLESS if plan.notes else CheckResult.FITS)
        assert not plan.notes or check.detail == "; ".join(plan.notes)
