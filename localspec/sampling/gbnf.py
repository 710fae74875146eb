"""GBNF, llama.cpp's grammar notation, converted to the Lark notation that llguidance reads."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Never

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    GbnfToLarkError,
    GrammarParser,
    LiteralNode,
    RegexNode,
    RepetitionNode,
    RuleNode,
    RuleRefNode,
    SequenceNode,
    resolve,
)

from localspec.errors import InvalidValueError

Rules = dict[str, RuleNode]

_ROOT = "root"
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


@lru_cache(maxsize=8)
def compile_gbnf(text: str) -> str:
    """Convert a GBNF grammar to an llguidance grammar.

    Raises InvalidValueError, with line and column, if the text does not parse or if a rule has no
    finite text.
    """
    _parse(text)  # before escapes are rewritten, so that errors name the right place
    rules = _parse(_ESCAPE.sub(_rewrite_escape, text))
    _require_defined(rules, text)
    _require_finite(rules, text)
    names = list(rules)
    resolve(_rename_and_convert(rules))
    lines = ["%llguidance {}"]
    owners = [_ROOT]
    for name, rule in zip(names, sorted(rules.values(), key=lambda rule: rule.order), strict=True):
        written = str(rule).split("\n")
        lines += written
        owners += [name] * len(written)
    grammar = LLMatcher.grammar_from_lark("\n".join(lines))
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if failed:
        _fail_in_rule(messages[0], owners, text)
    return str(grammar)


def _parse(text: str) -> Rules:
    try:
        rules: Rules = GrammarParser().parse(text)
    except GbnfToLarkError as error:
        message = str(error).removesuffix(f" at {error.pos}")
        _fail(text, error.pos.pos, message[0].lower() + message[1:])
    except IndexError:
        _fail(text, len(text) - 1, "incomplete escape sequence")
    return rules


def _rewrite_escape(found: re.Match[str]) -> str:
    """An escape as the converter accepts it; beyond ASCII, the character itself.

    The converter drops leading zeros of an escaped code.
    """
    code = found[2] or found[3]
    if code is None:
        return found[0]
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise InvalidValueError(f"grammar: {found[0]} is no character")
    return f"\\x{number:02x}" if number < 0x80 else chr(number)


def _literal(value: str) -> str:
    """The text of a GBNF literal in Lark notation."""

    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _CONTROL.get(found[4], found[4])

    return json.dumps(_ESCAPE.sub(character, value))[1:-1]


def _nodes(node: ASTNode) -> Iterator[ASTNode]:
    yield node
    for child in node.children():
        yield from _nodes(child)


def _rename_and_convert(rules: Rules) -> Rules:
    """The rules with unique names, and with terminals that keep their meaning in Lark."""
    numbered = {name: name if name == _ROOT else f"r{i}" for i, name in enumerate(rules)}
    for name, rule in list(rules.items()):
        for node in _nodes(rule):
            if isinstance(node, LiteralNode):
                node.value = _literal(node.value)
            elif isinstance(node, RegexNode) and node.rx == ".":
                node.rx = "(?s:.)"  # in GBNF, `.` also matches a newline
            elif isinstance(node, RuleRefNode):
                node.name = numbered[node.name]
        del rules[name]
        rule.name = numbered[name]
        rules[rule.name] = rule
    return rules


def _require_defined(rules: Rules, text: str) -> None:
    if _ROOT not in rules:
        raise InvalidValueError('the grammar has no rule named "root"; a text begins with that one')
    for rule in rules.values():
        for node in _nodes(rule):
            if isinstance(node, RuleRefNode) and node.name not in rules:
                used = re.search(rf"(?<![\w-]){re.escape(node.name)}(?![\w-])", text)
                _fail(text, used.start() if used else 0, f'there is no rule "{node.name}"')


def _require_finite(rules: Rules, text: str) -> None:
    """Raise unless each rule that the root uses has at least one finite text."""
    finite: set[str] = set()
    while new := {name for name in rules.keys() - finite if _is_finite(rules[name], finite)}:
        finite |= new
    reached, todo = {_ROOT}, [_ROOT]
    while todo:
        name = todo.pop()
        if name not in finite:
            _fail(text, _definition(name, text), f'no text ever satisfies the rule "{name}"')
        used = {node.name for node in _nodes(rules[name]) if isinstance(node, RuleRefNode)}
        todo += used - reached
        reached |= used


def _is_finite(node: ASTNode, finite: set[str]) -> bool:
    match node:
        case RuleRefNode():
            return node.name in finite
        case RepetitionNode():
            return node.min_times == 0 or _is_finite(node.node, finite)
        case AlternativeNode():
            return any(_is_finite(each, finite) for each in node.alternatives)
        case SequenceNode() | RuleNode():
            return all(_is_finite(each, finite) for each in node.children())
        case _:
            return True


def _fail_in_rule(message: str, owners: list[str], text: str) -> Never:
    """Raise with the GBNF rule for a message in which llguidance names a line of the Lark text."""
    what, _, _ = message.partition("\n   1 |")  # the rest of the message shows the Lark text
    owner = _ROOT
    if place := re.match(r"at (\d+)\(\d+\): ", what):
        owner, what = owners[int(place[1]) - 1], what[place.end() :]
    _fail(text, _definition(owner, text), f'in the rule "{owner}": {what}')


def _definition(name: str, text: str) -> int:
    found = re.search(rf"^[ \t]*({re.escape(name)})\s*::=", text, re.MULTILINE)
    return found.start(1) if found else 0


def _fail(text: str, at: int, message: str) -> Never:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    words = " ".join(message.split())
    raise InvalidValueError(f"grammar, line {line}, column {column}: {words}")
