"""Random JSON schemas: what is compiled is satisfied by every text that is then written."""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from referencing import Registry

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema

_SPACES = {
    r"\s": r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]",
    r"\S": r"[^\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]",
}
_BYTES = LLTokenizer("byte")
_WEIGHTS = {ord('"'): 6.0, ord("}"): 6.0, ord("]"): 6.0, ord("\\"): 4.0, ord("u"): 4.0}

# How the drafts of the JSON Schema test suite are called in its folders, and in "$schema".
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def written(grammar: str, random: Random, *, most: int = 600) -> str | None:
    """A text of a grammar, its bytes drawn at random; None if it has not ended after `most`."""
    matcher, text = LLMatcher(_BYTES, grammar, log_level=0), bytearray()
    while len(text) < most:
        mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        assert not matcher.is_error(), matcher.get_error().splitlines()[0]
        allowed = np.flatnonzero(np.unpackbits(mask, bitorder="little")[:255]).tolist()
        if matcher.is_accepting() and (not allowed or random.random() < 0.4):
            return text.decode()
        weights = [_WEIGHTS.get(byte, 0.05 if byte in b" \t\r\n" else 1.0) for byte in allowed]
        assert allowed, f"no way on after {bytes(text)!r}"
        [byte] = random.choices(allowed, weights)
        assert matcher.consume_token(byte)
        text.append(byte)
    return None


def matching(grammar: str) -> Callable[[Any], bool]:
    """Whether a value may be written as Python writes JSON."""
    matcher = LLMatcher(_BYTES, grammar, log_level=0)

    def takes(value: Any) -> bool:
        return _consumes(matcher, json.dumps(value, ensure_ascii=False))

    return takes


def spells(grammar: str, text: str) -> bool:
    """Whether a text is one of a grammar."""
    return _consumes(LLMatcher(_BYTES, grammar, log_level=0), text)


def _consumes(matcher: LLMatcher, text: str) -> bool:
    matcher.reset()
    tokens = [*text.encode("utf-8", "surrogatepass")]
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def takes(grammar: str, value: Any) -> bool:
    """The same for one value."""
    return matching(grammar)(value)


def satisfies(text: str, schema: dict[str, Any]) -> bool:
    """Whether a JSON text is one of a schema, its formats included.

    Numbers are compared as binary and as decimal fractions: 0.57 is a multiple of 0.01 only as a
    decimal one, and 1.0 is an integer only as a binary one.
    """
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)

    validator = jsonschema.validators.extend(validator, {"pattern": _matches})

    def holds(parse_float: Any) -> bool:
        exact = json.loads(json.dumps(schema), parse_float=parse_float)
        checked = validator(exact, format_checker=validator.FORMAT_CHECKER, registry=Registry())
        return bool(checked.is_valid(json.loads(text, parse_float=parse_float)))

    return holds(float) or holds(Decimal)


