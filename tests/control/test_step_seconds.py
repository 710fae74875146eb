"""What a step took by itself beside others, and what plain steps would have taken, by hand."""

from dataclasses import replace

import pytest

from localspec.control.pass_costs import PassCosts
from localspec.control.step_seconds import StepSeconds
from localspec.speculation.policy import Step

COSTS = {1: 1.0, 2: 1.2, 3: 1.5, 4: 2.0, 6: 3.2, 8: 4.4, 16: 9.0}
# Two drafted tokens, beside a plain text and one with three drafted tokens. The decode took half as
# long again as one of 8 rows does; three of its rows are this text's.
BESIDE = Step(
    (7, 7), 2, 3, (7, 7, 7), 0.5 + 0.3 + 2.475, 0.3, others=(1, 4), decode_seconds=6.6, share=2.475
)
# The pass of a text alone, with a row of padding.
ALONE = Step((7, 7), 2, 4, (7,), 3.0 + 0.5 + 0.3, 0.3, decode_seconds=3.0, share=3.0)


def known(*widths: int, **options: float) -> PassCosts:
    """What passes of these widths take was seen."""
    passes = PassCosts(COSTS, **options)  # type: ignore[arg-type]
    for width in widths:
        for _ in range(9):
            passes.learn(width, COSTS[width])
    return passes


def test_a_plain_step_is_a_part_of_a_decode_without_drafts() -> None:
    seconds = StepSeconds(known(), 3, host=0.6)
    assert seconds.plain_pass(BESIDE) == pytest.approx(1.5 / 3)
    # What passes take was learnt with the time outside the models of one text.
    assert seconds.plain(BESIDE) == pytest.approx(1.5 / 3 + 0.6 * 2 / 3)
    assert seconds.plain(ALONE) == pytest.approx(1.0)


def test_a_plain_step_never_pays_for_a_change_of_the_rows() -> None:
    assert StepSeconds(known(change=2.0), 3).plain_pass(BESIDE) == pytest.approx(1.5 / 3)


def test_the_rows_of_a_draft_take_what_the_decode_would_not_have_taken_without() -> None:
    seconds = StepSeconds(known(), 3)
    expected = 1.5 / 3 + (4.4 - 3.2)
    assert seconds.expected_pass(BESIDE) == pytest.approx(expected)
    assert seconds.own_seconds(BESIDE) == pytest.approx(0.5 + 0.3 + 1.5 * expected)


def test_a_text_alone_takes_the_whole_step() -> None:
    seconds = StepSeconds(known(), 1)
    assert seconds.own_seconds(ALONE) == ALONE.seconds
    assert seconds.expected_pass(ALONE) == pytest.approx(1.5)


def test_texts_whose_unequal_rows_share_nothing_would_share_their_plain_decodes() -> None:
    seconds = StepSeconds(known(unequal_apart=True), 3, host=0.6)
    for step in (BESIDE, replace(ALONE, others=())):
        assert seconds.own_seconds(step) == step.seconds
        assert seconds.expected_pass(step) == pytest.approx(1.5)
        assert seconds.plain(step) == pytest.approx(1.5 / 3 + 0.6 * 2 / 3)


@pytest.mark.parametrize("others", [(), (97,)])
def test_each_row_of_a_decode_with_a_part_of_a_prompt_costs_the_same(
    others: tuple[int, ...],
) -> None:
    rows = 3 if others else 100
    step = Step((7, 7), 2, rows, (7,), 9.8, 0.3, others=others, decode_seconds=90.0, share=9.0)
    seconds = StepSeconds(known(), 2)
    assert seconds.plain_pass(step) == pytest.approx(9.0 / rows)
    assert seconds.own_seconds(step) == step.seconds
    assert seconds.expected_pass(step) == pytest.approx(1.5)


def test_what_slowed_a_decode_would_have_slowed_plain_ones() -> None:
    seconds = StepSeconds(known(3), 3, host=0.6)
    # With the time outside the models, as it was learnt with that.
    slowdown = (6.6 + 0.5) / 4.4
    expected = 3 * (1.5 / 3 * slowdown + 0.6 * 2 / 3)
    assert seconds.plain_time(BESIDE) == pytest.approx(expected)
    assert StepSeconds(known(1), 3).plain_time(BESIDE) is None
    assert StepSeconds(known(3), 1).plain_time(ALONE) is None
    assert StepSeconds(known(1), 1).plain_time(ALONE) == pytest.approx(3.5 / 2.0)


@pytest.mark.parametrize("more", [{"again": 2}, {"ahead": 3}])
def test_what_slows_only_steps_with_drafts_would_not_have_slowed_plain_ones(
    more: dict[str, int],
) -> None:
    step = replace(ALONE, **more)  # type: ignore[arg-type]
    assert StepSeconds(known(1), 1).plain_time(step) == pytest.approx(1.0)
    assert StepSeconds(known(1, change=2.0), 1).plain_time(ALONE) == pytest.approx(1.0)
