"""What keeps a text from ending, and log-probabilities: the same with drafts and without."""

import numpy as np
import pytest
from fakes.prompts import PROMPTS
from fakes.pycode import load

from localspec.engine.engine import Engine
from localspec.sampling.filters import NoTokenError

DRAFTS = ["none", "lookup", "model", "auto"]
# How deep each drafts; None is as deep as pays.
DEPTHS = {"none": None, "lookup": 3, "model": 3, "auto": None}
# The bundled target ends this within a few tokens.
SHORT = [{"role": "user", "content": "Write a Python function `f`. Return x."}]


@pytest.fixture(scope="module")
def engines(drafter_path):  # type: ignore[no-untyped-def]
    paths = {"model": str(drafter_path)}
    made = {
        draft: load(draft=paths.get(draft, draft), threads=1, flash_attention=True)
        for draft in DRAFTS
    }
    yield made
    for engine in made.values():
        engine.close()


@pytest.mark.parametrize("rule", ["coupled", "token", "block"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_a_text_does_not_end_too_early(engines: dict[str, Engine], draft: str, rule: str) -> None:
    engine, how = engines[draft], {"rule": rule, "depth": DEPTHS[draft]}
    for seed in range(2):
        free = engine.generate(SHORT, seed=seed, max_tokens=200, **how)
        least = len(free.token_ids) + 10
        held = engine.generate(SHORT, seed=seed, max_tokens=400, min_tokens=least, **how)
        assert len(held.token_ids) >= least
        assert not any(engine.model.ends_generation(token) for token in held.token_ids[: least - 1])
        endless = engine.generate(SHORT, seed=seed, max_tokens=250, ignore_eos=True, **how)
        assert endless.stop_reason == "length"
        assert not any(engine.model.ends_generation(token) for token in endless.token_ids)


@pytest.mark.parametrize("draft", ["none", "model"])
def test_a_text_ends_as_soon_as_it_may(engines: dict[str, Engine], draft: str) -> None:
    engine = engines[draft]
    end = min(engine.model.end_tokens)
    for least in (0, 1, 5):
        text = engine.generate(SHORT, min_tokens=least, logit_bias={end: 100.0}, max_tokens=9)
        assert text.stop_reason == "eos"
        assert len(text.token_ids) == least + 1


def test_the_drafter_knows_it_too(engines: dict[str, Engine]) -> None:
    for seed in range(4):
        options = {"seed": seed, "max_tokens": 120, "min_tokens": 100}
        plain = engines["none"].generate(SHORT, **options)
        drafted = engines["model"].generate(SHORT, depth=3, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.stats.accepted > 0


@pytest.mark.parametrize("rule", ["coupled", "token", "block"])
@pytest.mark.parametrize("stop", [["return x"], []])
def test_a_grammar_that_allows_no_more_ends_a_text_where_it_does_without_drafts(
    engines: dict[str, Engine], stop: list[str], rule: str
) -> None:
    """At the stop string, or with an error behind all tokens; not where a draft has gone on."""
    grammar = r'root ::= "def f(x):\n    return x"'
    how = {"grammar": grammar, "stop": stop, "ignore_eos": True, "rule": rule, "temperature": 0}

    def text(draft: str, depth: int | None) -> tuple[list[int], str]:
        found = []
        with engines[draft].stream("def f(x):\n    return ", depth=depth, **how) as running:
            try:
                found.extend(token.id for token in running)
            except NoTokenError:
                return found, "no token"
        return found, str(running.stop_reason)

    plain = text("none", None)
    assert plain[1] == ("stop" if stop else "no token")
    for draft, depths in {"lookup": (3, 8), "model": (1, 2, 3, 8), "auto": (None,)}.items():
        for depth in depths:
            assert text(draft, depth) == plain, (draft, depth)


@pytest.mark.parametrize("rule", ["coupled", "token", "block"])
def test_logprobs_are_the_target_s_own(engines: dict[str, Engine], rule: str) -> None:
    engine = engines["model"]
    options = {"max_tokens": 40, "seed": 2, "top_logprobs": 5, "rule": rule, "depth": 3}
    with engine.stream(PROMPTS[0], **options) as running:
        tokens = list(running)
    assert running.stats.accepted > 0
    text = engine.model.tokenize(PROMPTS[0])
    with engine.slots.own.new_context(running.settings) as context:
        row = context.extend(text)
        for token in tokens:
            wanted = row.astype(np.float64) - np.logaddexp.reduce(row.astype(np.float64))
            assert token.logprob == pytest.approx(wanted[token.id], abs=1e-4)
            best = np.argsort(-row, kind="stable")[:5]
            assert [other for other, _ in token.top] == best.tolist()
            assert [each for _, each in token.top] == pytest.approx(wanted[best], abs=1e-4)
            row = context.extend([token.id])
