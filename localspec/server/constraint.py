"""Constraint: what a text must satisfy, in the words of several servers' requests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.errors import InvalidValueError
from localspec.generation_config import as_schema
from localspec.sampling.lark import HEADER, lark_of_choice, lark_of_regex
from localspec.sampling.schema_enforcing import without_unenforced
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.utils.unicode import is_unicode

# Characters of a grammar or schema: as many as OpenAI allows.
MOST_GRAMMAR = 120_000
# llama-server's grammar, which describes reasoning too.
_OF_ALL = "grammar"
# What else stands in vLLM's `structured_outputs`, and what it is where it changes nothing here.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "structural_tag": (),
    "whitespace_pattern": (),
    "disable_any_whitespace": (False,),
    # What a schema does not speak of is not written here, and no backend stands in for another.
    "disable_additional_properties": (True, False),
    "disable_fallback": (True, False),
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar or a schema, or none.

    options: those of GenerationConfig. not_enforced: what of a schema is left out of them. of_all:
    whether it describes reasoning before the answer too.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    not_enforced: tuple[str, ...] = ()
    of_all: bool = False

    @classmethod
    def of(cls, body: Fields, named: Mapping[str, Mapping[str, Any] | None]) -> "Constraint":
        """The one that a request has. named: those in OpenAI's form, by the member they are of.

        Raises ApiError and InvalidValueError for several, and for what is none.
        """
        structured = body.member("structured_outputs") or Fields({}, "structured_outputs")
        structured.refuse(_NOT_HERE)
        given = {name for name in structured.values if name in structured}
        if unknown := given - _STRUCTURED.keys() - _NOT_HERE.keys():
            raise structured.wrong(min(unknown), f"one of {', '.join(_STRUCTURED)}")
        found: dict[str, Mapping[str, Any]] = {
            name: as_schema(form) for name, form in named.items() if form is not None
        }
        for fields, readers in ((body, _READERS), (structured, _STRUCTURED)):
            for name, read in readers.items():
                if name in fields:
                    found[fields.place(name)] = read(fields, name)
        found = {name: options for name, options in found.items() if options}
        if len(found) > 1:
            first, second, *_ = found
            raise ApiError(
                400, f"{first} and {second} both say what the text is; choose one", param=second
            )
        for name, options in found.items():
            _require_readable(name, *options.values())
            return cls(*_enforceable(options), of_all=name == _OF_ALL)
        return cls()


def _enforceable(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The options without what no text is held to of their schema, and what that is."""
    if not isinstance(given := options.get("schema"), Mapping):
        return options, ()
    schema, left_out = without_unenforced(given)
    return {"schema": schema}, (f"answer: {', '.join(left_out)}",) if left_out else ()


def _require_readable(name: str, given: str | Mapping[str, Any]) -> None:
    """Raise ApiError for what would take so long that the texts of others wait for it."""
    text = given if isinstance(given, str) else json.dumps(given)
    if len(text) > MOST_GRAMMAR:
        raise ApiError(
            400, f"{name} has {len(text)} characters; send {MOST_GRAMMAR} at most", param=name
        )


def _format(body: Fields, name: str) -> Mapping[str, Any]:
    given = body.member(name)
    return as_schema(given.values) if given else {}


def _schema(body: Fields, name: str) -> Mapping[str, Any]:
    """A schema, which clients of vLLM and SGLang may send as a text."""
    schema = body.values[name]
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise body.wrong(name, "a JSON schema") from error
    if not isinstance(schema, Mapping):
        raise body.wrong(name, "a JSON schema")
    return {"schema": schema}


def _object(body: Fields, name: str) -> Mapping[str, Any]:
    return {"schema": {"type": "object"}} if body.flag(name) else {}


def _regex(body: Fields, name: str) -> Mapping[str, Any]:
    if not (regex := _text(body, name)):
        return {}
    try:
        return {"grammar": lark_of_regex(regex)}
    except InvalidValueError as error:
        raise body.wrong(name, f"a regular expression ({error})") from error


def _choice(body: Fields, name: str) -> Mapping[str, Any]:
    texts = body.items(name)
    if not texts or not all(isinstance(each, str) and is_unicode(each) for each in texts):
        raise body.wrong(name, "a list of texts")
    return {"grammar": lark_of_choice(texts)}


def _grammar(body: Fields, name: str) -> Mapping[str, Any]:
    """GBNF or, where nothing in it is GBNF's ::=, Lark, as vLLM tells them apart."""
    grammar = _text(body, name)
    if not grammar:
        return {}
    is_gbnf = "::=" in grammar or grammar.lstrip().startswith(HEADER)
    return {"grammar": grammar if is_gbnf else f"{HEADER} {{}}\n{grammar}"}


def _whole_grammar(body: Fields, name: str) -> Mapping[str, Any]:
    grammar = _text(body, name)
    return {"grammar": grammar} if grammar else {}


def _text(body: Fields, name: str) -> str:
    """A text; a missing one is empty."""
    text = body.text(name) or ""
    if not is_unicode(text):
        raise body.wrong(name, "valid Unicode")
    return text


Reader = Callable[[Fields, str], Mapping[str, Any]]
_STRUCTURED: dict[str, Reader] = {
    "json": _schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _object,
}
# Of OpenAI; of llama-server; of SGLang, whose `json_schema` is a text; of vLLM.
_READERS: dict[str, Reader] = {
    "response_format": _format,
    _OF_ALL: _whole_grammar,
    "json_schema": _schema,
    "regex": _regex,
    "ebnf": _grammar,
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
}
