"""Families: in which way a model writes tool calls, found from its chat template."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Protocol

from localspec.server.tool_calls import harmony_calls
from localspec.server.tool_calls.gemma_calls import GemmaCalls
from localspec.server.tool_calls.harmony_calls import HarmonyCalls
from localspec.server.tool_calls.named_calls import NamedCalls
from localspec.server.tool_calls.object_calls import ObjectCalls
from localspec.server.tool_calls.parser import CallParser, PassThrough
from localspec.server.tool_calls.python_calls import LlamaCalls, PythonCalls
from localspec.server.tool_calls.tagged_calls import TaggedCalls
from localspec.server.tool_calls.tools import Tool, by_name

# A text that may be a token of its own.
_MARK = re.compile(r"<[^\s<>]+>|\[[A-Z_]+\]")


class Syntax(Protocol):
    """How calls are written; a frozen dataclass of marks."""

    def parser(self, tools: Mapping[str, Tool]) -> CallParser: ...


@dataclass(frozen=True, slots=True)
class Family:
    """A way of writing tool calls.

    name: for logs. syntax: how calls are written. taught: whether the model's template teaches it;
    if not, `history.for_template` describes the tools in the system prompt.
    """

    name: str
    syntax: Syntax
    taught: bool = True

    @property
    def always_read(self) -> bool:
        """Whether answers must be parsed even without tools, as they come in channels."""
        return isinstance(self.syntax, HarmonyCalls)

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of this family. Those that are tokens of their own must be in the text."""
        if self.always_read:
            return harmony_calls.MARKS
        values = (getattr(self.syntax, field.name) for field in fields(self.syntax))  # type: ignore[arg-type]
        texts = (value for value in values if isinstance(value, str))
        return tuple(dict.fromkeys(mark for text in texts for mark in _MARK.findall(text)))


def parser_for(family: Family, tools: Iterable[Tool]) -> CallParser:
    """A parser of one answer, which may call these tools.

    Without tools everything is text at once, except that gpt-oss's channels are always read.
    Raises InvalidValueError if two tools have one name.
    """
    named = by_name(tools)
    if not named and not family.always_read:
        return PassThrough({})
    return family.syntax.parser(named)


def _deepseek(words: str) -> str:
    """A mark of DeepSeek's, whose bars and blanks are characters of their own."""
    return f"<\uff5c{words.replace(' ', '▁')}\uff5c>"


HERMES = Family("hermes", ObjectCalls("<tool_call>", "</tool_call>", space="\n"))
PLAIN = Family("plain", HERMES.syntax, taught=False)
LLAMA = Family(
    "llama",
    LlamaCalls("<|python_tag|>", bare=True, arguments_key="parameters", between="; "),
)
MISTRAL_LIST = Family("mistral-list", ObjectCalls("[TOOL_CALLS]", listed=True))
MISTRAL = Family(
    "mistral", NamedCalls("[TOOL_CALLS]", before_arguments="[ARGS]", identifier="[CALL_ID]")
)
GRANITE = Family("granite", ObjectCalls("<|tool_call|>", listed=True))
COMMAND = Family(
    "command",
    ObjectCalls(
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        listed=True,
        name_key="tool_name",
        arguments_key="parameters",
    ),
)
NEMOTRON = Family("nemotron", ObjectCalls("<TOOLCALL>", "</TOOLCALL>", listed=True))

_QWEN_TAGS = TaggedCalls(
    "<tool_call>",
    "</tool_call>",
    before_name="<function=",
    after_name=">",
    before_key="<parameter=",
    after_key=">",
    after_value="</parameter>",
    end="</function>",
    newlines=True,
    space="\n",
)
QWEN_XML = Family("qwen-xml", _QWEN_TAGS)
SEED = Family(
    "seed",
    replace(_QWEN_TAGS, opening="<seed:tool_call>", closing="</seed:tool_call>", newlines=False),
)
GLM = Family(
    "glm",
    TaggedCalls(
        "<tool_call>",
        "</tool_call>",
        before_key="<arg_key>",
        after_key="</arg_key>",
        before_value="<arg_value>",
        after_value="</arg_value>",
    ),
)
MINIMAX = Family(
    "minimax",
    TaggedCalls(
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        before_name='<invoke name="',
        after_name='">',
        before_key='<parameter name="',
        after_key='">',
        after_value="</parameter>",
        end="</invoke>",
        space="\n",
    ),
)

