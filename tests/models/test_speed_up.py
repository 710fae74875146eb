"""What a drafter may gain, on models of which only the sizes matter."""

import math
from pathlib import Path

import pytest

from localspec.gguf.facts import Facts
from localspec.gguf.reader import Header, TensorInfo
from localspec.models.kinds import KINDS, usual_rates
from localspec.models.speed_up import (
    PairMeasurement,
    bytes_read,
    estimate_speed_up,
    expected_tokens,
)


def model(sizes: dict[str, int], **keys: int) -> Facts:
    """A model with tensors of so many bytes."""
    metadata = {"general.architecture": "any", **{f"any.{key}": keys[key] for key in keys}}
    tensors = [TensorInfo(name, (size,), 24, 0, size) for name, size in sizes.items()]
    return Facts((Path("any.gguf"),), Header(3, metadata, tuple(tensors)), tensors)


def of_size(size: int) -> Facts:
    return model({"blk.0.ffn_up.weight": size})


@pytest.mark.parametrize(("rate", "depth"), [(0.0, 4), (0.5, 1), (0.7, 3), (0.9, 8)])
def test_expected_tokens_are_those_of_the_paper(rate: float, depth: int) -> None:
    assert math.isclose(expected_tokens(rate, depth), (1 - rate ** (depth + 1)) / (1 - rate))


def test_a_drafter_that_is_always_right_adds_all_it_drafts() -> None:
    assert expected_tokens(1.0, 5) == 6


def test_the_best_depth_by_hand() -> None:
    # Depths 1, 2 and 3 gain 1.7 / 1.1, 2.19 / 1.2, 2.533 / 1.3; depth 4 2.7731 / 1.4; ...
    found = estimate_speed_up(of_size(1000), of_size(100), PairMeasurement(0.7))
    gains = [expected_tokens(0.7, depth) / (1 + 0.1 * depth) for depth in range(1, 9)]
    assert math.isclose(found.high, max(gains)) and found.low == found.high
    assert found.depth == 1 + gains.index(max(gains)) == 4


def test_without_a_rate_it_is_a_range() -> None:
    found = estimate_speed_up(of_size(1000), of_size(100))
    worse, better = (
        estimate_speed_up(of_size(1000), of_size(100), PairMeasurement(rate)).high
        for rate in (0.6, 0.8)
    )
    assert (found.low, found.high) == (worse, better)
    assert 1 < found.low < found.high and found.rate is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_range_is_that_of_the_kind(kind: str) -> None:
    low, high = usual_rates(kind)
    assert 0 < low < high < 1
    found, worse, better = (
        estimate_speed_up(of_size(1000), of_size(100), PairMeasurement(rate), kind)
        for rate in (None, low, high)
    )
    assert (found.low, found.high) == (worse.high, better.high)


def test_a_drafter_as_large_as_the_target_does_not_pay() -> None:
    assert not estimate_speed_up(of_size(1000), of_size(1000)).pays
    assert not estimate_speed_up(of_size(1000), of_size(5000), PairMeasurement(0.9)).pays
    assert estimate_speed_up(of_size(1000), of_size(1000), PairMeasurement(1.0)).high == 1


def test_the_embedding_is_read_where_it_is_the_output_as_well() -> None:
    layer = {"blk.0.ffn_up.weight": 100, "token_embd.weight": 1000}
    assert bytes_read(model(layer), 1) == 1100
    assert bytes_read(model({**layer, "output.weight": 2000}), 1) == 2100


def test_of_experts_those_are_read_that_a_token_is_sent_to() -> None:
    sizes = {"blk.0.attn_q.weight": 100, "blk.0.ffn_up_exps.weight": 800}
    mixture = model({**sizes, "blk.0.ffn_up_shexp.weight": 10}, expert_count=8, expert_used_count=2)
    assert bytes_read(mixture, 1) == pytest.approx(110 + 800 / 4)
    # Two tokens that choose at random share an expert now and then.
    assert bytes_read(mixture, 2) == pytest.approx(110 + 800 * (1 - (3 / 4) ** 2))
    assert bytes_read(mixture, 1000) == pytest.approx(910)


def test_drafts_gain_less_where_every_token_wakes_more_experts() -> None:
    sizes = {"blk.0.attn_q.weight": 200, "blk.0.ffn_up_exps.weight": 6400}
    mixture = model(sizes, expert_count=8, expert_used_count=1)
    dense = of_size(int(bytes_read(mixture, 1)))
    drafter = of_size(100)
    assert estimate_speed_up(mixture, drafter).high < 1.3 < estimate_speed_up(dense, drafter).low


def test_nonsense_about_experts_is_no_reason_to_fail() -> None:
    sizes = {"blk.0.ffn_up_exps.weight": 800}
    assert bytes_read(model(sizes, expert_count=0, expert_used_count=2), 1) == 800
    assert bytes_read(model(sizes, expert_count=2, expert_used_count=4), 3) == 800


def test_costs_that_were_measured_are_taken() -> None:
    costs = {1: 1.5, 2: 3.0}
    found = estimate_speed_up(of_size(1000), of_size(100), PairMeasurement(0.5, costs))
    assert math.isclose(found.high, 1.5 / 1.5) and found.depth == 1 and found.timed
