"""Tools: the functions that a request declares, with JSON schemas of their arguments."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from localspec.errors import InvalidValueError
from localspec.sampling.schema_enforcing import without_unenforced
from localspec.server.tool_calls.schema_types import types_of
from localspec.utils.format import as_json

# What no family's marks contain, so that a name ends where its mark begins.
_NAME = re.compile(r"[\w.:/@-]{1,128}")
# The keywords of a schema that speaks of arguments.
_OF_ARGUMENTS = {
    "properties", "patternProperties", "additionalProperties", "required", "minProperties",
    "allOf", "anyOf", "oneOf", "$ref", "const", "enum",
}  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.

    parameters: the JSON schema of its arguments, an object.

    Raises InvalidValueError for a name that no family could write, or a schema that is no object.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidValueError(
                f"a tool is named {self.name!r:.80}; use 1 to 128 letters, digits and . : / @ _ -"
            )
        if not isinstance(self.parameters, Mapping):
            raise InvalidValueError(
                f"the parameters of the tool {self.name} are {as_json(self.parameters):.60}; "
                "give a JSON schema of an object"
            )

    @classmethod
    def of(cls, given: Any) -> "Tool":
        """The tool of OpenAI's {"type": "function", "function": {"name": ...}}.

        Raises InvalidValueError for anything else.
        """
        function = given.get("function") if isinstance(given, Mapping) else None
        if not isinstance(function, Mapping):
            raise InvalidValueError(
                f"a tool is {as_json(given):.80}; "
                'give {"type": "function", "function": {"name": ..., "parameters": ...}}'
            )
        parameters, description = function.get("parameters"), function.get("description")
        return cls(
            function.get("name", ""),
            {} if parameters is None else parameters,
            description if isinstance(description, str) else "",
        )

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments: an object, an empty one where none are spoken of."""
        speaks_of_some = self.parameters.keys() & _OF_ARGUMENTS
        none: dict[str, Any] = {} if speaks_of_some else {"properties": {}}
        return {**self._enforced[0], "type": "object", **none}

    @property
    def not_enforced(self) -> list[str]:
        """The keywords of `parameters` that calls are not held to, and `schema` has not."""
        return self._enforced[1]

    @cached_property
    def _enforced(self) -> tuple[Mapping[str, Any], list[str]]:
        return without_unenforced(self.parameters)

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of the declared arguments, by name."""
        properties = self.schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of the arguments that every call has."""
        names = self.parameters.get("required")
        return frozenset(filter(self.properties.__contains__, names if names else ()))

    def types(self, argument: str) -> frozenset[str]:
        """The JSON types that an argument may have; an undeclared one is a string."""
        if argument not in self.properties:
            return frozenset({"string"})
        return types_of(self.properties[argument], self.parameters)


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by their names. Raises InvalidValueError for two of one name."""
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named:
            raise InvalidValueError(f"two tools are named {tool.name}; give each its own name")
        named[tool.name] = tool
    return named
