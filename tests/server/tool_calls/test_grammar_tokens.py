"""Grammars of calls over a model's vocabulary, whose marks are tokens of their own."""

import random

import pytest
from fakes.tool_answers import TOOLS, Call, contents, parsed

from localspec.generation_config import GenerationConfig
from localspec.llama.grammar import Grammar, special_tokens
from localspec.llama.model import Model
from localspec.server.tool_calls import Family
from localspec.server.tool_calls.gemma_calls import GemmaCalls
from localspec.server.tool_calls.grammar import grammar_for
from localspec.server.tool_calls.object_calls import ObjectCalls
from localspec.server.tool_calls.tagged_calls import TaggedCalls

# Marks that are control tokens of the bundled vocabulary, in families made up of them.
START, END = "<|im_start|>", "<|im_end|>"
MADE_UP = [
    Family("objects", ObjectCalls(START, "</call>", space="\n")),
    Family("gemma", GemmaCalls("<call>", "</call>", START)),
    Family(
        "tags",
        TaggedCalls(START, "</call>", "<key>", "</key>", START, before_value="<value>"),
    ),
]


def test_special_tokens_are_found(target_model: Model) -> None:
    found = special_tokens(target_model, [START, END, "<tool_call>", "def", "", "\n"])
    assert {text: target_model.piece_text(token) for text, token in found.items()} == {
        START: START,
        END: END,
    }


@pytest.mark.parametrize("family", MADE_UP, ids=[family.name for family in MADE_UP])
def test_calls_in_a_models_tokens_parse_back(family: Family, target_model: Model) -> None:
    special = special_tokens(target_model, family.marks)
    assert START in special
    grammar = grammar_for(family, TOOLS, "get_weather", special=special)
    compiled = GenerationConfig(grammar=grammar).compiled_grammar() or ""
    for seed in range(5):
        text = written(Grammar.begin(compiled, target_model), target_model, seed)
        (call,) = contents(parsed(family, [text]))
        assert isinstance(call, Call) and call.complete
        assert "city" in call.arguments


def written(here: Grammar, model: Model, seed: int) -> str:
    """A text that the grammar allows: random tokens, sooner short ones, which end something."""
    draw, pieces = random.Random(seed), b""
    for _ in range(400):
        allowed = [int(token) for token in here.allowed().nonzero()[0]]
        if {*allowed} & {*model.end_tokens}:
            return pieces.decode()
        special = [token for token in allowed if model.piece_text(token) in (START, '"', "}")]
        token = draw.choice(special if special and draw.random() < 0.5 else allowed)
        pieces += model.piece(token) or model.piece_text(token).encode()
        here = here.then(token)
    raise AssertionError(f"it never ends: {pieces!r}")
