"""JSON schema, as an llguidance grammar."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher

from localspec.errors import InvalidValueError

Schema = Mapping[str, Any]

# Whitespace between JSON tokens. It is bounded because small models may repeat spaces for ever.
_SPACE = r"[ \t\r\n]{1,20}"


@lru_cache(maxsize=8)
def compile_schema(text: str) -> str:
    """An llguidance grammar of the JSON values that satisfy a schema, keys in the schema's order.

    Raises InvalidValueError if the text is not JSON, if a keyword is not supported (the message
    names it), or if no finite value satisfies the schema.
    """
    schema = _parsed(text)
    grammar = LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": _SPACE})
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if failed:
        raise InvalidValueError(f"schema: {' '.join(messages[0].split())}")
    if not _FiniteCheck(schema).is_finite(schema, frozenset({"#"})):
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


class _FiniteCheck:
    """Checks that some finite value satisfies a schema; considers only its references."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def is_finite(self, schema: Any, within: frozenset[str]) -> bool:
        """Whether a finite value satisfies `schema`.

        within: the references around this schema; a value that must contain one of them again
        is infinite.
        """
        if not isinstance(schema, dict):
            return True
        reference = schema.get("$ref")
        if reference is not None and (
            reference in within
            or not self.is_finite(self._resolve(reference), within | {reference})
        ):
            return False
        alternatives = [schema[key] for key in ("anyOf", "oneOf") if key in schema]
        return all(self.is_finite(part, within) for part in self._parts(schema)) and all(
            any(self.is_finite(choice, within) for choice in choices) for choices in alternatives
        )

    def _parts(self, schema: Schema) -> list[Any]:
        """The schemas of the parts that every value of this schema must contain."""
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

    def _resolve(self, reference: str) -> Any:
        """The schema that a JSON pointer names; True if it is outside this document."""
        node: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            node = node.get(key, True) if isinstance(node, dict) else True
        return node
