"""Schemas: what is written satisfies them; what cannot be kept to is refused by name."""

import json
import time
from random import Random
from typing import Any

import jsonschema
import pytest
from fuzz.campaign import Campaign
from fuzz.schemas import random_case, satisfies, spells, takes, written

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema

NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["v"],
}
NEEDS_ITSELF = {**NODE, "required": ["v", "next"]}

NONSENSE = {"$ref": [1], "required": [[]], "type": "array", "minItems": "a", "properties": 3}

KEPT: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({}, [1, "a", [None], {"a": {}}], []),
    ({"type": "integer", "minimum": 0, "maximum": 120}, [0, 99, 120], [-1, 121, "1"]),
    ({"enum": ["a", 'b"\\', "é"]}, ["a", 'b"\\', "é"], ["b"]),
    ({"type": "array", "items": {"const": 1}, "maxItems": 2}, [[], [1, 1]], [[1, 1, 1], [2]]),
    ({"type": "array", "items": {"$ref": "#"}}, [[], [[], [[]]]], [[1]]),
    ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, [{"v": 1, "next": {"v": 2}}], [{}]),
    (
        {"type": "object", "properties": {"a": True}, "additionalProperties": False},
        [{}, {"a": 1}],
        [{"b": 1}],
    ),
    ({"anyOf": [{"type": "null"}, NEEDS_ITSELF], "$defs": {"node": NODE}}, [None], [1]),
    (
        {"type": "string", "format": "date"},
        ["2024-02-29", "2000-02-29", "2023-02-28", "1999-12-31"],
        ["2024-13-01", "2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01"],
    ),
    (
        {"format": "date-time"},
        ["2024-02-29T23:59:59.25+01:00", "2024-02-29t00:00:00z", 1],
        [
            "2024-02-29T00:00:00." + "1" * 10 + "Z",
            "2023-02-29T00:00:00Z",
            "2016-12-31T23:59:60Z",
            "2024-02-29T24:00:00Z",
        ],
    ),
    ({"format": "duration"}, ["P1Y2M3DT4H", f"PT{10**17}S"], [f"P{10**18}D", "P1"]),
    ({"format": "email"}, ["a@b.example"], ["a" * 245 + "@b.example"]),
    (
        {"format": "hostname"},
        ["a", "a-b.example", "x--y", "a1.b2.c3"],
        ["xn--X", "xn--l-fda.example", "a.xn--vek", "-a", "a-", "a" * 64, "a." * 127 + "a"],
    ),
    (
        {"pattern": r"^[\s\d]\S\\s$"},
        ["\ufeffx\\s", "1x\\s", "\u3000x\\s"],
        ["\x85x\\s", " \ufeff\\s", "  \\s", " x "],
    ),
    ({"$ref": "#foo", "$defs": {"A": {"$anchor": "foo", "type": "integer"}}}, [1], ["1"]),
    ({"type": "number", "minimum": 0.1, "multipleOf": 0.01}, [0.1, 0.57], [0.09, 0.555]),
    ({"type": "integer", "maximum": 2**53}, [2**53], [2**53 + 1, 2**63 - 1]),
    ({"const": {"a": [2**53, 1e15, "\x01"]}}, [{"a": [2**53, 10**15, "\x01"]}], [{"a": []}]),
    ({"type": "object", "required": ["a"], "minProperties": 2}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [None]),
    ({"enum": [{"not": {}}, {"$ref": "#/x", "minItems": 9}]}, [{"not": {}}], [{"not": 1}]),
    ({"enum": [10**22, True, False]}, [10**22, True, False], [10**21, 1, 0]),
    ({"type": "integer", "multipleOf": 10_000}, [0, 20_000], [5_000]),
    ({"const": {"default": 1, "format": "date"}}, [{"default": 1, "format": "date"}], [{}]),
    ({"type": "array", "items": {"type": "string", "pattern": "^.$"}}, [["a"]], [["\r"]]),
    ({"anyOf": [{"type": "string", "pattern": "^.$"}]}, ["a"], ["\r"]),
    ({"format": "email", "allOf": [{"maxLength": 9}]}, ["a@b.cd"], ["a@b.example"]),
    # Nonsense where nobody reads it.
    ({"$defs": {"x": {"$ref": "#/$defs/y"}, "y": NONSENSE}}, [1], []),
    (
        {"properties": {"a": {"type": "string"}}, "additionalProperties": True},
        [{"a": '\b\f\n\r\t"\\/'}],
        [{"a": 1}],
    ),
]


