"""Lark, llguidance's own grammar notation, which can contain JSON schemas and special tokens."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache

from llguidance import LLMatcher, regex_to_lark

from localspec.errors import InvalidValueError

# What such a grammar begins with, here as in llama.cpp.
HEADER = "%llguidance"


@lru_cache(maxsize=8)
def compile_lark(text: str) -> str:
    """An llguidance grammar from its Lark notation.

    Raises InvalidValueError with llguidance's message if the text is not such a grammar.
    """
    grammar = LLMatcher.grammar_from_lark(text)
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if failed:
        reason, _, _ = messages[0].partition("\n   1 |")  # the rest shows the whole text
        raise InvalidValueError(f"grammar: {' '.join(reason.split())}")
    return str(grammar)


def lark_of_regex(regex: str) -> str:
    """A grammar of the texts that a regular expression matches from end to end.

    It has the syntax of Rust's `regex`; digits and the characters of words are those of ASCII.
    Raises InvalidValueError with the reason if it has not.
    """
    if (len(regex) - len(regex.rstrip("\\"))) % 2:
        raise InvalidValueError("it ends with a backslash")
    grammar = f"{HEADER} {{}}\nstart: /{regex_to_lark(regex, use_ascii='dw')}/"
    try:
        compile_lark(grammar)
    except InvalidValueError as error:
        raise InvalidValueError(re.split(r"error: |\(in regex\): ", str(error))[-1]) from error
    return grammar


def lark_of_choice(texts: Iterable[str]) -> str:
    """A grammar of these texts."""
    return f"{HEADER} {{}}\nstart: T\nT: {' | '.join(map(json.dumps, texts))}"
