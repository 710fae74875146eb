"""Answer settings: what a part of an answer may still write, and with which noise."""

from localspec.conversation.answer_settings import settings_behind
from localspec.generation_config import GenerationConfig

WHOLE = GenerationConfig(max_tokens=100, min_tokens=30, seed=5)


def test_a_part_owes_what_the_parts_before_it_have_not_written() -> None:
    behind = settings_behind(WHOLE, written=20, prompt=7)
    assert (behind.min_tokens, behind.max_tokens, behind.seed) == (10, 80, 5)
    assert settings_behind(WHOLE, written=30, prompt=7).min_tokens == 0
    assert settings_behind(WHOLE, written=99, prompt=7).min_tokens == 0
    all_ = GenerationConfig(max_tokens=100, min_tokens=100)
    assert settings_behind(all_, written=99, prompt=7).min_tokens == 1


def test_noise_never_comes_twice_in_an_answer() -> None:
    """Nor where what was dropped leaves as many tokens as there were before."""
    parts = [(20, 30, 1), (20, 30, 2), (30, 30, 2)]
    seeds = {
        settings_behind(WHOLE, written=written, prompt=prompt, dropped=dropped).seed
        for written, prompt, dropped in parts
    }
    assert len(seeds | {WHOLE.seed}) == 4
    drawn = GenerationConfig(max_tokens=100, seed=5, rule="block")
    seeds = {settings_behind(drawn, written=each, prompt=30).seed for each in (1, 2)}
    assert len(seeds | {5}) == 3
