"""Reproducible texts on a GPU: every pass of the target has the same number of rows.

A GPU has other kernels, with other last digits, for one row, for a few, and for many. No GPU is
needed to see which passes are asked for; what their digits are, only a GPU can tell.
"""

from pathlib import Path

import numpy as np
import pytest
from fakes.mamba import write_mamba
from fakes.noted_passes import NotedPass, note_passes
from fakes.prompts import PROMPTS
from fakes.pycode import PYCODE, load

import localspec
from localspec.errors import InvalidValueError
from localspec.llama import batch_invariance
from localspec.llama.batch_invariance import UNIFORM_ROWS, InvariantWidth, probe_uniform
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import Placement
from localspec.llama.sequence import KVSequence
from localspec.loading import invariant_widths
from localspec.loading.config import RuntimeConfig
from localspec.speculation.draft import Draft

DRAFTS = ["none", "lookup", "suffix", "auto"]


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(invariant_widths, "computes_on_gpu", lambda _placement: True)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[NotedPass]:
    return note_passes(monkeypatch)


def of_target(passes: list[NotedPass]) -> list[tuple[int, int]]:
    """The rows, and the rows with logits, of every pass of the target."""
    return [(rows, wanted) for path, rows, wanted in passes if path == PYCODE.target]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("depth", [None, 1, 3, 12])
def test_every_pass_has_the_same_rows(
    passes: list[NotedPass], draft: str, depth: int | None
) -> None:
    prompt = PROMPTS[0] * 3
    with load(draft=draft, threads=1, context=400, reproducible=True) as engine:
        engine.generate(prompt, max_tokens=1)  # the trial
        engine.slots.own.target.truncate(0)
        passes.clear()
        result = engine.generate(prompt, max_tokens=60, depth=depth, seed=1, temperature=0)
        seen = of_target(passes)
    assert len(result.token_ids) == 60
    assert {rows for rows, _ in seen} == {UNIFORM_ROWS}
    prompt_passes = -(-(result.stats.prompt_tokens - 1) // UNIFORM_ROWS)
    assert {wanted for _, wanted in seen[prompt_passes:]} == {UNIFORM_ROWS}
    assert len(seen) == prompt_passes + result.stats.steps
    if draft == "suffix" and depth:
        drafted = max(record.verified for record in result.stats.records)
        assert min(depth, 4) <= drafted <= min(depth, UNIFORM_ROWS - 1)
        assert result.stats.accepted > 0


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 0.8, "seed": 3}])
def test_the_same_text_with_any_drafter_and_beside_others(
    passes: list[NotedPass], options: dict[str, float]
) -> None:
    expected = None
    for draft in DRAFTS:
        with load(draft=draft, threads=1, context=400, reproducible=True) as engine:
            alone = [
                engine.generate(prompt, max_tokens=40, **options).token_ids
                for prompt in PROMPTS[:3]
            ]
            passes.clear()
            beside = [
                each.token_ids for each in engine.generate(PROMPTS[:3], max_tokens=40, **options)
            ]
            assert {rows for rows, _ in of_target(passes)} == {UNIFORM_ROWS}
        expected = expected or alone
        assert alone == beside == expected


def test_no_tree_is_drafted(target_model: Model) -> None:
    """An accepted branch leaves gaps, and attention adds in the order of the cells."""
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1, branches=3)) as text:
        assert text.branches == 4
        text.set_width(UNIFORM_ROWS, is_uniform=True)
        assert (text.branches, text.most_kept, text.n_ctx) == (
            1,
            UNIFORM_ROWS,
            64 - UNIFORM_ROWS + 1,
        )
        text.set_width(1)
        assert (text.branches, text.most_kept) == (4, text.context.chunk)