@pytest.mark.parametrize("schema, good, bad", KEPT, ids=range(len(KEPT)))
def test_what_may_be_written(schema: Any, good: list[Any], bad: list[Any]) -> None:
    grammar = compile_schema(json.dumps(schema))
    assert all(takes(grammar, value) for value in good)
    assert not any(takes(grammar, value) for value in bad)


# An object with more members than those that it names.
_OPEN = '{"properties": {"a": %s}, "additionalProperties": {}}'
REFUSED = [
    ("{", "line 1, column 2: Expecting property name"),
    ("[]", r"it is \[\], and must be an object"),
    ("false", "it is false, and must be an object"),
    ('{"not": {}}', "not is {}, and no text can be held to it here; leave it out"),
    ('{"type": "array", "uniqueItems": true}', "uniqueItems is true, .*; leave it out, and check"),
    ('{"$dynamicRef": "#x"}', 'Unimplemented keys: \\["[$]dynamicRef"\\]'),
    ('{"type": "string", "format": "color"}', "Unknown format: color"),
    ('{"type": "string", "pattern": "("}', "unclosed group"),
    ('{"$ref": "#/x"}', "Pointer '/x' does not exist"),
    ('{"type": "integer", "minimum": 5, "maximum": 3}', "Unsatisfiable"),
    ('{"enum": []}', "Unsatisfiable"),
    ('{"oneOf": [{"type": "integer"}, {"minimum": 3}]}', "constants tell .*; write anyOf"),
    ('{"default": NaN}', "NaN is no number of JSON"),
    ('{"default": ' + "[" * 100_000, "it is nested too deeply"),
    ('{"extends": {"type": "string"}}', "extends is of draft 3"),
    ('{"divisibleBy": 2}', "divisibleBy is of draft 3"),
    ('{"unevaluatedProperties": false}', "unevaluatedProperties is false, and no text"),
    ('{"type": "integer", "minimum": -1e19}', "minimum is -1E[+]19; bounds must lie within"),
    ('{"type": "integer", "maximum": 1e19}', "maximum is 1E[+]19; bounds must lie within"),
    ('{"type": "object", "minProperties": 2}', "minProperties is 2; it is supported up to one"),
    ('{"required": ["a", "a"], "minProperties": 3}', "minProperties is 3; .*, which are 1"),
    ('{"type": "string", "format": "email", "allOf": 5}', "allOf"),
    ('{"x-guidance": {"lenient": true}, "not": {}}', "not is {}"),
    ('{"const": "\\ud800"}', "unexpected end of hex escape"),
    (_OPEN % '{"const": "\\u0001"}', "'.x01' has a control character"),
    (_OPEN % '{"pattern": "^\\\\x01"}', "has a control character"),
    (_OPEN % '{"const": {"\\u0001": 1}}', "has a control character"),
    (_OPEN % '{"enum": ["\\u0001"]}', "has a control character"),
    (_OPEN % '{"patternProperties": {"^\\\\x01": {}}}', "has a control character"),
    ('{"properties": {}, "required": ["\\u0001"], "additionalProperties": {}}', "has a control"),
    ('{"const": 1e23}', "const is 1E[+]23; numbers are exact up to"),
    ('{"const": 1' + "0" * 23 + "}", "const is 10+; numbers are exact up to"),
]


@pytest.mark.parametrize("text, message", REFUSED)
def test_what_cannot_be_kept_to_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^schema[:,].*{message}") as error:
        compile_schema(text)
    assert "\n" not in str(error.value)


ENDLESS = [
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    {"anyOf": [{"$ref": "#/$defs/node"}], "$defs": {"node": NEEDS_ITSELF}},
]


@pytest.mark.parametrize("schema", ENDLESS, ids=range(len(ENDLESS)))
def test_what_only_an_endless_value_would_satisfy_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidValueError, match="without end"):
        compile_schema(json.dumps(schema))


_END = {"$ref": "#/$defs/end"}
NEEDS_ANOTHER = {"type": "object", "properties": {"next": _END}, "required": ["next"]}
# Schemas that need themselves, or a part that does, somewhere: what of it a value has to have.
RECURSIVE: list[dict[str, Any]] = [
    *ENDLESS,
    {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"$ref": "#"}, "b": True}, "required": ["b"]},
    {"items": {"$ref": "#"}, "minItems": 1},
    {"type": ["array", "null"], "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 2},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"$ref": "#"}, "minItems": 2},
    *({key: [_END]} for key in ("allOf", "anyOf", "oneOf")),
    {"allOf": [{"$ref": "#/$defs/a~1b~01"}]},
    *({key: [{"type": "null"}, NEEDS_ANOTHER]} for key in ("anyOf", "oneOf")),
]