def _matches(_: Any, pattern: str, value: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    r"""The keyword `pattern` of ECMAScript: \W and \D know ASCII only, \s all spaces."""
    for each, spaces in _SPACES.items():
        pattern = pattern.replace(each, spaces)
    if isinstance(value, str) and not re.search(pattern, value, re.ASCII):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def is_schema(schema: dict[str, Any]) -> bool:
    """Whether a schema satisfies the schema of its own draft."""
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return bool(validator(validator.META_SCHEMA).is_valid(schema))


def write_and_validate(schema: dict[str, Any], seed: int) -> str:
    """How a schema ended: refused, unfinished or valid. AssertionError: a text broke it."""
    try:
        grammar = compile_schema(json.dumps(schema))
    except InvalidValueError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return "refused"
    text = written(grammar, Random(seed))
    if text is None:
        return "unfinished"
    if not is_schema(schema):
        return "no schema"
    try:
        assert satisfies(text, schema), f"{text} under {json.dumps(schema)}"
    except re.error:
        return "not judged"  # Python has no \p{Letter}
    return "valid"


def random_case(number: int) -> str:
    """A random schema, and a random text of it."""
    return write_and_validate(random_schema(Random(number)), number)


# The JSON Schema test suite, where somebody has a copy.


def suite_cases(folder: Path) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """The name, the schema and the instances of each case of the drafts that are supported."""
    for draft, address in DRAFTS.items():
        for path in sorted((folder / "tests" / draft).rglob("*.json")):
            for case in json.loads(path.read_text()):
                schema = case["schema"]
                if isinstance(schema, dict):
                    name = f"{path.relative_to(folder / 'tests')}: {case['description']}"
                    yield name, {"$schema": address, **schema}, case["tests"]


# Schemas.

_NUMBERS: list[float] = [0, 1, -1, 3, 7, 10, 99, 100, -5, 0.5, 0.1, -0.25, 1e-7, 1.5, 2**31, 1e15]
_ODD_NUMBERS: list[float] = [
    2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 + 1, 10**20, -(10**20), 10**400, 1e300, -1e300,
    1e-300, 0.1234567890123456, 123456789.123456789, 5e-324, -(2**63),
]  # fmt: skip
_TEXTS = ["", "a", "ab", "b", "é", '"', "\\", "a/b", "\n", "\x01", "\x7f", "😀", "0", "true", "a b"]
_PATTERNS = [
    "a", "^a", "a$", "^a+$", "^[a-z]{2,4}$", "a|b", "^a|b$", "^(ab)*$", "[0-9]", "^[0-9]+$",
    "\\x01", "\\n", "^.{3}$", "^[^a]*$", "é", "^\\w+$", "\\\\", '^"$', "^$", "(?i)ab", "\\bab",
    '^[^"]*$', r'^[^"\\]*$', "^[\\x00-\\x1f]*$", "(",
]  # fmt: skip
_FORMATS = ["date", "time", "date-time", "email", "hostname", "ipv4", "ipv6", "uuid", "duration"]
_ODD = [None, True, -1, 1.5, "x", [], {}, [[]], {"a": 1}, 10**30]


def _number(random: Random) -> float:
    return random.choice(_ODD_NUMBERS if random.random() < 0.15 else _NUMBERS)


def _value(random: Random, depth: int = 2) -> Any:
    kind = random.randrange(8 if depth else 5)
    if kind < 2:
        return _number(random)
    if kind < 4:
        return random.choice(_TEXTS)
    if kind == 4:
        return random.choice([None, True, False])
    parts = [_value(random, depth - 1) for _ in range(random.randrange(3))]
    return parts if kind < 6 else {random.choice(_TEXTS): part for part in parts}


def random_schema(random: Random, depth: int = 3) -> Any:
    """A schema with keywords of all kinds; a few of them are nonsense."""
    if random.random() < 0.05:
        return random.random() < 0.8 if depth < 3 else {}
    kinds = [_numeric, _numeric, _textual, _textual, _enumerated]
    kinds += [_array, _object, _object, _combined] if depth else []
    schema = random.choice(kinds)(random, depth)
    if random.random() < 0.1:
        schema |= random.choice(kinds)(random, depth)
    if random.random() < 0.05 and schema:
        schema[random.choice(list(schema))] = random.choice(_ODD)
    if depth == 3:
        schema["$defs"] = {"d": random_schema(random, 1), "e": {"$ref": "#/$defs/d"}}
    elif random.random() < 0.08:
        schema["$ref"] = random.choice(["#/$defs/d", "#/$defs/e", "#", "#/$defs/none"])
    return schema


def _some(random: Random, options: dict[str, Any], share: float = 0.4) -> dict[str, Any]:
    return {key: make() for key, make in options.items() if random.random() < share}


def _numeric(random: Random, depth: int) -> dict[str, Any]:
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    options: dict[str, Any] = {key: lambda: _number(random) for key in bounds}
    steps = [2, 3, 7, 0.5, 0.1, 0.25, 0.01, 1.5, 10, 100, 1e-7, 65537]
    schema = _some(random, options, 0.3) | _some(
        random, {"multipleOf": lambda: random.choice(steps)}, 0.2
    )
    return {"type": random.choice(["integer", "number", ["integer", "null"]])} | schema


def _textual(random: Random, depth: int) -> dict[str, Any]:
    options = {
        "minLength": lambda: random.choice([0, 1, 2, 5]),
        "maxLength": lambda: random.choice([0, 1, 3, 8]),
        "pattern": lambda: random.choice(_PATTERNS),
    }
    schema = {"type": "string"} | _some(random, options)
    if random.random() < 0.2:
        schema["format"] = random.choice(_FORMATS)
    return schema


def _enumerated(random: Random, depth: int) -> dict[str, Any]:
    if random.random() < 0.5:
        return {"const": _value(random)}
    return {"enum": [_value(random) for _ in range(random.randrange(1, 4))]}


def _array(random: Random, depth: int) -> dict[str, Any]:
    options = {
        "items": lambda: random_schema(random, depth - 1),
        "prefixItems": lambda: [random_schema(random, depth - 1) for _ in range(2)],
        "minItems": lambda: random.randrange(3),
        "maxItems": lambda: random.randrange(4),
    }
    return {"type": "array"} | _some(random, options, 0.5)


def _object(random: Random, depth: int) -> dict[str, Any]:
    def schemas(names: list[str]) -> dict[str, Any]:
        return {name: random_schema(random, depth - 1) for name in names}

    options: dict[str, Any] = {
        "properties": lambda: schemas(random.sample(_TEXTS, 2)),
        "patternProperties": lambda: schemas(random.sample(_PATTERNS, 1)),
        "additionalProperties": lambda: random_schema(random, depth - 1),
        "required": lambda: random.sample(_TEXTS, random.randrange(3)),
        "minProperties": lambda: random.randrange(3),
        "maxProperties": lambda: random.randrange(4),
    }
    schema = {"type": "object"} | _some(random, options, 0.35)
    if random.random() < 0.3:
        schema["additionalProperties"] = False
    return schema


def _combined(random: Random, depth: int) -> dict[str, Any]:
    key = random.choice(["anyOf", "allOf", "oneOf"])
    return {key: [random_schema(random, depth - 1) for _ in range(random.randrange(1, 3))]}
