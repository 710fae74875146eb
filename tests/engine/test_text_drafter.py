"""Drafters with other vocabularies in an engine: the text stays, and drafts are an oracle's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.drafter_kinds import EXACT
from fakes.pycode import PYCODE, load
from fakes.respelled import write_respelled

from localspec.drafters.text_drafter import TextDrafter
from localspec.engine.engine import Engine
from localspec.models.kinds import THROUGH_TEXT
from localspec.models.registry import bundled
from localspec.speculation.rules import RULES

# By name: what is written of the drafter.
VOCABULARIES: dict[str, dict[str, Any]] = {
    "BPE": {},
    "BPE of few tokens": {"merges": 200, "pre": "llama-bpe"},
    "SPM": {"kind": "llama"},
    "SPM of few tokens": {"kind": "llama", "merges": 300},
}
QUESTION = [{"role": "user", "content": "How do I list files by size?"}]
# Characters of several bytes, which only bytes spell, and words that a token boundary cuts.
CODE = 'class Größen:\n    """Names — 日本語 😀."""\n\n    def __init__(self, nam'


@pytest.fixture(scope="module", params=VOCABULARIES)
def drafter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drafter") / "respelled.gguf"
    return write_respelled(path, PYCODE.drafter, **VOCABULARIES[request.param])


@pytest.fixture(scope="module")
def engine(drafter: Path) -> Iterator[Engine]:
    with load(draft=drafter, **EXACT) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain() -> Iterator[Engine]:
    with load(draft="none", **EXACT) as engine:
        yield engine


def test_it_is_said(engine: Engine, drafter: Path) -> None:
    said = f"{drafter.name}: different vocabulary: drafts go through text"
    assert any(said in note for note in engine.slot.loaded.notes)
    [member] = engine.drafter_set.members
    assert isinstance(member.drafter, TextDrafter) and member.kind == THROUGH_TEXT


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_text_stays_and_drafts_are_right_now_and_then(
    engine: Engine, plain: Engine, temperature: float
) -> None:
    drafted = accepted = 0
    for seed, depth in enumerate((1, 3, 4, 8)):
        options = {"max_tokens": 30, "temperature": temperature, "seed": seed}
        found = engine.generate(CODE, depth=depth, **options)
        assert found.token_ids == plain.generate(CODE, **options).token_ids
        drafted, accepted = drafted + found.stats.drafted, accepted + found.stats.accepted
    assert 0.05 * drafted < accepted < drafted


@pytest.mark.parametrize("rule", ["token", "block"])
def test_rules_that_keep_the_distribution_run(engine: Engine, rule: str) -> None:
    """That they are exact for one-hot drafts is shown with toys."""
    found = engine.generate(CODE, max_tokens=40, depth=4, rule=rule, seed=2)
    assert found.stats.drafted and found.stats.accepted
    greedy = {"max_tokens": 24, "temperature": 0}
    expected = engine.generate(CODE, depth=0, **greedy).token_ids
    assert engine.generate(CODE, depth=4, rule=rule, **greedy).token_ids == expected


def test_the_bundled_target_with_another_vocabulary(tmp_path: Path) -> None:
    target, small = bundled()
    drafter = write_respelled(tmp_path / "respelled.gguf", small, kind="llama")
    with load(target, "none", **EXACT) as plain, load(target, drafter, **EXACT) as engine:
        for rule in RULES:
            for temperature in (0, 0.8):
                options = {"max_tokens": 24, "temperature": temperature, "seed": 3}
                found = engine.generate(QUESTION, depth=4, rule=rule, **options)
                assert found.stats.accepted
                if rule == "coupled" or not temperature:
                    assert found.token_ids == plain.generate(QUESTION, **options).token_ids