@pytest.mark.parametrize("missing", [0, 3])
def test_no_token_is_kept_for_which_attention_would_be_longer(
    target_model: Model, missing: int
) -> None:
    """Of a pass that begins with it; the library pads attention to a multiple of 256 cells."""

    def attention(start: int) -> int:
        return -(-(start + UNIFORM_ROWS) // 256)

    with single_sequence(target_model, ContextParams(n_ctx=600, threads=1)) as text:
        text.set_width(UNIFORM_ROWS, is_uniform=True)
        for held in range(240, 270):
            text.tokens, text.memory.length = [0] * (held + missing), held
            alike = [at for at in range(UNIFORM_ROWS) if attention(held + at) == attention(held)]
            assert text.most_kept == len(alike) > 0
        # Of a pass without a verdict, what the cache holds beyond the text is not kept.
        text.tokens, text.memory.length = [0] * 245, 251
        assert text.most_kept == 4
        text.tokens, text.memory.length = [], 0


def test_the_trial_tells_whether_rows_are_equal(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with single_sequence(
        target_model, ContextParams(n_ctx=128, threads=1, flash_attention=False)
    ) as text:
        found = probe_uniform(text)
        assert (found.least_rows, found.is_uniform) == (UNIFORM_ROWS, True)
        assert found.cost > 0.5
        assert (text.tokens, text.least_rows, text.is_uniform) == ([], 1, False)

        score = KVSequence.score

        def otherwise(self: KVSequence, pending: int, draft: Draft) -> object:
            """Other digits in the last row."""
            scores = score(self, pending, draft)
            logits = scores.logits.copy()
            logits[UNIFORM_ROWS - 1 :] = np.nextafter(logits[UNIFORM_ROWS - 1 :], np.inf)
            scores.logits = logits
            return scores

        monkeypatch.setattr(KVSequence, "score", otherwise)
        with pytest.raises(InvalidValueError, match="reproducible is not possible for pycode-7m"):
            probe_uniform(text)
        assert (text.least_rows, text.is_uniform) == (1, False)


def test_a_context_that_is_too_small_says_so(target_model: Model) -> None:
    with (
        single_sequence(target_model, ContextParams(n_ctx=20, threads=1)) as text,
        pytest.raises(InvalidValueError, match=r"context is 20; passes of 8 rows .* 48 or more"),
    ):
        probe_uniform(text)


@pytest.mark.parametrize("n_ctx", [48, 55, 64, 260, 266, 269, 271, 272, 520, 600])
def test_a_trial_fits_its_context(target_model: Model, n_ctx: int) -> None:
    """Also where it ends at a border of attention, before which passes keep fewer tokens."""
    with single_sequence(
        target_model, ContextParams(n_ctx=n_ctx, threads=1, flash_attention=False)
    ) as text:
        assert probe_uniform(text).least_rows == UNIFORM_ROWS


def test_one_trial_serves_every_depth(target_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found, trials = InvariantWidth(UNIFORM_ROWS, 1.5, is_uniform=True), list[int]()

    def trial(_text: KVSequence) -> InvariantWidth:
        trials.append(1)
        return found

    monkeypatch.setattr(invariant_widths, "probe_uniform", trial)
    runtime = RuntimeConfig(reproducible=True, threads=1)
    with single_sequence(
        target_model, ContextParams(n_ctx=64, threads=1, flash_attention=False)
    ) as text:
        widths = [invariant_widths.invariant_width(text, widest, runtime) for widest in (2, 5, 32)]
        # What was found for a device that needs no uniform passes says nothing of one that does.
        monkeypatch.setattr(invariant_widths, "computes_on_gpu", lambda _placement: False)
        assert not invariant_widths.invariant_width(text, UNIFORM_ROWS, runtime).is_uniform
    assert widths == [found] * 3
    assert len(trials) == 1


@pytest.mark.parametrize(
    "placement, gpus, expected",
    [
        (Placement(), [], False),
        (Placement(), ["CUDA0"], True),
        (Placement(gpu_layers=0), ["CUDA0"], True),
        (Placement(devices=()), ["CUDA0"], False),
        (Placement(devices=("CUDA1",)), ["CUDA0", "CUDA1"], True),
        (Placement(rpc=("127.0.0.1:1",)), [], True),
    ],
)
def test_where_passes_may_be_computed_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, placement: Placement, gpus: list[str], *, expected: bool
) -> None:
    from localspec.llama import devices

    monkeypatch.setattr(devices, "usual_gpus", lambda: gpus)
    assert devices.computes_on_gpu(placement) is expected


def test_the_probe_of_widths_starts_from_single_rows(target_model: Model) -> None:
    """A width that was set before says nothing."""
    with single_sequence(
        target_model, ContextParams(n_ctx=512, threads=1, flash_attention=False)
    ) as text:
        text.set_width(4)
        assert batch_invariance.probe(text, 8).least_rows == 2


def test_a_running_state_is_said_not_to_be_reproducible(tmp_path: Path) -> None:
    model = write_mamba(tmp_path / "mamba.gguf", PYCODE.target)
    with localspec.load(model, "none", context=64, threads=1, reproducible=True) as engine:
        [note] = [note for note in engine.notes if "reproducible" in note]
    assert "not reproducible to the bit: mamba.gguf has a running state" in note
    with localspec.load(model, "none", context=64, threads=1) as engine:
        assert not any("reproducible" in note for note in engine.notes)
    with load(draft="none", threads=1, context=64, reproducible=True) as engine:
        assert not any("reproducible" in note for note in engine.notes)
