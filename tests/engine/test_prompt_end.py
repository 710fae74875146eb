"""Draft models that read only the end of a long prompt, on real models."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.drafter_kinds import EXACT
from fakes.numpy_llama import NumpyLlama
from fakes.pycode import PYCODE, load
from fakes.respelled import write_respelled
from fakes.tiny import write_tiny

from localspec.control.fixed_depth import FixedDepth
from localspec.drafters.text_chain import TextChain
from localspec.drafters.text_drafter import TextDrafter
from localspec.drafters.text_part import END_TOKENS
from localspec.drafters.translation import Translation
from localspec.engine.engine import Engine
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.passes import Pass, direct
from localspec.speculation.policy import Decision

CODE = "\n".join(
    f"def value_{number}(items):\n    total = {number}\n    for item in items:\n"
    f"        total += item * {number}\n    return total\n"
    for number in range(20)
)
SETTINGS: list[GenerationOptions] = [
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 0.8, "seed": 3, "rule": "block"},
]
DEPTH, TOKENS = 4, 40
VOCABULARIES: list[dict[str, Any]] = [{}, {"merges": 200, "pre": "llama-bpe"}, {"kind": "llama"}]


class FromEnd(FixedDepth):
    """Always drafts, from the end of the prompt."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(drafters, DEPTH)

    def decide(self, limit: Limit) -> Decision:
        return replace(super().decide(limit), from_end=True)


@pytest.fixture(scope="module")
def engine(target_path: Path, drafter_path: Path) -> Iterator[Engine]:
    with load(
        target_path, draft=drafter_path, context=2048, threads=1, flash_attention=True
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(target_path: Path) -> Iterator[Engine]:
    with load(target_path, draft="none", context=2048, threads=1, flash_attention=True) as engine:
        yield engine


def cache_of(engine: Engine) -> KVSequence:
    [sequence] = engine.drafter_set.sequences.values()
    return sequence


def write(engine: Engine, prompt: Sequence[int], options: GenerationOptions) -> list[int]:
    """A text whose drafts all come from the end of the prompt."""
    slot, config = engine.slots.own, GenerationConfig.of(max_tokens=TOKENS, **options)
    written = slot.start(list(prompt), config, policy=FromEnd(engine.drafter_set.drafters))
    result = written.result()
    assert 0 < result.stats.accepted < result.stats.drafted
    return result.token_ids


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_the_text_is_that_of_plain_decoding(
    engine: Engine, plain: Engine, options: GenerationOptions
) -> None:
    prompt = engine.tokenize(CODE)
    assert len(prompt) > 4 * END_TOKENS
    cache_of(engine).truncate(0)
    for turn in range(3):
        text = write(engine, prompt, options)
        if options.get("rule") != "block":
            assert text == plain.generate(prompt, max_tokens=TOKENS, **options).token_ids
        held = cache_of(engine).tokens
        left_out = len(prompt) + len(text) - len(held)
        assert left_out > 3 * END_TOKENS, "it goes on behind what it left out"
        prompt = [*prompt, *text, *engine.tokenize(f"\n\ndef other_{turn}(", add_special=False)]


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=str)
def test_a_drafter_with_another_vocabulary(
    plain: Engine, tmp_path: Path, vocabulary: dict[str, Any]
) -> None:
    """It reads the end of the text, spelled by its own tokenizer as a whole, and drafts so."""
    path = write_respelled(tmp_path / "respelled.gguf", PYCODE.drafter, **vocabulary)
    drafts: list[tuple[Limit, list[int], list[int], list[int]]] = []

    class Noting(FromEnd):
        def decide(self, limit: Limit) -> Decision:
            self.limit = limit
            return super().decide(limit)

        def keep(self, draft: Draft) -> int:
            if len(draft):
                [drafter] = self.drafters
                assert isinstance(drafter, TextDrafter)
                read = len(drafter._text.tokens) - len(drafter._part.gap)
                drafts.append(
                    (self.limit, [*drafter._text._text], held.tokens[:read], [*draft.tokens])
                )
            return len(draft)

    with load(draft=path, context=2048, threads=1, flash_attention=True) as engine:
        held, prompt = cache_of(engine), engine.tokenize(CODE)
        for options in SETTINGS:
            config = GenerationConfig.of(max_tokens=TOKENS, **options)
            policy = Noting(engine.drafter_set.drafters)
            found = engine.slots.own.start(prompt, config, policy=policy).result()
            assert 0 < found.stats.accepted < found.stats.drafted
            if options.get("rule") != "block":
                expected = plain.generate(prompt, max_tokens=TOKENS, **options).token_ids
                assert found.token_ids == expected
        translation, equal = Translation(engine.model, held.model), 0
        params = ContextParams(n_ctx=512, threads=1, flash_attention=True)
        for limit, text, read, tokens in drafts:
            whole = held.model.tokenize(engine.detokenize(text))
            assert END_TOKENS <= len(read) < len(whole) / 3
            assert read == whole[-len(read) :]
            with single_sequence(held.model, params) as fresh:
                logits = direct(Pass(fresh, read)).logits[0]
                chain = TextChain(limit.to(1), translation, 9)
                chain.draw(logits)
            equal += chain.tokens[:1] == tokens[:1]
    # Rows differ in their last digits by the width of a pass, which decides near-ties.
    assert equal > 0.9 * len(drafts) > 20


def test_it_drafts_what_its_model_writes_behind_the_end(tmp_path: Path) -> None:
    """Greedily, by an independent forward of exactly what it has read."""
    path = write_tiny(tmp_path / "small.gguf", "llama", quantised=False, context=1024, seed=2)
    target = write_tiny(tmp_path / "big.gguf", "llama", quantised=False, context=1024)
    small, prompt = NumpyLlama(path), [1, *(100 + 7 * place % 90 for place in range(300))]
    drafts: list[tuple[list[int], list[int]]] = []

    class Noting(FromEnd):
        def keep(self, draft: Draft) -> int:
            if len(draft):
                drafts.append(([*cache_of(engine).tokens], [*map(int, draft.tokens)]))
            return len(draft)

    with load(target, draft=path, **(EXACT | {"context": 1024})) as engine:
        config = GenerationConfig.of(max_tokens=24, temperature=0.0)
        policy = Noting(engine.drafter_set.drafters)
        text = engine.slots.own.start(prompt, config, policy=policy).result().token_ids
    # The first token does not wait for the drafter.
    whole = [*prompt, *text]
    end = whole[len(prompt) + 1 - END_TOKENS :]
    assert len(drafts) > 5
    for cached, tokens in drafts:
        read = cached[: len(cached) - len(tokens) + 1]
        assert read == end[: len(read)] and len(read) >= END_TOKENS
        for count, token in enumerate(tokens):
            assert token == int(small.logits([*read, *tokens[:count]])[-1].argmax())