def small_values() -> list[Any]:
    """JSON values of the shapes that RECURSIVE speaks of."""
    values: list[Any] = [None, 1, [], {}]
    for _ in range(2):
        shapes = ([[x], [None, x], {"a": x}, {"b": 1}, {"v": 1, "next": x}] for x in values)
        values = [*values, *(shape for each in shapes for shape in each)]
    return values


def test_what_some_value_satisfies_is_not_endless() -> None:
    values, node = small_values(), {"$ref": "#/$defs/node"}
    for schema in RECURSIVE:
        document = {"$defs": {"node": NEEDS_ITSELF, "end": node, "a/b~1": node}, **schema}
        valid = jsonschema.Draft202012Validator(document).is_valid
        try:
            compile_schema(json.dumps(document))
        except InvalidValueError as error:
            assert "without end" in str(error), schema
            assert not any(map(valid, values)), schema
        else:
            assert any(map(valid, values)), schema


# What a 64-bit float rounds, what 64 bits do not hold, and what is no number of JSON.
INEXACT = [
    "10000000000000000000001", "-100000000000000000007", "9007199254740993", "9223372036854775807",
    "18446744073709551617", "0.12345678901234567", "1e300", "1e-300", "1e400", "1e-400", "5e-324",
    "1e999999999", "1e99999999999999999999", "9" * 5000, "0." + "1" * 5000, "NaN", "-Infinity",
]  # fmt: skip
KEYWORDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const"]


@pytest.mark.parametrize("place", [*(f'"{key}": %s' for key in KEYWORDS), '"enum": [[1, %s]]'])
@pytest.mark.parametrize("number", INEXACT, ids=range(len(INEXACT)))
def test_a_number_that_would_become_another_is_refused(place: str, number: str) -> None:
    schema = '{"type": ["number", "array"], "items": {' + place % number + "}}"
    with pytest.raises(InvalidValueError, match=r"^schema: ") as error:
        compile_schema(schema)
    assert len(str(error.value)) < 200


def test_a_schema_does_not_choose_how_it_is_read() -> None:
    """By its key of llguidance's: the text would be no JSON, or not of the schema."""
    own = {"item_separator": ";", "key_separator": "=", "lenient": True, "coerce_one_of": True}
    schema = {"type": "array", "items": {"const": {"a": 1}}}
    grammar = compile_schema(json.dumps({**schema, "x-guidance": own}))
    assert grammar == compile_schema(json.dumps(schema))
    assert takes(grammar, [{"a": 1}, {"a": 1}])
    named = {"properties": {"x-guidance": {"const": 1}}}
    assert takes(compile_schema(json.dumps(named)), {"x-guidance": 1})


def test_a_number_that_asks_for_nothing_is_not_looked_at() -> None:
    grammar = compile_schema('{"type": "number", "default": 1e400, "examples": [1e99]}')
    assert takes(grammar, 10**30)


def test_nothing_is_nothing_whatever_its_power_of_ten() -> None:
    assert takes(compile_schema('{"const": 0e999}'), 0)


@pytest.mark.parametrize("multiple", ["0", "-2", "65537", "1e5", "0.123456"])
def test_a_multiple_that_would_take_minutes_is_refused(multiple: str) -> None:
    with pytest.raises(InvalidValueError, match="multipleOf is"):
        compile_schema(f'{{"type": "number", "multipleOf": {multiple}}}')


