"""ResponsesRequest: a request to /v1/responses, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.server.chat_input import ChatInput
from localspec.server.fields import Fields
from localspec.server.tool_names import ToolNames


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request, read and checked.

    conversation: the messages without the instructions, which are for this answer alone. names: of
    the tools. summarizes: whether reasoning is its own summary too, which some clients alone show.
    body: as it came, of which the answer repeats a part. marks: of its files, as of a
    ContentReader.
    """

    chat: ChatInput
    conversation: list[Mapping[str, Any]]
    names: ToolNames
    store: bool
    summarizes: bool
    body: Fields
    marks: Mapping[str, str]
