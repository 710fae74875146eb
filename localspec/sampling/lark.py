"""Lark, llguidance's own grammar notation, which can contain JSON schemas and special tokens."""

from functools import lru_cache

from llguidance import LLMatcher

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