def definitions(count: int, of: Any) -> dict[str, Any]:
    """A schema of many definitions, each made of the next. of: makes one from a reference."""
    links = {f"d{i}": of({"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{count}": {"type": "integer"}}}


def _array(inner: Any) -> Any:
    return {"type": "array", "items": inner}


def _pair(inner: Any) -> Any:
    return {"type": "array", "prefixItems": [inner, inner], "minItems": 2}


@pytest.mark.parametrize(
    "of", [lambda inner: inner, _array, _pair], ids=["refs", "arrays", "pairs"]
)
def test_what_is_nested_so_deeply_that_it_would_end_the_process_is_refused(of: Any) -> None:
    with pytest.raises(InvalidValueError, match="nested too deeply"):
        compile_schema(json.dumps(definitions(3000, of)))


@pytest.mark.parametrize("order", [1, -1])
def test_references_may_lie_200_deep(order: int) -> None:
    for links, is_refused in ((198, False), (199, True)):
        document = definitions(links, lambda inner: inner)
        document["$defs"] = dict([*document["$defs"].items()][::order])
        try:
            compile_schema(json.dumps(document))
        except InvalidValueError as error:
            assert is_refused and "nested too deeply" in str(error)
        else:
            assert not is_refused


def test_what_is_nested_too_deeply_by_itself_is_refused() -> None:
    nested: Any = {"type": "integer"}
    for _ in range(150):
        nested = _array(nested)
    with pytest.raises(InvalidValueError, match=r"schema: .*(deep|recursion)"):
        compile_schema(json.dumps(nested))


@pytest.mark.parametrize(
    "of", [_pair, lambda inner: {"allOf": [inner, inner]}], ids=["pairs", "all"]
)
def test_references_that_unfold_without_bound_take_no_time(of: Any) -> None:
    start = time.perf_counter()
    compile_schema(json.dumps(definitions(40, of)))
    assert time.perf_counter() - start < 5


OPEN: dict[str, Any] = {"properties": {"a": {"type": "integer"}}, "additionalProperties": True}
NAMED = [
    {"type": "object", **OPEN},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
    {"type": "array", "items": OPEN, "minItems": 1},
]


def test_a_name_that_is_known_has_one_spelling() -> None:
    for schema in NAMED[:2]:
        grammar = compile_schema(json.dumps(schema))
        assert spells(grammar, '{"a": 1}') and spells(grammar, '{"b": "x"}')
        assert not any(spells(grammar, f'{{"\\u0061": {value}}}') for value in (1, '"x"'))


@pytest.mark.parametrize("schema", NAMED, ids=range(len(NAMED)))
def test_no_name_passes_for_another(schema: dict[str, Any]) -> None:
    grammar = compile_schema(json.dumps(schema))
    for seed in range(200):
        text = written(grammar, Random(seed))
        assert text is None or satisfies(text, schema), text


def test_what_random_schemas_write_satisfies_them() -> None:
    campaign = Campaign().run(random_case, range(600))
    assert not campaign.faults, campaign.report()
    assert campaign.ends["valid"] > 250 and campaign.ends["refused"] > 100


def flat(*names: str, of: Any) -> dict[str, Any]:
    """A schema of objects that have these members, and no others."""
    members = {"properties": dict.fromkeys(names, of), "required": [*names]}
    return {"type": "object", **members, "additionalProperties": False}


NESTED = {"type": "array", "items": {"$ref": "#"}}


@pytest.mark.parametrize("indent", [2, 4, "\t"])
@pytest.mark.parametrize(
    "schema, value",
    [
        (flat("a", "b", of={"const": 1}), {"a": 1, "b": 1}),
        (flat("a", of=_array(flat("b", of={"$ref": "#/$defs/x"}))) | {"$defs": {"x": {}}}, None),
        (NESTED, [[[[[]]]]]),
        ({}, [{"a": [{"b": [1]}]}]),
    ],
    ids=["flat", "deep", "recursive", "any"],
)
def test_values_may_be_indented(schema: Any, value: Any, indent: Any) -> None:
    value = {"a": [{"b": 1}]} if value is None else value
    assert spells(compile_schema(json.dumps(schema)), json.dumps(value, indent=indent))


def test_whitespace_drowns_nothing() -> None:
    """However a model likes it: a blank, or a newline and one indent."""
    grammar = compile_schema(json.dumps(flat("a", of={"const": 1})))
    assert spells(grammar, '{\n    "a"\n    :\n    1\n    }')
    for schema in (flat("a", of={"const": 1}), A):
        grammar = compile_schema(json.dumps(schema))
        for space in ("  ", "\n\n", "\n     ", "\n\t\t", "\r", " \n"):
            assert not spells(grammar, f'{{{space}"a": 1}}'), repr(space)


A: dict[str, Any] = {"type": "object", "properties": {"a": {"const": 1}}}
B: dict[str, Any] = {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"]}
C: dict[str, Any] = {"properties": {"c": {"const": 1}}, "required": ["c"]}
R = {"$ref": "#/$defs/r"}
K_OF = {each: {"properties": {"k": {"const": each}}, "required": ["k"]} for each in "xy"}
BOTH = {"allOf": [A, B]}
NAMES = {"enum": ["x", "y"], "type": "string", "title": "Key"}
IN_BOTH = {"properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/$defs/b"}}}
CLOSED: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    (A, [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 1}]),
    ({**A, "additionalProperties": True}, [{"b": 1}, {"a": 1, "b": 2}], []),
    ({**A, "patternProperties": {"^b": {}}}, [{"b": 1}], []),
    ({"type": "object", "properties": {}}, [{}], [{"b": 1}]),
    ({"type": "object"}, [{}, {"b": 1}], []),
    ({"properties": {"a.b": {}}}, [{"a.b": 1}], [{"a": 1}]),
    ({**A, "required": ["a", "b"]}, [{"a": 1, "b": [2]}], [{"a": 1}, {"a": 1, "b": 1, "c": 1}]),
    ({**A, "required": ["a"], "minProperties": 2}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({"anyOf": [A, B]}, [{}, {"a": 1}, {"b": 1}], [{"a": 1, "b": 1}]),
    ({**A, "anyOf": [{"required": ["a"]}]}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    ({"items": {"const": 1}, "uniqueItems": False}, [[1, 1]], [[2]]),
    ({**A, "allOf": [{"anyOf": [{"required": ["a"]}]}]}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    (
        {**A, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
        [{"x": 1}, {"a": 1, "y": 2}],
        [{"a": 1}, {"x": 1, "z": 1}],
    ),
    ({**A, "anyOf": [B], "oneOf": [C]}, [{"a": 1, "b": 1, "c": 1}], [{"a": 1, "b": 1}]),
    (
        {"properties": {"p": R, "q": {**A, **R}}, "$defs": {"r": {"required": ["a"]}}},
        [{"p": {"a": 1, "z": 2}, "q": {"a": 1}}],
        [{"p": {"z": 2}}, {"q": {"a": 1, "z": 2}}],
    ),
    (
        {**A, "oneOf": [K_OF["x"], K_OF["y"]]},
        [{"a": 1, "k": "x"}, {"k": "y"}],
        [{"a": 1}, {"k": "x", "b": 1}],
    ),
    (BOTH, [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}, {"b": 1, "c": 1}]),
    (
        {**A, "$ref": "#/$defs/b", "$defs": {"b": B}},
        [{"a": 1, "b": 1}],
        [{"a": 1}, {"b": 1, "c": 1}],
    ),
    ({"allOf": [BOTH, C]}, [{"a": 1, "b": 1, "c": 1}], [{"b": 1}, {"b": 1, "c": 1, "d": 1}]),
    ({"allOf": [A, {**B, "additionalProperties": True}]}, [{"b": 1, "c": 1}], [{"a": 1}]),
    ({"allOf": [A, {"anyOf": [B, C]}]}, [{"b": 1}, {"c": 1}, {"c": 1, "d": 1}], [{"a": 1}]),
    (
        {**A, "anyOf": [B, {"$ref": "#/$defs/c"}], "$defs": {"c": C}},
        [{"a": 1, "b": 1}, {"c": 1}, {"a": 1, "c": 1}],
        [{"a": 1}, {"b": 1, "c": 1}],
    ),
    (
        {**IN_BOTH, "$defs": {"a": A, "b": {"allOf": [{"$ref": "#/$defs/a"}, B]}}},
        [{"a": {"a": 1}, "b": {"a": 1, "b": 1}}],
        [{"a": {"b": 1}}, {"b": {"b": 1, "c": 1}}],
    ),
    ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": A}}, [{"a": 1}], [{"b": 1}]),
    (
        {"propertyNames": {"$ref": "#/$defs/k"}, "additionalProperties": A, "$defs": {"k": NAMES}},
        [{}, {"x": {}}, {"x": {"a": 1}, "y": {}}],
        [{"z": {}}, {"x": 1}, {"x": {"b": 1}}, {"x": {}, "x2": {}}],
    ),
    (
        {"type": "object", "properties": {"not": A, "enum": A, "$ref": A, "extends": A}},
        [{"not": {"a": 1}, "enum": {}, "$ref": {"a": 1}, "extends": {}}],
        [{"not": {"b": 1}}, {"enum": {"b": 1}}, {"b": 1}],
    ),
    ({"type": "object", "propertyNames": {"const": "x"}, "minProperties": 1}, [{"x": 2}], [{}]),
    ({"type": "integer"}, [0, -1, 2**60, 9_200_000_000_000_000_000], [10**19, -(10**19)]),
    ({"type": "integer", "exclusiveMinimum": 5}, [6, 2**60], [5, -1, 10**19]),
    ({"type": "integer", "exclusiveMaximum": 5}, [4, -(2**60)], [5, 9, -(10**19)]),
    ({"type": ["integer", "null"], "minimum": 5}, [5, None], [4, 10**19]),
    ({"type": ["integer", "number"]}, [10**30], []),
]


@pytest.mark.parametrize("schema, good, bad", CLOSED, ids=range(len(CLOSED)))
def test_what_a_schema_does_not_speak_of_is_not_written(
    schema: Any, good: list[Any], bad: list[Any]
) -> None:
    """A model that does not know when to end would otherwise write members and digits for ever."""
    grammar = compile_schema(json.dumps(schema))
    assert [value for value in good if not takes(grammar, value)] == []
    assert [value for value in bad if takes(grammar, value)] == []
