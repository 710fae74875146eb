"""What is said of an answer under a schema that was cut off."""

import json
from typing import Any

import pytest
from fakes.scripted import Script

from localspec.conversation.events import Notice
from localspec.conversation.incomplete_json import incomplete_json
from localspec.conversation.session import Session

NAMES = {"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}}
BOUNDED = {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 3}


@pytest.mark.parametrize(
    ("schema", "causes"),
    [
        (NAMES, "strings without maxLength and arrays without maxItems"),
        ({**NAMES, "maxItems": 3}, "strings without maxLength"),
        ({"type": ["array", "null"], "items": {"enum": ["a"]}}, "arrays without maxItems"),
        (BOUNDED, ""),
        ({"type": "string", "format": "date"}, ""),
        ({"type": "string", "const": "abc"}, ""),
    ],
)
def test_what_a_schema_leaves_open(schema: dict[str, Any], causes: str) -> None:
    lacking = incomplete_json('["ab', json.dumps(schema), "n")
    cause = f": the schema allows {causes}; bound them, or raise n" if causes else "; raise n"
    assert lacking == f"its JSON is not complete{cause}"
    assert incomplete_json('["ab"]', json.dumps(schema), "n") == ""


def test_without_a_schema_nothing_is_said() -> None:
    assert incomplete_json('["ab', None, "n") == ""


def test_nested_as_deeply_as_nobody_reads() -> None:
    assert incomplete_json("[" * 100_000, json.dumps(BOUNDED), "n")


@pytest.mark.parametrize(
    ("answer", "options", "context", "reason", "limit"),
    [
        ('["' + "a" * 99, {"max_tokens": 5}, 512, "length", "max_tokens"),
        ('["' + "a" * 999, {}, 64, "context", "context"),
        ('["a"]', {}, 512, "eos", ""),
        ('["a"]' + " " * 99, {"max_tokens": 5}, 512, "length", ""),
    ],
)
def test_an_answer_says_it(
    answer: str, options: dict[str, Any], context: int, reason: str, limit: str
) -> None:
    engine: Any = Script(answers=[answer], context=context).load()
    with Session(engine, schema=NAMES, **options) as session:
        running = session.send("names?")
        assert running.stop_reason is None
        lines = [event.line for event in running if isinstance(event, Notice)]
    assert running.stop_reason == reason
    assert running.turn and running.turn.stop_reason == reason
    said = "the answer was cut off; its JSON is not complete: the schema allows strings without"
    assert [line.startswith(said) for line in lines] == [True] * bool(limit)
    assert all(line.endswith(f"raise {limit}") for line in lines)
