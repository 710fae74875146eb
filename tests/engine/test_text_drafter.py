"""Drafters with other vocabularies in an engine: the text stays, and drafts are an oracle's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.drafter_kinds import EXACT
from fakes.pycode import PYCODE, load
from fakes.recorder import partly_right
from fakes.respelled import write_respelled
from fakes.tiny import write_tiny

from localspec.conversation.session import Session
from localspec.drafters.text_drafter import TextDrafter
from localspec.drafters.translation import Translation
from localspec.engine.engine import Engine
from localspec.engine.prompt import TextPrompt
from localspec.engine.state_store import StateStore
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.models.kinds import THROUGH_TEXT
from localspec.models.registry import bundled
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Passes, run
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
    assert any(said in note for note in engine.slots.own.loaded.notes)
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


@pytest.mark.slow
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


def worded(engine: Engine, text: str) -> list[int]:
    """The tokens of a text in the drafter's vocabulary, as it reads a prompt."""
    [cache] = engine.drafter_set.sequences.values()
    return cache.model.tokenize(text)


def read(engine: Engine) -> list[int]:
    """What the drafter has of its text in its cache."""
    [cache] = engine.drafter_set.sequences.values()
    return cache.tokens


def test_a_conversation_is_read_in_the_drafters_own_template(engine: Engine) -> None:
    engine.generate(QUESTION, max_tokens=8, depth=2, temperature=0)
    expected = worded(engine, "[Q] How do I list files by size? [A] ")
    assert read(engine)[: len(expected)] == expected
    # A text that is no conversation is read as it is, also one that begins with the same tokens.
    tokens = TextPrompt(QUESTION).tokens(engine.model, engine.context)
    engine.generate(tokens, max_tokens=4, depth=2, temperature=0)
    assert read(engine)[: len(expected)] != expected
    engine.generate("def f(x):", max_tokens=4, depth=2, temperature=0)
    expected = worded(engine, "def f(x")
    assert read(engine)[: len(expected)] == expected


def test_a_session_is_read_in_the_drafters_own_template(engine: Engine, plain: Engine) -> None:
    said = []
    for each, depth in ((engine, {"depth": 3}), (plain, {})):
        options = {"max_tokens": 12, "seed": 2, "raw": False}
        with Session(each, system="Be brief.", **options, **depth) as session:
            answers = [session.send("Why?").result().content]
            answers.append(session.regenerate().result().content)
            answers.append(session.send("How?").result().content)
        said.append(answers)
    assert said[0] == said[1]
    [cache] = engine.drafter_set.sequences.values()
    end = cache.model.piece_text(cache.model.eos)
    expected = worded(engine, f"Be brief.{end}[Q] Why? [A] {said[0][1]}{end}[Q] How? [A] ")
    assert read(engine)[: len(expected)] == expected


