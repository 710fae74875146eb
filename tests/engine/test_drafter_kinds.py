"""Drafters of every kind beside targets of every family: the text of plain decoding, and the drafts
of an independent forward, whatever happened to the text before.

Random heads are accepted little and verification hides a broken one: so each draft is compared with
an oracle's, and drafts of any length are made right in any number of places.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.drafter_kinds import EXACT, FIRST, PAIRS, PROMPT, Pair, write_pair
from fakes.eagle3 import LIKELY
from fakes.pycode import load
from fakes.recorder import TIE_OF_FLASH_ATTENTION, Oracle, Recorder, partly_right
from fakes.stateful import examples

from localspec.conversation.session import Session
from localspec.drafters.dflash import Dflash
from localspec.engine.engine import Engine
from localspec.engine.state_store import StateStore
from localspec.generation_config import GenerationConfig
from localspec.llama.context import Context
from localspec.llama.rollback import Rollback
from localspec.speculation.passes import Pass, Scores

TEXTS = (PROMPT, [1, 50], [1, *range(100, 160)], [1, *LIKELY])
# It forbids some of the likely tokens.
GRAMMAR = "root ::= [adens ]+"
DEPTHS = range(1, 9)
SEEDS = range(min(20, examples(2)))


def named(pair: tuple[str, str]) -> str:
    return " on ".join(pair)


@pytest.fixture(scope="module", params=PAIRS, ids=named)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(*request.param, tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def oracle(pair: Pair) -> Iterator[Oracle]:
    with ExitStack() as undo:
        yield pair.oracle(undo)


@pytest.fixture(scope="module")
def plain(pair: Pair) -> Iterator[Engine]:
    with load(pair.target, draft="none", **EXACT) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(pair: Pair) -> Iterator[Engine]:
    with load(pair.target, draft=pair.draft, **EXACT) as engine:
        yield engine


@pytest.fixture
def drafts(pair: Pair, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(pair.drafter, oracle, monkeypatch)


def first_of_each_kind(test: Any) -> Any:
    """Run a test with one target for each kind."""
    return pytest.mark.parametrize("pair", FIRST, ids=named, indirect=True, scope="module")(test)


def test_every_depth_gives_the_text_of_plain_decoding(
    engine: Engine, plain: Engine, drafts: Recorder
) -> None:
    options = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
    expected = plain.generate(PROMPT, **options).token_ids
    # Running states have snapshots of the last 8 tokens.
    for depth in (*DEPTHS, 12):
        found = engine.generate(PROMPT, depth=depth, **options)
        assert found.token_ids == expected
        assert found.stats.drafted
    drafts.check(every=3)
    assert drafts.checked > 20


def test_drafts_that_are_right_in_part(
    pair: Pair, engine: Engine, plain: Engine, drafts: Recorder
) -> None:
    """After each, the drafter proposes what one does that is given the text as a whole."""
    for temperature in (0, 1):
        options = {"temperature": temperature, "seed": 5, "ignore_eos": True}
        expected = [*PROMPT, *plain.generate(PROMPT, max_tokens=70, **options).token_ids]
        with partly_right(pair.drafter, expected) as proposed:
            for depth in DEPTHS[temperature::2]:
                # As many as it takes to accept each number of tokens once.
                tokens = (depth + 1) * (depth + 2) // 2 + depth + 2
                before = accepted(proposed)
                found = engine.generate(PROMPT, max_tokens=tokens, depth=depth, **options)
                assert [*PROMPT, *found.token_ids] == expected[: len(PROMPT) + tokens]
                assert found.stats.accepted == accepted(proposed) - before
                deepest = min(depth, engine.drafter_set.drafters[0].traits.deepest or depth)
                assert all(proposed[deepest, right] for right in range(deepest + 1)), depth
    drafts.check(every=3)
    assert drafts.checked > 60


def accepted(proposed: Counter[tuple[int, int]]) -> int:
    return sum(right * count for (_, right), count in proposed.items())


@pytest.mark.parametrize("temperature", [0.8, 1.0])
def test_seeds_give_the_texts_of_plain_decoding(
    engine: Engine, plain: Engine, drafts: Recorder, temperature: float
) -> None:
    for seed in SEEDS:
        options = {"max_tokens": 16, "temperature": temperature, "seed": seed, "ignore_eos": True}
        # Target and drafter lean to one token, so that some drafts stand for long.
        options["logit_bias"] = {266: float(seed % 4)}
        prompt = [*PROMPT, LIKELY[seed % len(LIKELY)], 20 + seed]
        expected = plain.generate(prompt, **options)
        found = engine.generate(prompt, depth=1 + (3 * seed + 4) % 8, **options)
        assert found.token_ids == expected.token_ids
    drafts.check(every=2)
    assert drafts.checked > 3 * len(SEEDS)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_grammar_is_kept(
    engine: Engine, plain: Engine, drafts: Recorder, temperature: float
) -> None:
    options = {"max_tokens": 12, "temperature": temperature, "seed": 3, "grammar": GRAMMAR}
    expected = plain.generate(PROMPT, **options)
    found = engine.generate(PROMPT, depth=4, **options)
    assert found.token_ids == expected.token_ids
    assert found.stats.drafted
    drafts.check()
    assert drafts.checked


def test_edits_and_cancelled_texts(engine: Engine, plain: Engine, drafts: Recorder) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 1, "ignore_eos": True}
    first = plain.generate(PROMPT, seed=1, **options).token_ids
    texts = [
        [*PROMPT, *first[:5], 40, 41],
        [*PROMPT[:4], 77, *PROMPT[5:]],
        PROMPT[:2],
        [*PROMPT, *first, *LIKELY],
    ]
    for seed, text in enumerate([*texts, PROMPT, texts[-1]]):
        expected = plain.generate(text, seed=seed, **options)
        with engine.stream(text, seed=seed, depth=5, **options) as stream:
            for number, _ in enumerate(stream):
                if number == seed:
                    break
        found = engine.generate(text, seed=seed, depth=1 + seed % 6, **options)
        assert found.token_ids == expected.token_ids
    drafts.check(every=2)
    assert drafts.checked > 25


def test_a_conversation_with_regenerations_edits_stops_and_forks(
    engine: Engine, plain: Engine, drafts: Recorder
) -> None:
    def converse(engine: Engine, **more: int) -> list[str]:
        said: list[str] = []
        with Session(engine, max_tokens=8, seed=3, temperature=1.0, **more) as session:
            said.append(session.send("anbtdnen").result().content)
            said.append(session.regenerate(seed=9).result().content)
            said.append(session.edit(0, "anbtdnbt").result().content)
            with session.fork() as other:
                said.append(other.send("enen").result().content)
                said.append(session.send("anan").result().content)
                said.append(other.regenerate().result().content)
            answer = session.send("stop")
            next(iter(answer))
            answer.close()
            # Where a stop arrives depends on the speed; what is said behind it does too.
            session.send("dn").result()
        return said

    expected = converse(plain)
    assert converse(engine, depth=3) == expected
    assert drafts.drafts
    drafts.check(every=2)


def test_a_text_that_goes_on_is_read_once(engine: Engine) -> None:
    options = {"max_tokens": 12, "temperature": 0, "depth": 3, "ignore_eos": True}
    first = engine.generate(PROMPT, **options)
    longer = [*PROMPT, *first.token_ids, *LIKELY]
    assert engine.generate(longer, **options).stats.prompt_evaluated <= 2 + len(LIKELY)
    # Another answer to the same prompt reads nothing but the pending token.
    assert engine.generate(longer, **{**options, "seed": 3}).stats.prompt_evaluated <= 2


# Of each kind, on one target.


@first_of_each_kind
def test_four_texts_at_once(pair: Pair, drafts: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, together = Context.decode, Counter[int]()

    def slow(self: Context, passes: Sequence[Pass]) -> list[Scores]:
        time.sleep(0.002)  # as with a larger model: the other texts arrive meanwhile
        together[id(self)] = max(together[id(self)], len(passes))
        return usual(self, passes)

    monkeypatch.setattr(Context, "decode", slow)
    options: dict[str, Any] = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    settings = GenerationConfig.of(depth=4, **options)
    # Texts share a cache only with flash attention.
    shared = {**EXACT, "flash_attention": True}
    with load(pair.target, draft="none", **shared) as alone:
        expected = [alone.generate(text, **options).token_ids for text in TEXTS]
    found: dict[int, list[int]] = {}
    with load(pair.target, draft=pair.draft, **shared) as engine:
        slots = [engine.slots.open() for _ in TEXTS]
        contexts = {id(slot.target.context) for slot in slots}
        assert len(contexts) == 1
        heads = [[*slot.loaded.drafter_set.sequences.values()] for slot in slots]
        contexts |= {id(each.context) for head in heads for each in head}
        assert len(contexts) <= 2
        for each in [each for slot in slots for each in slot.loaded.drafter_set.members]:
            # Policies expect that texts share decodes of the same computer, a row for each token.
            by_token = each.sequence and not isinstance(each.drafter, Dflash)
            computer = each.drafter.traits.computer
            assert (computer and computer()) is (each.sequence.context if by_token else None)
        running = [slot.start(text, settings) for slot, text in zip(slots, TEXTS, strict=True)]

        def write(number: int) -> None:
            found[number] = running[number].result().token_ids

        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(TEXTS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(len(TEXTS))] == expected
    # Passes of several texts were computed in one decode, those of target and drafter alike.
    assert all(together[context] > 1 for context in contexts)
    assert sum(each.stats.accepted for each in running)
    drafts.check(tie=TIE_OF_FLASH_ATTENTION)


@first_of_each_kind
def test_rejection_rules_know_the_laws_of_its_drafts(engine: Engine, drafts: Recorder) -> None:
    for rule in ("token", "block"):
        found = engine.generate(PROMPT, max_tokens=20, seed=1, depth=4, rule=rule, ignore_eos=True)
        assert found.stats.drafted
        assert found.rule == rule
    assert all(each.probs for each in drafts.drafts)
    drafts.check()


@first_of_each_kind
def test_saved_caches_are_gone_on_with(
    pair: Pair, engine: Engine, plain: Engine, drafts: Recorder, tmp_path: Path
) -> None:
    options = {"max_tokens": 16, "temperature": 0, "depth": 3, "ignore_eos": True}
    store = StateStore(tmp_path / "states")
    first = engine.generate(PROMPT, **options)
    assert engine.slots.own.save("text", store) is None
    longer = [*PROMPT, *first.token_ids, *LIKELY]
    expected = plain.generate(longer, **{**options, "depth": None})
    with load(pair.target, draft=pair.draft, **EXACT) as other:
        assert other.slots.own.load("text", store) is None
        found = other.generate(longer, **options)
    assert found.token_ids == expected.token_ids
    assert found.stats.drafted
    if engine.slots.own.target.rollback is Rollback.PARTIAL:
        # The hidden rows of the last step's tokens were not saved.
        assert found.stats.prompt_evaluated <= 2 + 4 + len(LIKELY)
    drafts.check()


@first_of_each_kind
def test_auto_depth_and_other_drafters(pair: Pair, plain: Engine, drafts: Recorder) -> None:
    options: dict[str, Any] = {"max_tokens": 30, "temperature": 0.8, "ignore_eos": True}
    with load(pair.target, draft=["suffix", pair.draft], **EXACT) as engine:
        assert len(engine.drafter_set.names) == 2
        for seed in range(3):
            expected = plain.generate(PROMPT, seed=seed, **options)
            assert engine.generate(PROMPT, seed=seed, **options).token_ids == expected.token_ids
        for draft in ("none", pair.draft):
            engine.switch(draft=draft)
            found = engine.generate(PROMPT, seed=2, depth=3, **options)
            assert found.token_ids == expected.token_ids
            assert (found.stats.drafted > 0) == (draft != "none")
    drafts.check(every=3)
