"""ChatInput: a conversation to answer, whatever protocol it came by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.server.options import TextSettings
from localspec.server.tool_use import ToolUse


@dataclass(frozen=True, slots=True)
class ChatInput:
    """Messages, and how to answer them.

    template_options: variables of the chat template. thinking_budget: as of `Service`; None: the
    server's. omits_thinking: whether the answer has the reasoning without its text.
    """

    messages: Sequence[Mapping[str, Any]]
    settings: TextSettings
    template_options: Mapping[str, Any] = field(default_factory=dict)
    thinking_budget: int | None = None
    tools: ToolUse = field(default_factory=ToolUse)
    omits_thinking: bool = False
