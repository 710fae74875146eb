"""The engines that a benchmark compares use the weights of one target, where that is."""

from pathlib import Path

import pytest
from fakes.mtp import write_target

from localspec.bench.configurations import Sweep
from localspec.bench.prompt_sets import Task
from localspec.cli.demo_comparison import DemoComparison
from localspec.drafters.spec import parse_draft
from localspec.engine.engine import Engine, load_with
from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.request import MemoryPlan

PROMPT = "def fibonacci(n):"
TASKS = [Task("code", 1, PROMPT)]
RUNTIME = RuntimeConfig(threads=1, context=256)


def loaded(path: Path, draft: str, weights: Model | None = None) -> Engine:
    return load_with(EngineConfig(path, parse_draft(draft), RUNTIME, weights=weights))


def text_of(engine: Engine) -> list[int]:
    found = engine.generate(PROMPT, max_tokens=24, seed=2, ignore_eos=True)
    return list(found.token_ids)


def test_all_engines_of_a_sweep_have_one_target(target_path: Path, drafter_path: Path) -> None:
    sweep = Sweep(target_path, drafter_path, ["suffix", "model", "auto"], [None])
    with sweep.load(RUNTIME, TASKS, 24) as loaded:
        engines = list(dict.fromkeys(each.engine for each in loaded.configurations))
        assert len(engines) == 4
        assert len({each.model for each in engines}) == 1
        assert len({tuple(text_of(each)) for each in engines}) == 1
        engines[1].close()
        assert text_of(engines[0]) == text_of(engines[2])
        model = engines[0].model
    with pytest.raises(LocalspecError, match="was closed"):
        _ = model.handle


def test_the_demo_has_one_target(target_path: Path, drafter_path: Path) -> None:
    with DemoComparison(target_path, drafter_path, threads=1, context=256) as comparison:
        plain, speculative = (each.engine for each in comparison.decodings)
        assert plain.model is speculative.model
        assert plain.notes == speculative.notes == ()
        assert text_of(plain) == text_of(speculative)


def test_heads_inside_need_weights_of_their_own(tmp_path: Path) -> None:
    path = write_target(tmp_path / "target.gguf")
    with (
        loaded(path, "none") as plain,
        loaded(path, "mtp", plain.model) as engine,
        loaded(path, "suffix", plain.model) as other,
    ):
        assert engine.model is not plain.model
        assert other.model is plain.model
        engine.switch(draft="suffix")
        assert text_of(engine) == text_of(other) == text_of(plain)


def test_weights_that_are_there_are_not_counted(
    target_path: Path, drafter_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = target_path.stat().st_size
    with loaded(target_path, "none") as plain:
        # Room for the caches and a draft model, not for the target beside them.
        free = FreeMemory({HOST: 2 * size})
        monkeypatch.setattr("localspec.memory.memory_plan.free_memory", lambda *_: free)
        with pytest.raises(ModelLoadError, match="would need"):
            loaded(target_path, str(drafter_path))
        with loaded(target_path, str(drafter_path), plain.model) as engine:
            assert text_of(engine) == text_of(plain)


def test_what_has_no_room_where_the_target_is_is_refused(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = MemoryPlan(
        ContextParams(256), "f16", notes=("all of it is elsewhere",), placement=ON_PROCESSOR
    )
    with loaded(target_path, "none") as plain:
        monkeypatch.setattr("localspec.loading.drafter_plan.memory_plan", lambda _: moved)
        with pytest.raises(ModelLoadError, match=r"no room beside another .* is elsewhere"):
            loaded(target_path, "suffix", plain.model)
        assert text_of(plain)
