"""What `localspec plan` says to type, and the intervals it shows."""

import pytest

from localspec.cli.plan_output import decision_line, forecast_text
from localspec.forecast.confidence import ConfidenceInterval, ratio_interval
from localspec.forecast.forecast import ConfigurationForecast, Forecast
from localspec.forecast.timing import StepCosts

TYPED = {"small-Q4_0": "/models/my small-Q4_0.gguf"}


def line(
    drafter: str, low: float, *, rule: str | None = "coupled", depth: int | None = None
) -> ConfigurationForecast:
    speed_up = ConfidenceInterval(1.5 * low, low, 2 * low)
    return ConfigurationForecast(drafter, rule, depth, speed_up, speed_up, None, 0.01)


def test_where_all_prompts_were_asked_others_would_tell_more() -> None:
    said = decision_line(line("ngram", 0.9, depth=7), TYPED, exhausted=True)
    assert "more prompts (--set, --prompts) would tell" in said and "--answers" not in said


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (line("ngram", 1.1, depth=7), "--draft ngram --depth 7, with generate and chat"),
        (
            line("small-Q4_0", 1.1, rule="block", depth=2),
            "--draft '/models/my small-Q4_0.gguf' --depth 2 --rule block, with",
        ),
        (line("auto", 1.1), "nothing, as auto is the default"),
        (line("plain", 0.9, rule=None), "or --draft none"),
        (line("ngram", 0.9, depth=7), "nothing, as ngram may be no faster than plain; more texts"),
    ],
)
def test_what_to_type_is_said(best: ConfigurationForecast, said: str) -> None:
    assert said in decision_line(best, TYPED)


@pytest.mark.parametrize(
    ("low", "busy", "marked"), [(0.95, False, False), (1.05, False, True), (1.05, True, False)]
)
def test_the_best_is_marked_only_where_it_is_surely_faster(
    low: float, busy: bool, marked: bool
) -> None:
    costs = StepCosts({1: 1.0}, 0.0, 0.0, {})
    plain = line("plain", 1.0, rule=None)
    found = Forecast([line("ngram", low, depth=3), plain], {}, costs, 5, 100)
    assert ("<- best" in forecast_text(found, everything=True, busy=busy)) is marked


def test_no_speed_is_negative_and_too_few_texts_are_called_that() -> None:
    few = ratio_interval([10.0, 40.0], [10.0, 20.0])
    assert 0 < few.low < few.value < few.high
    assert str(few) == "too few texts"
    assert str(ratio_interval([10.0, 40.0], [10.0, 20.0], ["same", "same"])) == "too few texts"
    many = ratio_interval([10.0, 14.0, 12.0, 11.0, 13.0], [10.0] * 5)
    assert str(many) == f"{many.low:.2f} to {many.high:.2f}" and many.low * many.high == (
        pytest.approx(many.value**2)
    )
