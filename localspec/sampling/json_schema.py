"""JSON schema, as an llguidance grammar."""

import json
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher

from localspec.errors import InvalidValueError
from localspec.sampling.schema_check import (
    References,
    Schema,
    checked,
    list_in,
    required_in,
    spells_texts_one_way,
)
from localspec.sampling.schema_closing import closed
from localspec.sampling.schema_enforcing import with_listed_names
from localspec.sampling.schema_space import space_within

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions


@lru_cache(maxsize=8)
def compile_schema(text: str) -> str:
    """An llguidance grammar of the JSON values that satisfy a schema, keys in the schema's order.

    The values have no members beyond those that the schema names, where it does not allow them
    expressly, and integers have 64 bits: see `closed`.

    Raises InvalidValueError if the text is not JSON, if a keyword is not supported (the message
    names it), or if no finite value satisfies the schema.
    """
    schema = _parsed(text)
    understood = closed(checked(with_listed_names(schema)))
    text, options = json.dumps(understood, default=float), _options(schema, understood)
    try:
        grammar = LLMatcher.grammar_from_json_schema(text, overrides=options)
    except ValueError as error:
        raise InvalidValueError(f"schema: {' '.join(str(error).split())}") from error
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if failed:
        reason = " ".join(messages[0].split())
        if "coerce_one_of" in reason:  # an option of llguidance
            reason = "oneOf is supported only where types or constants tell its schemas apart; "
            reason += "write anyOf"
        raise InvalidValueError(f"schema: {reason:.300}")
    if not _is_finite(schema):
        raise InvalidValueError("schema: every value would contain another one, without end")
    return str(grammar)


def _options(schema: Schema, understood: Schema) -> "JsonCompileOptions":
    """How llguidance reads the schema."""
    options: JsonCompileOptions = {"whitespace_pattern": space_within(understood)}
    if spells_texts_one_way(schema, understood):
        # "\u0061" would pass for another name than "a".
        options["json_allowed_escapes"] = 'nrbtf\\"'
    return options


def _parsed(text: str) -> Schema:
    try:
        schema = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise InvalidValueError(
            f"schema, line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise InvalidValueError("schema: it is nested too deeply") from error
    except InvalidValueError:
        raise
    except (ValueError, ArithmeticError) as error:  # digits beyond what Python converts
        raise InvalidValueError("schema: a number in it has too many digits") from error
    if not isinstance(schema, dict):
        raise InvalidValueError(f"schema: it is {text.strip():.60}, and must be an object")
    return schema


def _refuse(constant: str) -> None:
    raise InvalidValueError(f"schema: {constant} is no number of JSON")


def _is_finite(root: Schema) -> bool:
    """Whether some finite value satisfies a schema; considers only its references."""
    references = References(root)
    unknown, finite = references.names(), set[str]()
    # A reference is finite as soon as what it needs is.
    while found := {each for each in unknown if _ends(references.resolve(each), finite)}:
        finite |= found
        unknown -= found
    return _ends(root, finite)


def _ends(schema: Any, finite: set[str]) -> bool:
    """Whether a finite value satisfies `schema`, given the references that one satisfies."""
    if not isinstance(schema, dict):
        return True
    if isinstance(schema.get("$ref"), str) and schema["$ref"] not in finite:
        return False
    alternatives = [list_in(schema, key) for key in ("anyOf", "oneOf") if key in schema]
    return all(_ends(part, finite) for part in _required_parts(schema)) and all(
        any(_ends(choice, finite) for choice in choices) for choices in alternatives
    )


def _required_parts(schema: Schema) -> list[Any]:
    """The schemas of the parts that every value of this schema must contain."""
    parts = list_in(schema, "allOf")
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        parts += [properties[key] for key in required_in(schema) if key in properties]
    least = schema.get("minItems", 0)
    if schema.get("type") == "array" and isinstance(least, int):
        first = list_in(schema, "prefixItems")
        parts += first[:least]
        if least > len(first):
            parts.append(schema.get("items", True))
    return parts
