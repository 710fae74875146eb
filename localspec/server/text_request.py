"""Text request: what a request wants of the model, whatever protocol it came by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.conversation.reasoning import Tags
from localspec.server.options import TextSettings
from localspec.server.tool_calls import CallParser


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One text to write.

    prompt: its token ids. tags: what stands around the model's reasoning; None: it is not told
    apart. thinking: whether the prompt ends within the reasoning. continued: what of the answer, or
    while thinking of the reasoning, is in the prompt. channel: the marks of the channel that this
    is in, where there are such. tool_calls: makes a parser of calls; None: the text is taken as it
    is. marks: texts of control tokens that the parser reads; those of others are not shown.
    one_call: whether the text ends with its first call. thinking_budget: the most tokens of
    reasoning; None: no limit. answer_grammar: what the text must satisfy behind reasoning that the
    budget has ended, where the settings have a grammar for both. wordings: the conversation in the
    chat templates of drafters that have their own, by the model's file. shows_progress: whether the
    reply says how far the prompt is read.
    """

    prompt: tuple[int, ...]
    settings: TextSettings
    tags: Tags | None = None
    thinking: bool = False
    continued: str = ""
    channel: str = ""
    tool_calls: Callable[[], CallParser] | None = None
    marks: Sequence[str] = ()
    one_call: bool = False
    thinking_budget: int | None = None
    answer_grammar: str | None = None
    wordings: Mapping[Path, str] = field(default_factory=dict)
    shows_progress: bool = False
