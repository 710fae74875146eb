"""Reproducible texts: where tokens lie in the cache, and how long attention is, change no digit.

Attention adds in the order of the cells, so texts must have the same digits however many drafted
tokens were rejected where.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import families
from fakes.known_text import Knows
from fakes.pycode import PYCODE

import localspec
from localspec.gguf.check import check_generative
from localspec.llama.batch_invariance import UNIFORM_ROWS
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.loading import invariant_widths
from localspec.loading.config import RuntimeConfig
from localspec.speculation.draft import NOTHING, Draft

# The library's `llama_kv_cache::get_n_kv` counts in steps of so many cells.
STEP = 256


def text_and_logprobs(
    draft: object, prompt: list[int], count: int, **options: int
) -> tuple[list[int], list[float]]:
    """The ids and their digits."""
    with localspec.load(PYCODE.target, draft, threads=1, reproducible=True, context=2048) as engine:
        result = engine.generate(
            prompt, max_tokens=count, temperature=0, ignore_eos=True, logprobs=True, **options
        )
    assert result.logprobs is not None
    return list(result.token_ids), result.logprobs


def random_text(length: int) -> list[int]:
    return list(map(int, np.random.default_rng(1).integers(5, 50, length)))


@pytest.fixture(params=["gemma4", "gpt-oss"])
def windowed(request: pytest.FixtureRequest) -> Iterator[KVSequence]:
    """A text of a model with a sliding window, as `--reproducible` keeps it."""
    path = families.target(request.param)
    runtime = RuntimeConfig(threads=1, reproducible=True)
    params = runtime.context_params(2048)
    with Model(path) as model, runtime.context_for(model, check_generative(path), params) as text:
        text.set_width(4)
        yield text


def test_a_sliding_window_keeps_the_order_of_the_cells(windowed: KVSequence) -> None:
    """A cache of the window alone uses its cells again behind the window and a pass of 512."""
    text, random = random_text(1200), np.random.default_rng(2)
    digits = {}
    for depth in (0, 3):
        windowed.truncate(0)
        rows = list[np.ndarray]()
        while (place := len(windowed.tokens)) < len(text) - 3:
            accepted = int(random.integers(0, depth + 1))
            draft = Draft(text[place + 1 : place + 1 + depth])
            rows.extend(windowed.score(text[place], draft).logits[: 1 + accepted].copy())
            windowed.commit(range(accepted))
        digits[depth] = np.array(rows[: len(text) - 3])
    assert np.array_equal(digits[0], digits[3])


@pytest.mark.parametrize("length", [families.WINDOW, families.WINDOW + 1, 300])
def test_a_text_is_not_put_into_other_cells(windowed: KVSequence, length: int) -> None:
    """The library's copy of a window begins with the first cell, wherever the tokens lay."""
    text = random_text(length)
    windowed.set_tokens(text)
    state = windowed.state()
    assert len(state.tokens) == (length if length <= families.WINDOW else 0)
    expected = windowed.score(7, NOTHING).logits.copy()
    windowed.commit([])
    for way in ("restored", "emptied", "cut"):
        windowed.set_tokens(text)
        if way == "restored":
            assert windowed.restore(state)
        elif way == "emptied":
            with windowed.context.emptied():
                pass
        else:
            windowed.mark()
            windowed.extend(random_text(90))
            assert windowed.truncate(length) == length
        windowed.set_tokens(text)
        assert np.array_equal(windowed.score(7, NOTHING).logits, expected), way
        windowed.commit([])
    assert not windowed.memory.marks


def test_an_accepted_branch_leaves_no_gap() -> None:
    """Trees are cut to a chain, as what follows a branch would take the cells of another."""
    prompt = list(range(5, 45))
    ids, digits = text_and_logprobs("none", prompt, 120)
    drafter = Knows([*prompt, *ids], trees=True)
    same, again = text_and_logprobs(drafter, prompt, 120, depth=6)
    assert (same, again) == (ids, digits)


@pytest.mark.parametrize("held", [0, 3, 250, 509])
def test_attention_of_a_token_is_as_long_with_any_draft(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: int
) -> None:
    """On a GPU the order of a sum depends on its length, and rows behind a token add to that."""
    monkeypatch.setattr(invariant_widths, "computes_on_gpu", lambda _placement: True)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    prompt = [5 + i * 7 % 90 for i in range(490)]
    ids, _ = text_and_logprobs("none", prompt, 600)
    known = [*prompt, *ids]
    passes = list[tuple[int, int]]()
    compute = Context._run_batch

    def noted(self: Context) -> int:
        if self.sequences:
            passes.append((self.sequences[0].memory.length, self._batch.struct.n_tokens))
        return compute(self)

    with localspec.load(
        PYCODE.target, Knows(known), threads=1, reproducible=True, context=2048
    ) as engine:
        options = {"temperature": 0, "ignore_eos": True}
        engine.generate(prompt[:3], max_tokens=1, **options)  # the trial of widths
        if held:
            engine.generate(known[:held], max_tokens=2, **options)
        else:
            engine.slots.own.target.truncate(0)
        monkeypatch.setattr(Context, "_run_batch", noted)
        result = engine.generate(prompt, max_tokens=600, depth=7, **options)
    assert list(result.token_ids) == ids
    assert result.stats.accepted > 300
    assert {rows for _, rows in passes} == {UNIFORM_ROWS}
    # The last token is in no pass.
    ends = [start for start, _ in passes[1:]] + [len(known) - 1]
    kept = [end - start for (start, _), end in zip(passes, ends, strict=True)]
    assert max(kept) == UNIFORM_ROWS
    for (start, rows), count in zip(passes, kept, strict=True):
        lengths = {-(-(place + rows) // STEP) for place in range(start, start + count)}
        assert len(lengths) == 1, (start, count)
