"""Reasoning: separate a model's reasoning from its answer by the tags in the text."""

from typing import NamedTuple


class Tags(NamedTuple):
    """The tags that a model writes before and after its reasoning."""

    opening: str
    closing: str

    @property
    def ending(self) -> str:
        """What ends reasoning in the model's place: the closing tag on a line of its own."""
        return f"\n{self.closing}\n\n"


def has_channels(template: str | None) -> bool:
    """Whether a model writes its reasoning into a channel, as gpt-oss does, not between tags."""
    return "<|channel|>" in (template or "")


class Split(NamedTuple):
    """A stretch of text in two parts: reasoning, and the answer that follows it."""

    thought: str = ""
    said: str = ""

    def then(self, other: "Split") -> "Split":
        """This stretch and the one behind it."""
        return Split(self.thought + other.thought, self.said + other.said)


THINK = Tags("<think>", "</think>")

_OTHER_TAGS = (
    Tags("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Tags("<seed:think>", "</seed:think>"),  # Seed-OSS
    Tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    Tags("<|channel>thought", "<channel|>"),  # Gemma 4
    Tags("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Tags("<|think:start|>", "<|think:end|>"),  # Solar Open 2
    Tags("◁think▷", "◁/think▷"),  # Kimi-VL
    Tags("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
)


def tags_for(template: str | None) -> Tags:
    """The tags of a model with this chat template: those named in the template, else THINK."""
    known = (tags for tags in _OTHER_TAGS if template and any(tag in template for tag in tags))
    return next(known, THINK)


def opens_thinking(prompt: str, tags: Tags) -> bool:
    """Whether a rendered prompt ends with the opening tag: the answer begins as reasoning."""
    return prompt.rstrip().endswith(tags.opening)


class Splitter:
    """Splits an answer's text, piece by piece, into reasoning and answer.

    thinking: whether the answer begins as reasoning, because the prompt ended with the opening tag.
    continued: whether there is reasoning behind that tag, whose newlines are its own. begun:
    whether it is certain how the answer begins.

    Reasoning stands only at the beginning of an answer; later tags are plain text. Neither part
    contains the tags, the whitespace before the opening tag, the newlines after it, or the newlines
    before and after the closing tag. Reasoning without a closing tag goes on to the end.
    """

    def __init__(self, tags: Tags, *, thinking: bool = False, continued: bool = False) -> None:
        self._tags = tags
        self.begun = thinking
        self._thinking = thinking
        self._after_tag = thinking and not continued
        self._held = ""

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the reasoning."""
        return self._thinking

    def within_tag(self, behind: str = "") -> bool:
        """Whether the reasoning ends in what may be the beginning of the closing tag.

        behind: text that follows what was pushed.
        """
        text, closing = self._held + behind, self._tags.closing
        begins = (text.endswith(closing[:size]) for size in range(1, len(closing)))
        return self._thinking and any(begins)

    def end_reasoning(self) -> None:
        """Take all that follows for the answer, newlines included."""
        self.begun, self._thinking, self._after_tag, self._held = True, False, False, ""

    def push(self, text: str) -> Split:
        """Split another piece; text that may be part of a tag is held back."""
        return self._split(self._held + text, last=False)

    def flush(self) -> Split:
        """The text that was held back; call it at the end."""
        return self._split(self._held, last=True)

    def _split(self, text: str, *, last: bool) -> Split:
        self._held = ""
        if self._thinking:
            return self._think(text, last=last)
        if self.begun:
            return Split(said=self._after_newlines(text))
        return self._begin(text, last=last)

    def _begin(self, text: str, *, last: bool) -> Split:
        body, opening = text.lstrip(), self._tags.opening
        if body.startswith(opening):
            self.begun = self._thinking = self._after_tag = True
            return self._think(body.removeprefix(opening), last=last)
        if opening.startswith(body) and not last:
            self._held = text
            return Split()
        self.begun = True
        return Split(said=text)

    def _think(self, text: str, *, last: bool) -> Split:
        thought, closing, said = self._after_newlines(text).partition(self._tags.closing)
        if closing:
            self._thinking, self._after_tag = False, True
            return Split(thought.rstrip("\n"), self._after_newlines(said))
        certain = len(thought) if last else self._certain_length(thought)
        self._held = thought[certain:]
        return Split(thought=thought[:certain])

    def _after_newlines(self, text: str) -> str:
        """The text without the newlines after a tag, which may have ended an earlier piece."""
        if self._after_tag:
            text = text.lstrip("\n")
            self._after_tag = not text
        return text

    def _certain_length(self, thought: str) -> int:
        """Characters that cannot be part of the closing tag or of the newlines before it."""
        closing = self._tags.closing
        sizes = range(min(len(closing) - 1, len(thought)), 0, -1)
        begun = next((size for size in sizes if thought.endswith(closing[:size])), 0)
        return len(thought[: len(thought) - begun].rstrip("\n"))
