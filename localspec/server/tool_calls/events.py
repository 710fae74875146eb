"""Events: what a parser of tool calls says about an answer's text, in the text's order."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """Another piece of text outside calls, exactly as the model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Another piece of reasoning. Only of models whose reasoning is a channel (gpt-oss)."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a declared tool. index: the call's number in this answer, from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """Another piece of a call's arguments; the pieces of a call join to a JSON object."""

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call's arguments are over.

    complete: whether they are a whole JSON object; False if the call was cut off or is broken.
    """

    index: int
    complete: bool = True


Event = Text | Reasoning | CallBegun | Arguments | CallEnded


def whole_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as an object. Of one that was cut short, a member holds the text.

    No tool has a member of this name, which is the one in Anthropic's page on fine-grained tool
    streaming.
    """
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"INVALID_JSON": text}


def joined(events: Iterable[Event]) -> list[Event]:
    """The events with adjacent pieces of one text, or of one call's arguments, as one."""
    result: list[Event] = []
    for event in events:
        match result, event:
            case [*_, Text(before)], Text(text):
                result[-1] = Text(before + text)
            case [*_, Reasoning(before)], Reasoning(text):
                result[-1] = Reasoning(before + text)
            case [*_, Arguments(index, before)], Arguments(_, text):
                result[-1] = Arguments(index, before + text)
            case _:
                result.append(event)
    return result
