"""The rows behind the output norm come with the logits of every row, and change none of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes.numpy_llama import Tensors
from fakes.tiny import FAMILIES, WIDTH, write_tiny

from localspec.llama.context import Context
from localspec.llama.context_params import DRAFT_ROWS, ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.rollback import SNAPSHOTS
from localspec.speculation.draft import Draft
from localspec.speculation.passes import OUTPUT, Pass, Scores, draft_pass

Make = Callable[..., Context]
PROMPT = [1, 30, 40, 50, 60]


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_tiny(tmp_path / f"{request.param}.gguf", request.param, quantised=False)


@pytest.fixture
def context(family: Path) -> Make:
    def make(texts: int = 1, **options: int) -> Context:
        return Context(
            Model(family, ON_PROCESSOR),
            ContextParams(
                256,
                texts=texts,
                flash_attention=False,
                kv_type="f32",
                **options,
            ),
        )

    return make


def assert_own(scores: Scores, matrix: np.ndarray) -> None:
    """The logits are the output matrix times the rows."""
    rows = scores.hidden[OUTPUT]
    assert rows.shape == (scores.again + len(scores.logits), WIDTH)
    assert np.abs(rows[scores.again :] @ matrix.T - scores.logits).max() < 1e-5


@pytest.mark.parametrize("snapshots", [0, SNAPSHOTS])
def test_logits_are_made_of_them(context: Make, family: Path, snapshots: int) -> None:
    matrix = Tensors(family)["output.weight"]
    with context(snapshots=snapshots).new_sequence() as text:
        text.extend(PROMPT)
        usual = text.score(70, Draft([80, 90, 33])).logits.copy()
        text.truncate(0)
        text.extend(PROMPT)
        (scores,) = text.context.decode([draft_pass(text, 70, Draft([80, 90, 33]), (OUTPUT,))])
        assert np.array_equal(scores.logits, usual)
        assert_own(scores, matrix)
        text.commit([0])
        # A running state was rolled back: its tokens are evaluated once more, and have rows too.
        (scores,) = text.context.decode([draft_pass(text, 90, Draft([80, 33]), (OUTPUT,))])
        assert_own(scores, matrix)
        text.commit([])
        # Off again, without being asked for.
        usual = text.score(33, Draft([80])).logits.copy()
        assert not text.context.hidden.gives_output
        assert usual.shape == (2, text.n_vocab)


def test_parts_of_a_prompt_have_none(context: Make) -> None:
    with context().new_sequence() as text:
        (scores,) = text.context.decode([Pass(text, PROMPT, hidden=(OUTPUT,))])
        assert not scores.hidden
        assert len(scores.logits) == 1


def test_texts_that_share_a_decode(context: Make, family: Path) -> None:
    matrix = Tensors(family)["output.weight"]
    company = context(texts=3)
    one, two, other = (company.new_sequence() for _ in range(3))
    for text, start in ((one, 30), (two, 50), (other, 80)):
        text.extend([1, start, start + 1])
    passes = [
        draft_pass(one, 70, Draft([80, 90]), (OUTPUT,)),
        draft_pass(two, 71, Draft([81, 91])),
        Pass(other, [5, 6, 7], hidden=(OUTPUT,)),
    ]
    first, second, third = company.decode(passes)
    assert_own(first, matrix)
    assert not second.hidden
    assert third.hidden[OUTPUT].shape == (3, WIDTH)
    assert np.abs(third.hidden[OUTPUT][-1:] @ matrix.T - third.logits).max() < 1e-5
    assert [len(each.logits) for each in (first, second, third)] == [3, 3, 1]


def test_long_parts_of_prompts_are_kept_apart(context: Make) -> None:
    company = context(texts=2)
    one, two = company.new_sequence(), company.new_sequence()
    drafted = draft_pass(one, 70, Draft([80, 90]), (OUTPUT,))
    assert company.fits([drafted, Pass(two, [3] * 60)])
    assert not company.fits([drafted, Pass(two, [3] * 61)])
    assert company.fits([draft_pass(one, 70, Draft([80, 90])), Pass(two, [3] * 61)])
    assert company.fits([draft_pass(one, 70, Draft([80] * (DRAFT_ROWS - 1)), (OUTPUT,))])


def test_more_rows_than_outputs_have_none(context: Make) -> None:
    """As where a text is evaluated again in front of a long draft."""
    with context().new_sequence() as text, context().new_sequence() as fresh:
        long = Draft([80] * (DRAFT_ROWS - 1))
        for each in (text, fresh):
            each.extend(PROMPT)
        text.memory.cut(2)
        (scores,) = text.context.decode([draft_pass(text, 70, long, (OUTPUT,))])
        assert scores.again in (3, 5) and not scores.hidden
        assert np.abs(scores.logits - fresh.score(70, long).logits).max() < 1e-3
