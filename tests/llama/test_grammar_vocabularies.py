"""Grammars over vocabularies with special tokens that llama.cpp finds in any text."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from fakes.grammars import is_utf8, reference, text_of, walk
from fakes.tiny import FAMILIES, write_tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from localspec.llama import grammar
from localspec.llama.grammar import Grammar, special_tokens
from localspec.llama.model import Model
from localspec.sampling.gbnf import compile_gbnf

THINK, THOUGHT, TURN, CALL, PADDING = 273, 274, 275, 276, 278
USER_DEFINED, CONTROL, UNUSED = 4, 3, 5
TOKENS = {
    THINK: ("<think>", USER_DEFINED),
    THOUGHT: ("</think>", USER_DEFINED),
    TURN: ("<|turn|>", CONTROL),
    CALL: ('{"name": "', USER_DEFINED),
    277: ("▁", 1),
    PADDING: ("[PAD278]", UNUSED),
}
# A family, and whether its vocabulary of SentencePiece has a token for a space.
VOCABULARIES = [("llama", False), ("llama", True), ("gemma3", True), ("qwen3", False)]


def with_tokens(family: str, *, space: bool) -> Callable[..., None]:
    """Writes a model of a family, with TOKENS in place of some of its words."""

    def layers(writer: Any) -> None:
        FAMILIES[family](writer)
        values = writer.gguf.kv_data[0]
        tokens = values["tokenizer.ggml.tokens"].value
        for token, (text, kind) in TOKENS.items():
            if space or text != "▁":
                tokens[token] = text
                values["tokenizer.ggml.token_type"].value[token] = kind
        if merges := values.get("tokenizer.ggml.merges"):
            merges.value[:] = [each for each in merges.value if each.replace(" ", "") in tokens]

    return layers


@pytest.fixture(scope="module", params=VOCABULARIES, ids=str)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    family, space = request.param
    path = Path(tmp_path_factory.mktemp("tiny")) / "tiny.gguf"
    with Model(write_tiny(path, family, layers=with_tokens(family, space=space))) as model:
        yield model


def special_of(model: Model) -> list[int]:
    found = special_tokens(model, ["<unk>", "<s>", "</s>", *(text for text, _ in TOKENS.values())])
    assert {THINK, THOUGHT, TURN} <= {*found.values()} and CALL not in found.values()
    return [*found.values()]


FORCED = [
    "a</think>b",
    "<think> é </think>  x",
    "<|turn|>",
    "a<unk>b",
    '{"name": "x"}',
    "<<think>>",
]


@pytest.mark.parametrize("forced", FORCED)
def test_the_text_of_a_special_token_is_written_in_other_tokens(model: Model, forced: str) -> None:
    special, quoted = special_of(model), forced.replace('"', '\\"')
    for rule in (f'root ::= "{quoted}"', f'root ::= ("{quoted}" | "{quoted}!") "c"?'):
        tokens = walk(Grammar.begin(compile_gbnf(rule), model), model, seed=1, steps=60)
        assert text_of(tokens, model).rstrip("c!") == forced
        assert not {*tokens} & {*special}


RULES = {
    "reasoning": 'root ::= "<think>" [a-z ]{0,9} "</think>" [a-z]{3}',
    "a choice": 'root ::= "a</think>b" | "c" | "a<unk>"',
    "anything": r"root ::= [^\x00]*",
    "an object": 'root ::= "{\\"name\\": \\"" [a-z<>/]* "\\"}"',
}


@pytest.mark.parametrize("name", RULES)
def test_masks_are_those_of_llama_cpp_without_special_tokens(model: Model, name: str) -> None:
    """llama.cpp takes tokens that an author defined for their text, and no others for any."""
    ordinary = np.ones(model.n_vocab, np.bool_)
    ordinary[special_of(model)] = False
    ordinary[[*model.end_tokens]] = True
    pieces = [model.piece(token) for token in range(model.n_vocab)]
    equal = 0
    for seed in range(3):
        with reference(RULES[name], model) as (allowed, accept):
            state, text = Grammar.begin(compile_gbnf(RULES[name]), model), b""
            for token in walk(state, model, seed, steps=30):
                expected, found = allowed() & ordinary, state.allowed()
                assert not (found & ~expected).any()
                missing = np.flatnonzero(expected & ~found)
                if not any(is_utf8(text + pieces[each]) for each in missing):
                    equal += 1
                else:
                    assert found.sum() == 1
                accept(token)
                state, text = state.then(token), text + pieces[token]
    assert equal


OBJECT = (
    'r: %json {"type": "object", "properties": {"path": {"type": "string"}}, '
    '"required": ["path"], "additionalProperties": false}'
)
LARK = [
    f'start: "abcdefgh" <[{THOUGHT}]> "xy"',
    f"start: /[a-h]*/ <[{THOUGHT}]> /[xy]*/",
    f'start: T <[{THOUGHT}]> "\\n" r\nT: /(?s:.*)/\n{OBJECT}',
    f'start: (r "\\n" <[{TURN}]> <[{THINK}]>)+\n{OBJECT}',
    f"start: (<[{THINK}]> /[a-c]{{1,4}}/ <[{THOUGHT}]> | <[{TURN}]> /[a-c]+/)+",
]
MOVES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=6)


def mask_of(matcher: LLMatcher, model: Model) -> list[int]:
    """The tokens that it allows, without those that end the text."""
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    assert not matcher.is_error(), matcher.get_error()
    allowed = np.unpackbits(bits, count=model.n_vocab, bitorder="little")
    allowed[[*model.end_tokens]] = 0
    found: list[int] = np.flatnonzero(allowed).tolist()
    return found


@pytest.mark.parametrize("lark", LARK)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), moves=MOVES)
def test_what_was_taken_back_leaves_no_trace(
    model: Model, lark: str, seed: int, moves: list[tuple[int, int]]
) -> None:
    """As after rejected drafts: a matcher allows what one does that never went further.

    moves: how many tokens are taken back, and how many follow then.
    """
    compiled, draw = f"%llguidance {{}}\n{lark}", Random(seed)
    matcher, tokens = grammar._begun(compiled, model), list[int]()
    for back, forward in moves:
        matcher.rollback(min(back, len(tokens)))
        del tokens[max(0, len(tokens) - back) :]
        for _ in range(forward):
            fresh = grammar._begun(compiled, model)
            fresh.consume_tokens(tokens)
            allowed = mask_of(matcher, model)
            assert allowed == mask_of(fresh, model), tokens
            if not allowed:
                break
            special = [each for each in allowed if THINK <= each <= TURN]
            token = draw.choice(special if special and draw.random() < 0.5 else allowed)
            matcher.consume_token(token)
            tokens.append(token)
