"""The promise on models with a running state: with one seed, the same token ids whatever drafts.

With 32-bit floats throughout, logits differ by 1e-5 between passes of different widths, and those
of the likeliest tokens here by a thousand times that.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.pycode import load
from fakes.tiny import write_tiny

from localspec.engine.engine import Engine
from localspec.llama.rollback import Rollback

DEPTHS = range(1, 9)
# What drafts, by family: a model of the other kind, which guesses badly, or itself, which does not.
DRAFTS = ["suffix", "lookup", "ngram", "mamba", "qwen35"]
FAMILIES = {"mamba": Rollback.FULL, "qwen35": Rollback.BOUNDED}
PROMPT = [1, *range(260, 275), 30, 31, 32, 260, 261, 262]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        family: write_tiny(folder / f"{family}.gguf", family, quantised=False)
        for family in FAMILIES
    }


@pytest.fixture(scope="module", params=FAMILIES)
def engines(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Iterator[dict[str, Engine]]:
    made = {}
    options = {"threads": 1, "flash_attention": False, "context": 256, "kv_type": "f32"}
    for draft in ("none", *DRAFTS):
        made[draft] = load(paths[request.param], paths.get(draft, draft), **options)
        known = FAMILIES[request.param]
        assert made[draft].slots.own.target.rollback is (
            Rollback.FULL if draft == "none" else known
        )
    yield made
    for engine in made.values():
        engine.close()


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_at_every_depth(engines: dict[str, Engine], draft: str, temperature: float) -> None:
    drafted_tokens = rejected = 0
    for seed in range(2):
        options = {"max_tokens": 40, "temperature": temperature, "seed": seed, "ignore_eos": True}
        plain = engines["none"].generate(PROMPT, **options)
        assert {*plain.origins} == {"plain"}
        for depth in DEPTHS:
            drafted = engines[draft].generate(PROMPT, depth=depth, **options)
            assert drafted.token_ids == plain.token_ids, depth
            drafted_tokens += drafted.stats.drafted
            rejected += drafted.stats.drafted - drafted.stats.accepted
    assert drafted_tokens
    assert rejected or draft == engines[draft].model.path.stem


@pytest.mark.parametrize("draft", DRAFTS)
def test_as_deep_as_pays(engines: dict[str, Engine], draft: str) -> None:
    for temperature in (0, 0.8):
        options = {"max_tokens": 60, "temperature": temperature, "seed": 5, "ignore_eos": True}
        plain = engines["none"].generate(PROMPT, **options)
        assert engines[draft].generate(PROMPT, **options).token_ids == plain.token_ids


def test_deeper_than_snapshots_reach(engines: dict[str, Engine]) -> None:
    for draft in DRAFTS:
        for seed in range(2):
            options = {"max_tokens": 60, "temperature": 0.8, "seed": seed, "ignore_eos": True}
            plain = engines["none"].generate(PROMPT, **options)
            for depth in (9, 20):
                drafted = engines[draft].generate(PROMPT, depth=depth, **options)
                assert drafted.token_ids == plain.token_ids


def test_another_prompt_and_a_generation_left_early(engines: dict[str, Engine]) -> None:
    for draft in DRAFTS:
        engine = engines[draft]
        for cut in (22, 9, 1):
            prompt = PROMPT[:cut]
            running = engine.stream(prompt, max_tokens=30, temperature=0, depth=3, ignore_eos=True)
            for _ in range(7):
                next(running)
            longer = [*prompt, *(token.id for token in running.tokens[:4]), 40, 41]
            options = {"max_tokens": 20, "temperature": 0, "ignore_eos": True}
            plain = engines["none"].generate(longer, **options)
            assert engine.generate(longer, depth=3, **options).token_ids == plain.token_ids
