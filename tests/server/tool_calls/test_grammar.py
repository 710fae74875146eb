"""What a grammar allows are calls that parse back, with arguments that are valid."""

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema
import pytest
from fakes.tool_answers import TOOLS, WEATHER, Call, Thought, contents, parsed
from llguidance import LLMatcher, LLTokenizer

from localspec.conversation.reasoning import THINK
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.sampling.gbnf import compile_gbnf
from localspec.sampling.json_schema import compile_schema
from localspec.sampling.lark import compile_lark, lark_of_choice, lark_of_regex
from localspec.server.tool_calls import Family, Tool, families
from localspec.server.tool_calls.families import FAMILIES, HARMONY
from localspec.server.tool_calls.grammar import answer_grammar, grammar_for

BYTES = LLTokenizer("byte")
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[f.name for f in FAMILIES])
ODD = Tool(
    "odd.tool",
    {
        "properties": {
            "code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-c</>]+$"},
            "mode": {"enum": ["r/w", "x y", 3, None]},
            "either": {"anyOf": [{"type": "integer", "minimum": 7}, {"const": "auto"}]},
            "deep": {
                "type": "object",
                "properties": {
                    "on": {"type": "boolean"},
                    "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                },
                "required": ["list"],
                "additionalProperties": False,
            },
        },
        "required": ["mode", "code"],
        "additionalProperties": False,
    },
)
TREE = Tool(
    "tree",
    {
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "kind": {"enum": ["a", "b"]},
                    "below": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["kind"],
                "additionalProperties": False,
            }
        },
    },
)
ALL = (*TOOLS, ODD, TREE)


def compiled(grammar: str) -> str:
    return GenerationConfig(grammar=grammar).compiled_grammar() or ""


def takes(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, compiled(grammar), log_level=0)
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


# What ends strings, numbers and free text; random letters would hardly ever find it.
ENDS = [
    *("\n</parameter>", "</parameter>", "</arg_value>", '<|"|>', "<escape>", "<|end|>"),
    *('"', "}", "]", ")", ",", "</tool_call>", "\n```", "\n"),
]


# ASCII, and what a special blank begins with, which marks contain.
_LETTERS = [*range(32, 127), 0xE2]


def written(grammar: str, seed: int) -> str:
    """A text that the grammar allows: at random, sooner ends than letters."""
    matcher, draw = LLMatcher(BYTES, compiled(grammar), log_level=0), random.Random(seed)
    text = b""
    while len(text) < 3000:
        if matcher.is_accepting() and draw.random() < 0.4:
            break
        bits = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [bytes([byte]) for byte in _LETTERS if bits >> byte & 1]
        ends = [end.encode() for end in ENDS]
        ends = [end for end in ends if matcher.validate_tokens(list(end)) == len(end)]
        if not allowed and not ends:
            allowed = [bytes([byte]) for byte in range(256) if bits >> byte & 1]
        if not allowed + ends:
            break
        piece = draw.choice(ends if not allowed or (ends and draw.random() < 0.6) else allowed)
        assert matcher.consume_tokens(list(piece)), matcher.get_error()
        text += piece
    assert matcher.is_accepting(), text
    return text.decode()


def calls_in(family: Family, text: str, tools: Iterable[Tool] = ALL) -> list[Any]:
    """What an answer holds beside reasoning."""
    parts = contents(parsed(family, [text], tools))
    return [part for part in parts if not isinstance(part, Thought)]


@each_family
def test_a_mark_behind_a_whole_call_that_is_cut_off_is_no_text(family: Family) -> None:
    tool = Tool("now")
    text = written(grammar_for(family, [tool], "now"), 2)
    for end in range(len(text)):
        parts = contents(parsed(family, [text[:end]], [tool]))
        if Call("now", {}) in parts:
            assert not [part for part in parts if isinstance(part, str) and part.strip()], text[
                :end
            ]


@each_family
def test_what_no_call_is_held_to_is_left_out(family: Family) -> None:
    tags = {"type": "array", "items": {"const": 1}, "minItems": 1, "uniqueItems": True}
    tool = Tool("f", {"properties": {"tags": tags}, "required": ["tags"], "not": {}})
    assert tool.not_enforced == ["not", "uniqueItems"]
    (call,) = calls_in(family, written(grammar_for(family, [tool], "f"), 1), [tool])
    assert {*call.arguments["tags"]} == {1}


