"""Prompt speed: learnt from the target's passes, not from those of drafters."""

from localspec.engine.prompt_speed import PromptSpeed


def test_it_is_that_of_the_largest_model() -> None:
    speed = PromptSpeed()
    assert speed.rows_within(1.0) == 0
    speed.learn(10, 100, 0.1)
    assert speed.rows_within(1.0) == 1000
    speed.learn(50, 100, 1.0)
    assert speed.rows_within(1.0) == 100
    speed.learn(10, 100, 0.1)
    assert speed.rows_within(1.0) == 100


def test_it_follows_a_machine_that_becomes_slower() -> None:
    speed = PromptSpeed()
    for seconds in (1.0, *[2.0] * 30):
        speed.learn(10, 128, seconds)
    assert 63 <= speed.rows_within(1.0) <= 64
