"""Tool calls: how models write them, in answers, in grammars and in histories."""

from localspec.server.tool_calls.events import (
    Arguments,
    CallBegun,
    CallEnded,
    Event,
    Reasoning,
    Text,
    joined,
    whole_arguments,
)
from localspec.server.tool_calls.families import Family, family_of, parser_for
from localspec.server.tool_calls.grammar import answer_grammar, grammar_for
from localspec.server.tool_calls.history import for_template
from localspec.server.tool_calls.parser import CallParser
from localspec.server.tool_calls.reasoning_calls import ReasoningCalls
from localspec.server.tool_calls.tools import Tool, by_name

__all__ = [
    "Arguments",
    "CallBegun",
    "CallEnded",
    "CallParser",
    "Event",
    "Family",
    "Reasoning",
    "ReasoningCalls",
    "Text",
    "Tool",
    "answer_grammar",
    "by_name",
    "family_of",
    "for_template",
    "grammar_for",
    "joined",
    "parser_for",
    "whole_arguments",
]