def test_a_template_that_refuses_is_not_used(
    plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drafter then reads the target's wording."""
    refusing = "{{ raise_exception('no roles') }}"
    monkeypatch.setattr("fakes.respelled.INSTRUCTIONS", refusing)
    path = write_respelled(tmp_path / "refusing.gguf", PYCODE.drafter)
    options = {"max_tokens": 8, "temperature": 0}
    with load(draft=path, **EXACT) as engine:
        found = engine.generate(QUESTION, depth=2, **options)
        assert found.token_ids == plain.generate(QUESTION, **options).token_ids
        assert found.stats.drafted
        with Session(engine, raw=False, depth=2, **options) as session:
            assert session.send("Why?").result().content


def test_its_context_counts_its_own_tokens(tmp_path: Path) -> None:
    """It is made longer where its tokens are shorter; without room for all it reads the end."""
    few: dict[str, Any] = {"merges": 30}
    long = write_respelled(tmp_path / "long.gguf", PYCODE.drafter, **few)
    short = write_respelled(tmp_path / "short.gguf", PYCODE.drafter, **few, context=256)
    text = "x = [name for name in names]\n" * 12
    options = {"max_tokens": 6, "temperature": 0, "depth": 2}
    drafted = {}
    for path in (long, short):
        with load(draft=path, **EXACT) as engine:
            [cache] = engine.drafter_set.sequences.values()
            notes = " ".join(engine.slots.own.loaded.notes)
            found = engine.generate(text, **options)
            drafted[path] = found.stats.drafted
            assert found.token_ids == engine.generate(text, **{**options, "depth": 0}).token_ids
            assert len(cache.tokens) < len(engine.tokenize(text)) or path == long
            assert (cache.n_ctx > engine.context) is (path == long)
            assert ("behind longer prompts it drafts from their end alone" in notes) is (
                path == short
            )
            assert engine.generate("def f(x):", **options).stats.drafted
    assert drafted[long] and drafted[short]


def test_several_texts_and_saved_caches(engine: Engine, plain: Engine, tmp_path: Path) -> None:
    """Each text has a drafter and a cache of its own; both are found again on the disk."""
    options: dict[str, Any] = {"max_tokens": 20, "temperature": 0.8, "seed": 4}
    texts = [CODE, "def g(x):\n    return", QUESTION]
    expected = [plain.generate(text, **options).token_ids for text in texts]
    found = engine.generate(texts, depth=3, **options)
    assert [each.token_ids for each in found] == expected
    assert all(each.stats.drafted for each in found)
    store = StateStore(tmp_path / "states")
    first = engine.generate(CODE, depth=3, **options)
    assert engine.slots.own.save("text", store) is None
    engine.generate("import os", depth=3, **options)
    assert engine.slots.own.load("text", store) is None
    longer = [*engine.tokenize(CODE), *first.token_ids, *engine.tokenize("\n", add_special=False)]
    [drafter] = engine.drafter_set.drafters
    drafter.begin(longer)
    assert drafter.traits.backlog and drafter.traits.backlog() < 12
    found = engine.generate(longer, depth=3, **options)
    assert found.token_ids == plain.generate(longer, **options).token_ids


@pytest.mark.parametrize("family", ["mamba", "qwen35", "gemma3"])
def test_a_drafter_with_a_running_state_or_a_window(
    family: str, plain: Engine, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path / f"{family}.gguf", family, quantised=False)
    with load(draft=path, **EXACT) as engine:
        for seed, depth in enumerate((1, 3)):
            options = {"max_tokens": 16, "temperature": 0.8, "seed": seed}
            found = engine.generate(CODE, depth=depth, **options)
            assert found.stats.drafted
            assert found.token_ids == plain.generate(CODE, **options).token_ids


def test_a_grammar_is_kept(engine: Engine, plain: Engine) -> None:
    options = {"max_tokens": 16, "temperature": 0.8, "grammar": 'root ::= ("self" | "é" | " ")+'}
    drafted = 0
    for seed in range(3):
        found = engine.generate(CODE, depth=4, seed=seed, **options)
        assert found.token_ids == plain.generate(CODE, seed=seed, **options).token_ids
        drafted += found.stats.drafted
    assert drafted


def test_drafts_that_are_right_in_part(
    engine: Engine, plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each, it drafts what a new drafter does that is given the text as a whole."""
    recorded: list[tuple[list[int], Limit, list[int]]] = []
    usual = TextDrafter.passes

    def passes(self: TextDrafter, limit: Limit) -> Passes[Draft]:
        draft = yield from usual(self, limit)
        recorded.append((list(self._text._text), limit, [int(token) for token in draft.tokens]))
        return draft

    options = {"temperature": 0.8, "seed": 5, "ignore_eos": True}
    prompt = engine.tokenize(CODE)
    expected = [*prompt, *plain.generate(prompt, max_tokens=90, **options).token_ids]
    with monkeypatch.context() as patch:
        patch.setattr(TextDrafter, "passes", passes)
        with partly_right(TextDrafter, expected) as proposed:
            found = engine.generate(prompt, max_tokens=70, depth=3, **options)
    assert [*prompt, *found.token_ids] == expected[: len(prompt) + 70]
    assert found.stats.accepted == sum(right * count for (_, right), count in proposed.items())
    assert all(proposed[3, right] for right in range(4))
    [cache] = engine.drafter_set.sequences.values()
    translation = Translation(engine.model, cache.model)
    equal = 0
    for text, limit, tokens in recorded:
        with single_sequence(
            cache.model, ContextParams(n_ctx=512, threads=1, flash_attention=True)
        ) as fresh:
            new = TextDrafter(fresh, name="new", translation=translation)
            new.begin(text)
            equal += [int(token) for token in run(new.passes(limit)).tokens] == tokens
    # Rows differ in their last digits by the width of a pass, which decides near-ties.
    assert equal >= 0.6 * len(recorded) > 10