@each_family
def test_a_tool_without_parameters_gets_no_arguments(family: Family) -> None:
    for parameters in (None, {}, {"type": "object"}):
        tool = Tool.of({"function": {"name": "now", "parameters": parameters}})
        grammar = grammar_for(family, [tool], "now")
        for seed in range(2):
            assert calls_in(family, written(grammar, seed), [tool]) == [Call("now", {})]


def require_valid(calls: Iterable[Any], tools: Iterable[Tool]) -> None:
    schemas: Mapping[str, Any] = {tool.name: tool.schema for tool in tools}
    for call in calls:
        assert isinstance(call, Call) and call.complete, call
        jsonschema.validate(call.arguments, schemas[call.name])


@each_family
@pytest.mark.parametrize("parallel", [True, False], ids=["several", "one"])
def test_what_is_written_parses_back(family: Family, parallel: bool) -> None:
    grammar = grammar_for(family, ALL, parallel=parallel)
    counts = set()
    for seed in range(20):
        calls = calls_in(family, written(grammar, seed))
        require_valid(calls, ALL)
        counts.add(len(calls))
    assert counts == {1} if not parallel or family == HARMONY else max(counts) > 1


@each_family
def test_a_named_tool_is_called_once(family: Family) -> None:
    grammar = grammar_for(family, ALL, "odd.tool")
    for seed in range(10):
        calls = calls_in(family, written(grammar, seed))
        assert [call.name for call in calls] == ["odd.tool"]
        require_valid(calls, ALL)


LIKE_THE_TEMPLATE = [
    (
        families.HERMES,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    ),
    (families.LLAMA, '{"name": "get_weather", "parameters": {"city": "Paris"}}'),
    (families.MISTRAL, '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}'),
    (
        families.QWEN_XML,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    ),
    (families.QWEN_XML, "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"),
    (
        families.GLM,
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "</tool_call>",
    ),
    (
        families.GLM,
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
    ),
    (
        families.KIMI,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    (families.GEMMA, '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>'),
    (families.PYTHONIC, '[get_weather(city="Paris", alerts=True), get_time()]'),
    (
        families.HARMONY,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}',
    ),
]


@pytest.mark.parametrize(
    ("family", "text"),
    LIKE_THE_TEMPLATE,
    ids=[f"{i} {family.name}" for i, (family, _) in enumerate(LIKE_THE_TEMPLATE)],
)
def test_what_the_template_writes_is_allowed(family: Family, text: str) -> None:
    grammar = grammar_for(family, TOOLS)
    assert takes(grammar, text)
    assert not takes(grammar, "Sure. " + text)
    assert not takes(grammar, text.replace("get_", "rm_"))
    assert not takes(grammar, "Sure.")


def test_reasoning_may_precede_a_call() -> None:
    call = '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'
    grammar = grammar_for(families.HERMES, TOOLS, reasoning=THINK)
    assert takes(grammar, call)
    assert takes(grammar, f"<think>\nWell, <b>.\n</think>\n\n{call}")
    assert not takes(grammar, f"Well.</think>{call}")
    inside = grammar_for(families.HERMES, TOOLS, reasoning=THINK, thinking=True)
    assert takes(inside, f"Well.</think>{call}")
    assert not takes(inside, call)


def test_marks_that_are_tokens_are_written_as_tokens() -> None:
    """The matcher's special tokens have no bytes, so that a mark's letters are refused."""
    grammar = grammar_for(families.MISTRAL, TOOLS, special={"[TOOL_CALLS]": 5, "[ARGS]": 6})
    assert "start: " in grammar and "<[5]>" in grammar and "<[6]>" in grammar
    assert "[TOOL_CALLS]" not in grammar
    gemma = grammar_for(families.GEMMA, TOOLS, special={'<|"|>': 7})
    assert '<|\\"|>' not in gemma and "<[7]>" in gemma


