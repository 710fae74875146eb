"""A wide pass before a server is ready, once for each model that is on a GPU."""

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from fakes.failing_device import device_fails

import localspec
from localspec.llama.context import Context
from localspec.loading import warm_up
from localspec.speculation.passes import Pass, Scores

OPTIONS = {"max_tokens": 12, "seed": 3}


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The models and rows of the decodes."""
    decode, seen = Context.decode, list[tuple[str, int]]()

    def counted(self: Context, passes: Sequence[Pass]) -> list[Scores]:
        seen.append((self.model.path.name, sum(map(len, passes))))
        return decode(self, passes)

    monkeypatch.setattr(Context, "decode", counted)
    return seen


def test_each_model_on_a_gpu_is_warmed_up_once(widths: list[tuple[str, int]]) -> None:
    with localspec.load(threads=1, gpu_layers=0) as engine:
        expected = engine.generate("def f", **OPTIONS)  # type: ignore[arg-type]
        models = {engine.model.path.name} | {
            each.model.path.name for each in engine.drafter_set.sequences.values()
        }
        widths.clear()
        engine.warm_up()
        assert not widths, "a processor has nothing to compile"
        for each in (engine.model, *(s.model for s in engine.drafter_set.sequences.values())):
            each.is_offloaded = True
        engine.warm_up()
        assert sorted(widths) == sorted((name, 160) for name in models)
        found = engine.generate("def f", **OPTIONS)  # type: ignore[arg-type]
        assert found.token_ids == expected.token_ids
        widths.clear()
        engine.warm_up()
        assert not widths


def test_a_gpu_computes_wide_passes_without_any_layer(
    monkeypatch: pytest.MonkeyPatch, widths: list[tuple[str, int]]
) -> None:
    """And other attention has other kernels."""
    monkeypatch.setattr(warm_up, "gpus", lambda _: ["0 layers", "a GPU"])
    for number, options in enumerate([{}, {"kv_type": "q8_0"}, {"flash_attention": False}, {}]):
        with localspec.load(draft="none", threads=1, gpu_layers=0, **options) as engine:
            widths.clear()
            engine.warm_up()
            assert len(widths) == (number < 3), options


def test_uniform_passes_need_no_wide_ones(
    monkeypatch: pytest.MonkeyPatch, widths: list[tuple[str, int]]
) -> None:
    """But the drafter reads in passes of its own."""
    monkeypatch.setattr(warm_up, "gpus", lambda _: ["a GPU of this test"])
    with localspec.load(threads=1, gpu_layers=0, reproducible=True) as engine:
        drafters = [each.model.path.name for each in engine.drafter_set.sequences.values()]
        assert drafters
        widths.clear()
        engine.warm_up()
        assert widths == [(name, 160) for name in drafters]


def test_a_device_that_fails_then_is_left_to_the_first_text(
    monkeypatch: pytest.MonkeyPatch, widths: list[tuple[str, int]]
) -> None:
    with localspec.load(draft="none", threads=1, gpu_layers=0, flash_attention=False) as engine:
        engine.model.is_offloaded = True
        monkeypatch.setattr(warm_up, "cache_file", lambda *_: Path("nowhere"))
        stored = Mock()
        monkeypatch.setattr(warm_up, "try_to_store", stored)
        with device_fails(2, later=True):
            engine.warm_up()
        assert not stored.called
        assert widths
        engine.warm_up()
        assert stored.called