_DEEPSEEK_CALLS = NamedCalls(
    _deepseek("tool call begin"),
    opening=_deepseek("tool calls begin"),
    closing=_deepseek("tool calls end"),
    before_arguments=_deepseek("tool sep"),
    end=_deepseek("tool call end"),
)
DEEPSEEK = Family("deepseek", _DEEPSEEK_CALLS)
DEEPSEEK_FENCED = Family(
    "deepseek-fenced",
    replace(
        _DEEPSEEK_CALLS,
        before_name="function" + _deepseek("tool sep"),
        before_arguments="\n```json\n",
        after_arguments="\n```",
        between="\n",
    ),
)
KIMI = Family(
    "kimi",
    NamedCalls(
        "<|tool_call_begin|>",
        opening="<|tool_calls_section_begin|>",
        closing="<|tool_calls_section_end|>",
        before_name="functions.",
        identifier=":",
        numbered=True,
        before_arguments="<|tool_call_argument_begin|>",
        end="<|tool_call_end|>",
    ),
)
FUNCTION_TAG = Family(
    "function-tag", NamedCalls("<function=", before_arguments=">", end="</function>")
)

GEMMA = Family("gemma", GemmaCalls("<|tool_call>", "<tool_call|>", '<|"|>'))
FUNCTION_GEMMA = Family(
    "function-gemma", GemmaCalls("<start_function_call>", "<end_function_call>", "<escape>")
)
PYTHONIC = Family("pythonic", PythonCalls("```tool_code", "```", bare=True))
LFM = Family("lfm", PythonCalls("<|tool_call_start|>", "<|tool_call_end|>"))
HARMONY = Family("harmony", HarmonyCalls())

# What a template must contain, all of it, for a family; the first that fits is taken.
_SIGNS: tuple[tuple[tuple[str, ...], Family], ...] = (
    (("<|channel|>", "<|message|>"), HARMONY),
    (("<arg_key>",), GLM),
    (("<seed:tool_call>",), SEED),
    (("minimax:tool_call", "<invoke name="), MINIMAX),
    (("<tool_call>", "<function="), QWEN_XML),
    (("<|tool_calls_section_begin|>",), KIMI),
    ((_deepseek("tool calls begin"), "```json"), DEEPSEEK_FENCED),
    ((_deepseek("tool calls begin"),), DEEPSEEK),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL),
    (("[TOOL_CALLS]",), MISTRAL_LIST),
    (("<|tool_call>", "call:"), GEMMA),
    (("<start_function_call>",), FUNCTION_GEMMA),
    (("<|START_ACTION|>", "tool_name"), COMMAND),
    (("<TOOLCALL>",), NEMOTRON),
    (("<|tool_call|>",), GRANITE),
    (("<tool_call>", "<invoke name="), PLAIN),  # MiniMax M3, whose tags are of another kind
    (("<tool_call>",), HERMES),
    (("<|tool_call_start|>",), LFM),
    (("<|tool_list_start|>",), LFM),
    (("<function=", "</function>"), FUNCTION_TAG),
    (("<|python_tag|>",), LLAMA),
    (('"parameters": ', '{"name": '), LLAMA),
    (("[func_name1(",), PYTHONIC),
    (("tool_code",), PYTHONIC),
)

FAMILIES = tuple(dict.fromkeys([*(family for _, family in _SIGNS), PLAIN]))


def family_of(template: str | None) -> Family:
    """The family that a chat template teaches; PLAIN if it teaches none that is known."""
    for signs, family in _SIGNS:
        if all(sign in (template or "") for sign in signs):
            return family
    return PLAIN
