"""Texts that begin alike: the beginning is evaluated once, and each goes on as it would alone."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.eagle3 import write_head, write_target
from fakes.matrix_heads import write_medusa
from fakes.pycode import load as load_pycode
from fakes.tiny import N_VOCAB, write_tiny

from localspec import Engine, Session
from localspec.generation_config import GenerationConfig
from localspec.llama.sequence import KVSequence

LONG, NEW, CONTEXT = 2_000, 24, 2_560
SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "llama.gguf"
    return write_tiny(file, "llama", quantised=False, context=CONTEXT)


def load(path: Path, draft: Any = "none") -> Engine:
    return load_pycode(path, draft, context=CONTEXT, threads=1, kv_type="f32", flash_attention=True)


@pytest.fixture(params=["none", "suffix", "model"])
def engine(path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with load(path, path if request.param == "model" else request.param) as engine:
        yield engine


def prompts(count: int) -> list[list[int]]:
    """Prompts that differ after 2,000 tokens."""
    random = np.random.default_rng(3)

    def some(length: int) -> list[int]:
        return [int(token) for token in random.integers(3, N_VOCAB, length)]

    prefix = some(LONG)
    return [[*prefix, *some(12)] for _ in range(count)]


def alone(path: Path, prompt: list[int]) -> list[int]:
    with load(path) as fresh:
        return fresh.generate(prompt, **SETTINGS).token_ids


def test_a_long_prefix_is_evaluated_once(engine: Engine, path: Path) -> None:
    asked = prompts(3)
    expected = [alone(path, prompt) for prompt in asked]
    slots = [engine.slots.open() for _ in asked]
    config = GenerationConfig.of(**SETTINGS)
    generations = [slot.start(prompt, config) for slot, prompt in zip(slots, asked, strict=True)]
    first = generations[0]
    written = [[next(first).id]]
    # The others begin while the first text is being written, and outlive it.
    for generation in generations[1:]:
        written.append([next(generation).id])
        assert generation.stats.prompt_evaluated == 12
        assert generation.stats.prompt_tokens == LONG + 12
    assert first.stats.prompt_evaluated == LONG + 12
    written[0] += [token.id for token in first]
    engine.slots.leave(slots[0])
    threads = [
        threading.Thread(target=lambda own, one: own.extend(each.id for each in one), args=args)
        for args in zip(written[1:], generations[1:], strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert written == expected
    evaluated = [each.sequence.evaluated for slot in slots[1:] for each in slot._caches()]
    assert max(evaluated) < 400
    for slot in slots[1:]:
        engine.slots.leave(slot)


@pytest.mark.parametrize("kind", ["medusa", "eagle3"])
def test_heads_that_need_no_rows_of_a_prompt_share_it(tmp_path: Path, kind: str) -> None:
    target, head = write_target(tmp_path / "target.gguf"), tmp_path / "head.gguf"
    (write_medusa if kind == "medusa" else write_head)(head)
    prompt = [1, *range(100, 200), 40]
    with load_pycode(target, head, context=256, threads=1) as engine:
        slots = [engine.slots.open() for _ in range(2)]
        config = GenerationConfig.of(depth=2, **SETTINGS)
        first, second = (slot.start(prompt, config) for slot in slots)
        written = next(first).id
        assert next(second).id == written
        assert first.stats.prompt_evaluated == len(prompt)
        assert second.stats.prompt_evaluated == (1 if kind == "medusa" else len(prompt))
        assert [each.id for each in first] == [each.id for each in second]
        for slot in slots:
            engine.slots.leave(slot)


def test_a_fork_shares_the_cells_of_its_conversation(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KVSequence, "restore", None)
    with Session(engine, raw=True, **SETTINGS) as session:
        session.send("an" * 300).result()
        with session.fork() as fork:
            mine, its = session._slot.target, fork._slot.target
            assert its.context is mine.context
            assert its.tokens == mine.tokens
            answers = [each.send("bn") for each in (session, fork)]
            for answer in answers:
                answer.result()
            assert answers[0].text == answers[1].text
            assert its.evaluated < 100 < mine.evaluated
        assert session.send("cn").result().written


def test_a_reproducible_text_takes_nothing_from_another(path: Path) -> None:
    asked = prompts(2)
    options = {"context": CONTEXT, "threads": 1, "reproducible": True}
    with load_pycode(path, "none", **options) as engine:  # type: ignore[arg-type]
        slots = [engine.slots.open() for _ in asked]
        config = GenerationConfig.of(**SETTINGS)
        for slot, prompt in zip(slots, asked, strict=True):
            generation = slot.start(prompt, config)
            next(generation)
            assert generation.stats.prompt_evaluated == LONG + 12
