"""The trial of passes finds which of them give a token logits of equal bits, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.tiny import write_tiny
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.llama.batch_invariance import logits_by
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.digits_probe import CELLS, _Trial, find_equal_digits
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.probe_cache import OTHER, OWN, ProbeCache, Rows
from localspec.speculation.equal_digits import EqualDigits

CACHE = ContextParams(CELLS, flash_attention=True)
# Enough for everything on any machine.
LONG = 60.0


@pytest.fixture(scope="module")
def float_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Of 32-bit weights, for which CPUs have a kernel for one row and another for several."""
    path: Path = tmp_path_factory.mktemp("float") / "llama.gguf"
    with Model(write_tiny(path, "llama", quantised=False), ON_PROCESSOR) as model:
        yield model


def find(model: Model, *, flash: bool, threads: int = 1) -> EqualDigits:
    found = find_equal_digits(
        model, replace(CACHE, threads=threads, flash_attention=flash), budget=LONG
    )
    assert found
    return found


@pytest.mark.parametrize("flash", [True, False])
def test_it_finds_what_passes_of_a_context_show(
    flash: bool, target_model: Model, drafter_model: Model, float_model: Model
) -> None:
    for model in (target_model, drafter_model, float_model):
        groups = find(model, flash=flash).groups
        tried = sorted(width for group in groups for width in group)
        assert {1, 2, 4, 8, 16} <= {*tried}
        with single_sequence(
            model, ContextParams(n_ctx=1024, threads=1, flash_attention=flash)
        ) as context:
            truth = {width: logits_by(context, width, 600, 48) for width in tried}
        for one, other in combinations(tried, 2):
            if one == 1 and not flash:
                continue  # of one row without flash attention, few tokens show the rounding
            same = any({one, other} <= {*group} for group in groups)
            agree = np.array_equal(truth[one], truth[other])
            assert same == agree, (model.path.name, one, other)


def test_one_row_of_a_long_text_depends_on_threads(target_model: Model) -> None:
    """Attention of one row is split among threads from 512 cells on: the trial is long enough."""
    found = find(target_model, flash=True, threads=2)
    assert found.behind >= 512
    with single_sequence(
        target_model, ContextParams(n_ctx=1024, threads=2, flash_attention=True)
    ) as context:
        one, two = (logits_by(context, width, 600, 16) for width in (1, 2))
    assert any({1, 2} <= {*group} for group in found.groups) == np.array_equal(one, two)


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Changes the last bit of a logit in the passes that a test names."""
    evaluate = ProbeCache.evaluate

    def alter(is_other: Any) -> None:
        def changed(cache: ProbeCache, *parts: Rows) -> NDArray[np.float32]:
            logits = evaluate(cache, *parts).copy()
            if is_other(cache, *parts):
                logits[:, 7] = np.nextafter(logits[:, 7], np.float32(np.inf))
            return logits

        monkeypatch.setattr(ProbeCache, "evaluate", changed)

    return alter


@pytest.mark.slow
def test_a_single_bit_separates_widths(altered: Any, target_model: Model) -> None:
    altered(lambda _cache, *parts: sum(len(tokens) for _, tokens in parts) in (3, 8))
    assert find(target_model, flash=True).groups == ((1, 2, 4, 5, 6, 7, 12, 16), (3, 8))


def test_a_single_bit_shows_that_company_matters(altered: Any, models: dict[str, Model]) -> None:
    assert find(models["mamba"], flash=True).company
    altered(lambda cache, *_parts: cache._end(OTHER) > 0)
    assert find(models["mamba"], flash=True).company is False


def test_a_single_bit_shows_that_shared_passes_matter(
    altered: Any, models: dict[str, Model]
) -> None:
    altered(lambda _cache, *parts: len(parts) > 1)
    assert find(models["mamba"], flash=True).company is False


@pytest.mark.slow
def test_cells_that_another_text_has_left_change_digits(
    monkeypatch: pytest.MonkeyPatch, target_model: Model
) -> None:
    """Attention adds in the order of the cells; without the gap, the bundled target agrees."""
    assert find(target_model, flash=True).company is False
    monkeypatch.setattr(_Trial, "_restore_behind_a_gap", _Trial._restore)
    assert find(target_model, flash=True).company


@pytest.mark.parametrize("family", ["gemma3", "mamba", "qwen35"])
def test_every_kind_of_memory_is_tried(family: str, models: dict[str, Model]) -> None:
    found = find(models[family], flash=True)
    assert {1, 2, 4} <= {width for group in found.groups for width in group}


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_model_is_tried_within_its_positions(tmp_path: Path, family: str) -> None:
    """Behind its last position, a model with a table of positions ends the process."""
    with Model(write_tiny(tmp_path / "model.gguf", family)) as model:
        assert model.n_ctx_train == 256
        assert find(model, flash=True).behind < 256 - 64
        model.n_ctx_train = 100
        assert find_equal_digits(model, CACHE) is None


def test_a_slow_model_is_tried_with_the_needed_widths_only(target_model: Model) -> None:
    found = find_equal_digits(target_model, CACHE, budget=0.0)
    assert found and found.groups == ((1, 2, 4),)


@pytest.mark.slow
def test_without_room_for_other_texts_company_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, target_model: Model
) -> None:
    put = ProbeCache.put
    monkeypatch.setattr(
        ProbeCache, "put", lambda cache, copy, text: text == OWN and put(cache, copy, text)
    )
    found = find(target_model, flash=True)
    assert found.company is None


def test_a_library_that_computes_no_trial_is_no_error(
    monkeypatch: pytest.MonkeyPatch, target_model: Model
) -> None:
    def fail(*_args: object) -> None:
        raise LocalspecError("a trial pass of 5 rows failed")

    monkeypatch.setattr(ProbeCache, "evaluate", fail)
    assert find_equal_digits(target_model, CACHE) is None


def test_a_text_is_doubled_cell_by_cell(target_model: Model) -> None:
    with ProbeCache(target_model, replace(CACHE, n_ctx=256)) as cache:
        cache.evaluate((OWN, [5, 6, 7]))
        size = cache.copy().size
        assert cache.double()
        assert cache.copy().size > 1.5 * size
        assert cache.put(cache.copy(), OWN)