@pytest.mark.parametrize(
    ("tools", "name", "message"),
    [
        (TOOLS, "rm", "tool_choice names 'rm'; the tools are: get_weather, get, get_time"),
        ((), None, "there are no tools; declare one"),
        (
            [Tool("a", {"properties": {"x": {"enum": []}}, "required": ["x"]})],
            None,
            "parameters of the tool a: ",
        ),
        (
            [Tool("a", {"properties": {"x": {"$ref": "#/properties/x"}}, "required": ["x"]})],
            None,
            "parameters of the tool a: schema",
        ),
    ],
    ids=["unknown", "none", "empty enum", "endless"],
)
def test_choices_that_cannot_be_met(tools: Iterable[Tool], name: str | None, message: str) -> None:
    for family in FAMILIES:
        with pytest.raises(InvalidValueError, match=message):
            grammar_for(family, tools, name)


def test_a_python_call_cannot_have_every_name() -> None:
    tool = Tool("a", {"properties": {"x-y": {"type": "string"}}, "required": ["x-y"]})
    with pytest.raises(InvalidValueError, match="the tool a requires the argument 'x-y'"):
        grammar_for(families.PYTHONIC, [tool])


def test_a_broken_lark_grammar_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"grammar: .*nothing"):
        GenerationConfig(grammar="%llguidance {}\nstart: nothing\n")
    assert takes("%llguidance {}\nstart: %json " + json.dumps(WEATHER.schema), '{"city": "a"}')


OPEN = Tool("open", {"properties": {"mode": {"enum": ["r", "w"]}}, "required": ["mode"]})
POINT = {
    "type": "object",
    "properties": {"x": {"enum": [1, 2]}},
    "required": ["x"],
    "additionalProperties": False,
}
COMPILED = compile_schema(json.dumps(POINT))


def test_json_may_follow_reasoning() -> None:
    """As an answer that begins within reasoning would otherwise be nothing but that."""
    free = answer_grammar(families.HERMES, COMPILED, reasoning=THINK)
    assert takes(free, '{"x": 1}')
    assert takes(free, '<think>\nOne, {"x": 3}?</think>\n\n{"x": 2}')
    assert not takes(free, '<think>\nOne.</think>\n\n{"x": 3}')
    begun = answer_grammar(families.HERMES, COMPILED, reasoning=THINK, thinking=True)
    assert takes(begun, 'One.</think>\n{"x": 1}')
    assert not takes(begun, '{"x": 1}')
    plain = answer_grammar(families.HERMES, COMPILED)
    assert takes(plain, '{"x": 1}')
    assert not takes(plain, '<think></think>{"x": 1}')


@pytest.mark.parametrize(
    ("compiled_answer", "texts"),
    [
        (compile_lark(lark_of_regex(r"[ab]/\}")), {"a/}", "b/}"}),
        (compile_lark(lark_of_choice(["b/}", "}\n"])), {"b/}", "}\n"}),
        (compile_gbnf('root ::= "a/" [}\\n]'), {"a/}", "a/\n"}),
    ],
    ids=["regex", "choice", "gbnf"],
)
@each_family
def test_any_text_may_stand_in_place_of_calls(
    family: Family, compiled_answer: str, texts: set[str]
) -> None:
    """One grammar within the other, whatever brackets and slashes it is written with."""
    grammar = answer_grammar(family, compiled_answer, [OPEN], parallel=False)
    found = [contents(parsed(family, [written(grammar, seed)], [OPEN])) for seed in range(24)]
    assert {part for parts in found for part in parts if isinstance(part, str)} == texts
    assert any(isinstance(parts[-1], Call) for parts in found)


@each_family
def test_json_or_calls(family: Family) -> None:
    """Where tools are offered, an answer of JSON may be a call instead."""
    grammar = answer_grammar(family, COMPILED, [OPEN], parallel=False)
    found = [written(grammar, seed) for seed in range(12)]
    parts = [contents(parsed(family, [text], [OPEN])) for text in found]
    calls = [part[-1] for part in parts if isinstance(part[-1], Call)]
    assert 0 < len(calls) < len(found)
    assert {call.name for call in calls} == {"open"}
    for part in parts:
        if not isinstance(part[-1], Call):
            jsonschema.validate(json.loads(str(part[-1])), POINT)
