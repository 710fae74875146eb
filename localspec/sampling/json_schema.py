"""JSON schema as the grammar that llguidance compiles."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher

from localspec.errors import InvalidValueError

Schema = Mapping[str, Any]

# Between tokens of JSON; bounded, because small models like to write spaces for ever.
_SPACE = r"[ \t\r\n]{1,20}"


@lru_cache(maxsize=8)
def compile_schema(text: str) -> str:
    """A grammar for llguidance: JSON that satisfies the schema, keys in the schema's order.

    Raises InvalidValueError when the text is no JSON, when a keyword is not supported (named),
    and when nothing can satisfy it.
    """
    schema = _parsed(text)
    grammar = LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": _SPACE})
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if failed:
        raise InvalidValueError(f"schema: {' '.join(messages[0].split())}")
    if not _Ends(schema).can(schema, frozenset({"#"})):
        raise InvalidValueError("schema: every value would contain another one, without end")
    return str(grammar)


def _parsed(text: str) -> Schema:
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidValueError(
            f"schema, line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise InvalidValueError("schema: it is nested too deeply") from error
    if not isinstance(schema, dict):
        raise InvalidValueError(f"schema: it is {text.strip():.60}, and must be an object")
    return schema


class _Ends:
    """Whether some finite value satisfies a schema, as far as references decide it."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def can(self, schema: Any, within: frozenset[str]) -> bool:
        """within: the references that this schema is part of; one of them inside never ends."""
        if not isinstance(schema, dict):
            return True
        reference = schema.get("$ref")
        if reference is not None and (
            reference in within or not self.can(self._at(reference), within | {reference})
        ):
            return False
        either = [schema[key] for key in ("anyOf", "oneOf") if key in schema]
        return all(self.can(part, within) for part in self._parts(schema)) and all(
            any(self.can(choice, within) for choice in choices) for choices in either
        )

    def _parts(self, schema: Schema) -> list[Any]:
        """What every value that satisfies it must hold."""
        parts = list(schema.get("allOf", []))
        if schema.get("type") == "object":
            properties = schema.get("properties", {})
            parts += [properties[key] for key in schema.get("required", []) if key in properties]
        if schema.get("type") == "array":
            first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
            parts += first[:least]
            if least > len(first):
                parts.append(schema.get("items", True))
        return parts

    def _at(self, reference: str) -> Any:
        """What a JSON pointer of this document points to; True for what is elsewhere."""
        node: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            node = node.get(key, True) if isinstance(node, dict) else True
        return node
