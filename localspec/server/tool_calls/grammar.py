"""Grammars of answers: calls of a tool in the syntax of a family, or what a request describes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from localspec.conversation.reasoning import Tags
from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema
from localspec.server.tool_calls import harmony_calls as harmony
from localspec.server.tool_calls.families import Family
from localspec.server.tool_calls.gemma_calls import GemmaCalls
from localspec.server.tool_calls.harmony_calls import HarmonyCalls
from localspec.server.tool_calls.lark_rules import LarkRules
from localspec.server.tool_calls.named_calls import NamedCalls
from localspec.server.tool_calls.object_calls import ObjectCalls
from localspec.server.tool_calls.python_calls import PythonCalls
from localspec.server.tool_calls.tagged_calls import TaggedCalls
from localspec.server.tool_calls.tools import Tool, by_name
from localspec.server.tool_calls.value_grammars import (
    BareValues,
    GemmaValues,
    PythonValues,
    members_of,
)


def grammar_for(
    family: Family,
    tools: Iterable[Tool],
    name: str | None = None,
    *,
    parallel: bool = True,
    special: Mapping[str, int] | None = None,
    reasoning: Tags | None = None,
    thinking: bool = False,
) -> str:
    """A grammar of answers that call tools, for `GenerationConfig.grammar`.

    name: the one tool to call, once; None is any of them. parallel: whether there may be several
    calls. special: the ids, by their texts, of the marks that are tokens of their own in the
    model's vocabulary (of `family.marks` and of the reasoning's tags). reasoning: the tags of the
    reasoning that may precede the calls. thinking: whether the answer begins within reasoning.

    Raises InvalidValueError if there is no such tool, or if a schema cannot be followed.
    """
    named = by_name(tools)
    if name is not None and name not in named:
        known = ", ".join(named) or "none"
        raise InvalidValueError(f"tool_choice names {name!r:.80}; the tools are: {known}")
    if not named:
        raise InvalidValueError("tool_choice asks for a call and there are no tools; declare one")
    chosen = [named[name]] if name is not None else [*named.values()]
    for tool in chosen:
        with _named_in_errors(tool):
            compile_schema(json.dumps(tool.schema))  # raises, in whatever notation it is written
    several = parallel and name is None
    writer = _GrammarWriter(LarkRules(special or {}))
    calls = writer.calls(family, chosen, several)
    return writer.after_reasoning(family, calls, reasoning, thinking)


def answer_grammar(
    family: Family,
    compiled: str,
    tools: Iterable[Tool] = (),
    *,
    parallel: bool = True,
    special: Mapping[str, int] | None = None,
    reasoning: Tags | None = None,
    thinking: bool = False,
) -> str:
    """A grammar of answers that another one describes, or that call tools, after reasoning.

    compiled: that of the answer (`GenerationConfig.compiled_grammar`). The other arguments are
    those of `grammar_for`. Raises InvalidValueError if a schema cannot be followed.
    """
    writer = _GrammarWriter(LarkRules(special or {}))
    answer = writer.rules.embedded(compiled)
    if isinstance(family.syntax, HarmonyCalls):
        answer = f"{writer.rules.text(harmony.CHANNEL, 'final', harmony.MESSAGE)} {answer}"
    if callable_tools := [*by_name(tools).values()]:
        answer = writer.either([answer, writer.calls(family, callable_tools, parallel)])
    return writer.after_reasoning(family, answer, reasoning, thinking)


@dataclass(frozen=True, slots=True)
class _GrammarWriter:
    rules: LarkRules

    def after_reasoning(
        self, family: Family, answer: str, reasoning: Tags | None, thinking: bool
    ) -> str:
        """The grammar of an answer that reasoning may precede."""
        if isinstance(family.syntax, HarmonyCalls):
            answer = f"({self.thought()})? {answer}"
        elif reasoning is not None:
            answer = f"{self.reasoning(reasoning, thinking)} {answer}"
        return self.rules.grammar(answer)

    def reasoning(self, tags: Tags, thinking: bool) -> str:
        """What may or, if the answer begins with it, must precede the rest."""
        space = self.rules.terminal("/\\n{0,4}/")  # which the reader leaves out of the answer
        rest = f"{self.rules.until(tags.closing)} {space}"
        return rest if thinking else f"({space} {self.rules.text(tags.opening)} {rest})?"

    def calls(self, family: Family, tools: list[Tool], several: bool) -> str:
        """An expression for one call or several."""
        match family.syntax:
            case ObjectCalls() as syntax:
                return self.object_calls(syntax, tools, several)
            case NamedCalls() as syntax:
                return self.named_calls(syntax, tools, several)
            case TaggedCalls() as syntax:
                return self.tagged_calls(syntax, tools, several)
            case GemmaCalls() as syntax:
                return self.gemma_calls(syntax, tools, several)
            case PythonCalls() as syntax:
                return self.python_calls(syntax, tools, several)
        return self.harmony_calls(tools)

    def repeated(self, call: str, between: str, several: bool) -> str:
        return f"{call} ({self.rules.text(between)} {call})*" if several else call

    def either(self, expressions: Iterable[str]) -> str:
        return self.rules.rule(" | ".join(expressions))

    def arguments(self, tool: Tool) -> str:
        """A tool's arguments as JSON."""
        with _named_in_errors(tool):
            return self.rules.json(tool.schema)

    def object_calls(self, syntax: ObjectCalls, tools: list[Tool], several: bool) -> str:
        text = self.rules.text
        keys = f'{{"{syntax.name_key}": "%s", "{syntax.arguments_key}": '
        call = self.either(
            f"{text(keys % tool.name)} {self.arguments(tool)} {text('}')}" for tool in tools
        )
        if syntax.listed:
            calls = self.repeated(call, ", ", several)
            return f"{text(syntax.opening, '[')} {calls} {text(']', syntax.closing)}"
        if not syntax.bare:
            before, after = syntax.opening + syntax.space, syntax.space + syntax.closing
            call = self.rules.rule(f"{text(before)} {call} {text(after)}")
        return self.repeated(call, syntax.between, several)

    def named_calls(self, syntax: NamedCalls, tools: list[Tool], several: bool) -> str:
        text = self.rules.text
        number = self.rules.terminal("/[0-9]{1,3}/") if syntax.numbered else '""'
        call = self.either(
            f"{text(syntax.call, syntax.before_name, tool.name, ':' * syntax.numbered)} {number} "
            f"{text(syntax.before_arguments)} {self.arguments(tool)} "
            f"{text(syntax.after_arguments, syntax.end)}"
            for tool in tools
        )
        calls = self.repeated(call, syntax.between, several)
        return f"{text(syntax.opening)} {calls} {text(syntax.closing)}"

    def tagged_calls(self, syntax: TaggedCalls, tools: list[Tool], several: bool) -> str:
        text, space = self.rules.text, self.space_between(syntax)
        call = self.either(
            f"{text(syntax.before_name, tool.name, syntax.after_name)} {space} "
            f"{self.tagged_arguments(syntax, tool, space)} {text(syntax.end)}"
            for tool in tools
        )
        after_call = space if syntax.end else '""'
        before_call = space if syntax.before_name else '""'
        block = self.rules.rule(
            f"{text(syntax.opening)} {before_call} {call} {after_call} {text(syntax.closing)}"
        )
        return self.repeated(block, "\n", several)

    def space_between(self, syntax: TaggedCalls) -> str:
        return self.rules.text(syntax.space) if syntax.space else self.rules.terminal("/\\n?/")

    def tagged_arguments(self, syntax: TaggedCalls, tool: Tool, space: str) -> str:
        newline = "\n" * syntax.newlines
        with _named_in_errors(tool):
            values = BareValues(self.rules, tool.schema, newline, syntax.after_value)
            arguments = []
            for key, schema in tool.properties.items():
                before = self.rules.text(syntax.before_key, key, syntax.after_key)
                opening = f"{space} {self.rules.text(syntax.before_value)}"
                first = opening if syntax.before_value else self.rules.text(newline)
                written = f"{before} {first} {values.value(schema)} {space}"
                arguments.append(written if key in tool.required else f"({written})?")
        return " ".join(arguments)

    def gemma_calls(self, syntax: GemmaCalls, tools: list[Tool], several: bool) -> str:
        calls = []
        for tool in tools:
            with _named_in_errors(tool):
                values = GemmaValues(self.rules, tool.schema, syntax.quote)
                name = self.rules.text(syntax.opening, "call:", tool.name)
                calls.append(
                    f"{name} {values.object(tool.schema)} {self.rules.text(syntax.closing)}"
                )
        return self.repeated(self.either(calls), "", several)

    def python_calls(self, syntax: PythonCalls, tools: list[Tool], several: bool) -> str:
        text = self.rules.text
        call = self.either(
            f"{text(tool.name, '(')} {self.python_arguments(tool)} {text(')')}" for tool in tools
        )
        opening, closing = ("", "") if syntax.bare else (syntax.opening, syntax.closing)
        calls = self.repeated(call, ", ", several)
        return f"{text(opening, '[')} {calls} {text(']', closing)}"

    def python_arguments(self, tool: Tool) -> str:
        names = [name for name in tool.properties if name.isidentifier()]
        if lacking := tool.required - {*names}:
            raise InvalidValueError(
                f"the tool {tool.name} requires the argument {min(lacking)!r:.60}; this model "
                "writes arguments as Python does, with letters, digits and _"
            )
        with _named_in_errors(tool):
            values = PythonValues(self.rules, tool.schema)
            return members_of(
                self.rules,
                names,
                tool.required,
                lambda name: f"{self.rules.text(name, '=')} {values.value(tool.properties[name])}",
                ", ",
            )

    def harmony_calls(self, tools: list[Tool]) -> str:
        """One call, as the model makes no more."""
        text = self.rules.text
        recipient = harmony.CHANNEL + "commentary to=functions."
        return self.either(
            f"{text(recipient, tool.name, ' ', harmony.CONSTRAIN, 'json', harmony.MESSAGE)} "
            f"{self.arguments(tool)}"
            for tool in tools
        )

    def thought(self) -> str:
        """A message of gpt-oss's reasoning."""
        text = self.rules.text
        return (
            f"{text(harmony.CHANNEL, 'analysis', harmony.MESSAGE)} "
            f"{self.rules.until(harmony.END)} {text(harmony.START, 'assistant')}"
        )


@contextmanager
def _named_in_errors(tool: Tool) -> Iterator[None]:
    """Errors of a schema say which tool has it."""
    try:
        yield
    except InvalidValueError as error:
        raise InvalidValueError(f"the parameters of the tool {tool.name}: {error}") from error
