"""ToolUse: which tools a request offers the model, and whether it must call one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.errors import InvalidValueError
from localspec.server.constraint import MOST_GRAMMAR
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.tool_calls import Tool, by_name

Choice = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request.

    given: as the template takes them, which is OpenAI's shape. choice: whether the model may or
    must call one. name: the one that it must call. allowed: the names of those that it may call;
    None: all. parallel: whether it may call several at once. unseen: tools that the model was not
    told of; a call of one is passed on all the same, as the client knows what to say to that.
    """

    tools: tuple[Tool, ...] = ()
    given: Sequence[Mapping[str, Any]] = field(default_factory=list)
    choice: Choice = "auto"
    name: str | None = None
    parallel: bool = True
    allowed: frozenset[str] | None = None
    unseen: tuple[Tool, ...] = ()

    @classmethod
    def of(
        cls,
        given: Iterable[Any],
        choice: Choice,
        name: str | None = None,
        *,
        parallel: bool = True,
        allowed: frozenset[str] | None = None,
        shown: Iterable[Any] = (),
        unseen: Iterable[Any] = (),
    ) -> "ToolUse":
        """The tools in OpenAI's shape. Raises ApiError for what is none.

        shown: those of which the conversation tells the model, and not its template.
        """
        listed = list(given)
        try:
            named = by_name(map(Tool.of, [*listed, *shown]))
            every = by_name([*named.values(), *map(Tool.of, unseen)])
        except InvalidValueError as error:
            raise ApiError(400, str(error), param="tools") from error
        chosen = {name} if name is not None else allowed or ()
        if unknown := set(chosen) - named.keys():
            raise ApiError(
                400,
                f"tool_choice names {min(unknown)!r:.80}, which is not among the tools that a "
                "model here can call",
                param="tool_choice",
            )
        if not named and (choice == "required" or name is not None):
            raise ApiError(
                400,
                "tool_choice asks for a call, and tools has none that a model here can call; send "
                "one with a schema of its arguments",
                param="tool_choice",
            )
        tools = tuple(named.values())
        rest = tuple(every.values())[len(tools) :]
        use = cls(tools, listed, choice, name, parallel, allowed, rest)
        if use.must_call:
            use.require_readable()
        return use

    @property
    def offered(self) -> bool:
        """Whether the model is told of tools."""
        return bool(self.tools) and self.choice != "none"

    @property
    def for_template(self) -> Sequence[Mapping[str, Any]] | None:
        """The tools that are offered, as a template takes them; None: there are none."""
        return self.given if self.offered else None

    @property
    def must_call(self) -> bool:
        """Whether the model has to call a tool."""
        return self.choice == "required" or self.name is not None

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that may be called; none where none are offered."""
        if not self.offered:
            return ()
        names = self.allowed if self.name is None else {self.name}
        return tuple(each for each in self.tools if names is None or each.name in names)

    @property
    def readable(self) -> tuple[Tool, ...]:
        """The tools whose calls are told from text."""
        return (*self.callable, *self.unseen) if self.offered else ()

    @property
    def not_enforced(self) -> tuple[str, ...]:
        """What calls are not held to of the schemas, a line for each tool."""
        return tuple(
            f"calls of {tool.name}: {', '.join(tool.not_enforced)}"
            for tool in self.callable
            if tool.not_enforced
        )

    def require_readable(self) -> None:
        """Raise ApiError for schemas of which a grammar would take many seconds to make."""
        size = sum(len(json.dumps(tool.schema)) for tool in self.callable)
        if size > MOST_GRAMMAR:
            raise ApiError(
                400,
                f"the schemas of the tools have {size} characters, and those of a call that must "
                f"be made {MOST_GRAMMAR} at most; name one tool in tool_choice",
                param="tools",
            )


def openai_tools(body: Fields, tools: Iterable[Any]) -> ToolUse:
    """The tools of a body of OpenAI's protocols. tools: in the shape of chat completions."""
    parallel = body.flag("parallel_tool_calls") is not False
    choice = body.values.get("tool_choice")
    match choice:
        case None:
            return ToolUse.of(tools, "auto", parallel=parallel)
        case "none" | "auto" | "required":
            return ToolUse.of(tools, choice, parallel=parallel)
        case {"type": "none" | "auto" | "required" as kind}:
            return ToolUse.of(tools, kind, parallel=parallel)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolUse.of(tools, "required", name, parallel=False)
        case {"type": "function", "name": str(name)}:
            return ToolUse.of(tools, "required", name, parallel=False)
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*named]}} | {
            "type": "allowed_tools",
            "mode": mode,
            "tools": [*named],
        } if mode in ("auto", "required"):
            allowed = frozenset(map(_name_of, named))
            return ToolUse.of(tools, mode, parallel=parallel, allowed=allowed)
    raise body.wrong("tool_choice", "none, auto, required, or the name of a function")


def _name_of(named: object) -> str:
    """The tool that an entry of `allowed_tools` names; one of no known shape names none."""
    match named:
        case {"function": {"name": str(name)}} | {"name": str(name)}:
            return name
    return ""
