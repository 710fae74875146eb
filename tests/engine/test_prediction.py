"""Predicted outputs: the text never depends on the prediction, and comes in fewer steps."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from math import ceil
from typing import Any

import pytest

import localspec
from localspec.engine.audit import Recorded, audit
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.loading.copy_sources import prediction_unused

QUESTION = [{"role": "user", "content": "How do I find large files?"}]
OTHER = [{"role": "user", "content": "How do I make a directory?"}]
OPTIONS = {"threads": 1, "flash_attention": True, "context": 512}
DRAFTS = ["none", "lookup", "suffix", "auto"]
SAMPLED = [{"temperature": 0}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.3, "seed": 4}]
DEPTH = 6
SHORT: dict[str, Any] = {"max_tokens": 40, "temperature": 0, "depth": DEPTH}


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    made = {draft: localspec.load(draft=draft, **OPTIONS) for draft in DRAFTS}
    yield made
    for engine in made.values():
        engine.close()


@pytest.fixture(scope="module")
def plain(engines: dict[str, Engine]) -> Callable[..., Result]:
    """Plain decoding, once for each of its options."""
    known: dict[str, Result] = {}

    def decoded(**options: Any) -> Result:
        asked = repr(options)
        if asked not in known:
            known[asked] = engines["none"].generate(QUESTION, max_tokens=100, **options)
        return known[asked]

    return decoded


def predictions(text: str) -> list[str]:
    middle = len(text) // 2
    return [
        text,
        "",
        f"{text[:middle]} of the kind {text[middle:]}",
        f"{text[: middle - 9]}{text[middle:]}",
        text[middle:],
        text.replace("`", "'").replace("find", "locate"),
        text * 3,
        "Something else altogether, of which no word is right.",
        "<|im_end|>\n\ud800" + text,
        "\0\0",
        "word " * 40_000,
    ]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("sampling", SAMPLED)
def test_no_prediction_changes_the_text(
    engines: dict[str, Engine],
    plain: Callable[..., Result],
    draft: str,
    sampling: dict[str, Any],
) -> None:
    expected = plain(**sampling)
    for prediction in predictions(expected.text):
        for depth in (None, DEPTH):
            found = engines[draft].generate(
                QUESTION, max_tokens=100, prediction=prediction, depth=depth, **sampling
            )
            assert found.token_ids == expected.token_ids
            assert (found.text, found.stop_reason) == (expected.text, expected.stop_reason)
            counts = found.stats
            assert 0 <= counts.predicted_accepted <= min(counts.predicted, counts.accepted)
            assert counts.predicted <= counts.drafted
            if not prediction or draft in ("none", "lookup"):
                assert counts.predicted == 0


@pytest.mark.parametrize("rule", ["token", "block"])
def test_rejection_rules_take_it_as_certain(engines: dict[str, Engine], rule: str) -> None:
    """Greedy, they have one text."""
    engine, options = engines["suffix"], {"temperature": 0, "max_tokens": 60, "depth": DEPTH}
    text = engine.generate(QUESTION, **options)
    found = engine.generate(QUESTION, rule=rule, prediction=text.text, **options)
    assert found.token_ids == text.token_ids
    assert found.stats.predicted_accepted > 0


@pytest.mark.parametrize("sampling", SAMPLED)
def test_a_right_one_takes_as_few_steps_as_the_depth_allows(
    engines: dict[str, Engine], plain: Callable[..., Result], sampling: dict[str, Any]
) -> None:
    expected = plain(**sampling)
    engine = engines["suffix"]
    for slot in engine.slots.all:
        for drafter in slot.loaded.drafter_set.drafters:
            drafter.forget()
    ids = expected.token_ids
    assert engine.tokenize(expected.text, add_special=False)[:9] == ids[:9]
    found = engine.generate(
        QUESTION, max_tokens=100, prediction=expected.text, depth=DEPTH, **sampling
    )
    tokens = len(ids) - (expected.stop_reason == "eos")
    # The token that ends the text is not of the prediction.
    assert found.stats.steps == ceil(len(ids) / (DEPTH + 1))
    assert found.stats.predicted == found.stats.predicted_accepted == found.stats.drafted
    assert found.stats.predicted == tokens - ceil(tokens / (DEPTH + 1)) + (
        tokens % (DEPTH + 1) > 0
    ) * (expected.stop_reason == "eos")


def test_a_part_of_a_draft_is_accepted(
    engines: dict[str, Engine], plain: Callable[..., Result]
) -> None:
    expected = plain(temperature=0)
    engine = engines["suffix"]
    ids = engine.tokenize(expected.text, add_special=False)
    wrong = engine.detokenize([*ids[:3], ids[-1]])
    assert engine.tokenize(wrong, add_special=False)[:3] == ids[:3] != ids[1:4]
    engine.generate(OTHER, max_tokens=4)
    engine.drafter_set.drafters[0].forget()
    found = engine.generate(
        QUESTION, max_tokens=100, prediction=wrong, depth=4, drafter="suffix", temperature=0
    )
    assert found.token_ids == expected.token_ids
    assert 3 <= found.stats.predicted_accepted < found.stats.predicted


def forgotten_answer(engine: Engine) -> str:
    """The answer to OTHER, which the drafter has not seen then."""
    answer = engine.generate(OTHER, **SHORT).text
    engine.drafter_set.drafters[0].forget()
    return answer


def test_the_next_text_copies_nothing_from_it(engines: dict[str, Engine]) -> None:
    engine, options = engines["suffix"], SHORT
    answer = forgotten_answer(engine)
    before = engine.generate(QUESTION, **options)
    plainly = engine.generate(OTHER, **options)
    engine.drafter_set.drafters[0].forget()
    again = engine.generate(QUESTION, prediction=answer, **options)
    after = engine.generate(OTHER, **options)
    assert (again.token_ids, after.token_ids) == (before.token_ids, plainly.token_ids)
    assert after.stats.steps == plainly.stats.steps
    assert after.stats.predicted == 0


def test_a_text_that_never_began_leaves_its_prediction_nowhere(engines: dict[str, Engine]) -> None:
    engine, options = engines["suffix"], SHORT
    answer = forgotten_answer(engine)
    engine.stream(OTHER, prediction=answer, **options).close()
    assert engine.generate(OTHER, **options).stats.predicted == 0


def test_beside_other_texts_each_has_its_own(engines: dict[str, Engine]) -> None:
    engine = engines["suffix"]
    options: dict[str, Any] = {"max_tokens": 60, "temperature": 0.8, "depth": DEPTH}
    alone = [engines["none"].generate(QUESTION, **{**options, "seed": s}) for s in range(4)]

    def write(seed: int) -> Result:
        return engine.generate(QUESTION, prediction=alone[seed // 2 * 2].text, seed=seed, **options)

    with ThreadPoolExecutor(4) as users:
        found = list(users.map(write, range(4)))
    assert [each.token_ids for each in found] == [each.token_ids for each in alone]
    for right in found[::2]:
        assert right.stats.predicted_accepted > len(right.token_ids) / 2


def test_a_session_may_be_told_too(engines: dict[str, Engine]) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "depth": DEPTH}
    with localspec.Session(engines["suffix"]) as session:
        first = session.send("How do I find large files?", **options)
        text = first.result().content
    with localspec.Session(engines["suffix"]) as session:
        second = session.send("How do I find large files?", prediction=text, **options)
        assert second.result().content == text
    assert second.stats.predicted_accepted > 0


def test_it_decides_nothing_of_the_text_and_is_in_no_recipe(engines: dict[str, Engine]) -> None:
    engine = engines["suffix"]
    options: dict[str, Any] = {"max_tokens": 30, "temperature": 0.8, "seed": 5, "depth": DEPTH}
    text = engine.generate(QUESTION, **options).text
    running = engine.stream(QUESTION, prediction=f"{text} {text}", **options)
    done = running.result()
    recipe = engine.recipe(running)
    assert text not in repr(asdict(recipe))
    report = audit(engine, Recorded(recipe, done.token_ids, done.origins, done.seed, done.rule))
    assert report.tokens == len(done.token_ids)
    assert report.divergences == []


@pytest.mark.parametrize("value", [5, b"abc", ["a"]])
def test_it_is_a_text(value: object) -> None:
    with pytest.raises(InvalidValueError, match="prediction is "):
        GenerationConfig.of(prediction=value)


@pytest.mark.parametrize(
    ("drafters", "options", "why"),
    [
        (["suffix"], {}, None),
        (["suffix"], {"depth": 4, "drafter": "suffix"}, None),
        ([], {}, "only suffix copies from it; add it to draft"),
        (["lookup", "model"], {}, "only suffix copies from it; add it to draft"),
        (["suffix"], {"depth": 0}, "nothing is drafted at depth 0"),
        (["suffix", "model"], {"drafter": "model"}, "and model alone may draft"),
    ],
)
def test_it_is_known_why_it_has_no_effect(
    drafters: list[str], options: dict[str, Any], why: str | None
) -> None:
    found = prediction_unused(GenerationConfig.of(prediction="a", **options), drafters)
    assert found == why or (why and found and found.endswith(why))
    assert prediction_unused(GenerationConfig.of(**options), drafters) is None
    assert prediction_unused(GenerationConfig.of(prediction="", **options), drafters) is None
