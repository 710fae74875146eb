"""Incomplete JSON: what to say of a text under a schema that was cut off."""

import json
from collections.abc import Iterator

from localspec.sampling.schema_check import all_within, types_in

# What bounds a string or an array, beside the keyword of its size.
_BOUNDS = frozenset({"enum", "const", "format", "pattern", "prefixItems", "$ref"})


def incomplete_json(text: str, schema: str | None, limit: str) -> str:
    """What a text lacks that was cut off under a schema, why that may be, and the way out.

    Empty if there is no schema, or the text is complete JSON. limit: the option that has cut it.
    """
    if schema is None or _is_json(text):
        return ""
    if causes := " and ".join(_unbounded(schema)):
        cause = f"the schema allows {causes}"
        return f"its JSON is not complete: {cause}; bound them, or raise {limit}"
    return f"its JSON is not complete; raise {limit}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _unbounded(schema: str) -> Iterator[str]:
    parts = all_within(json.loads(schema))
    for kind, bound in (("string", "maxLength"), ("array", "maxItems")):
        sizes = _BOUNDS | {bound}
        if any(kind in types_in(each) and not sizes & each.keys() for each in parts):
            yield f"{kind}s without {bound}"
