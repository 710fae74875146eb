"""ChatPrompt: a conversation up to where the model writes, which may be within an answer."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.conversation.reasoning import Split, Splitter, Tags, opens_thinking, tags_for
from localspec.engine.prompt import template_tokens, text_tokens
from localspec.errors import InvalidValueError
from localspec.llama.model import Model
from localspec.server.rendering import render_chat
from localspec.server.tool_calls import family_of

# Whether the last message is continued. (transformers names it so, and gives it to no template.)
# True: where it can be. REQUIRED: a request where it cannot be is refused.
CONTINUE, REQUIRED = "continue_final_message", "required"
# They stand for the text that is continued, and for reasoning that is empty: a template may trim
# the one, and leave out the tags around the other.
_MARK, _THOUGHT = "the-continued-text-stands-here", "the-reasoning-stands-here"
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What a model reads before it writes.

    turn: the text up to where the model's own turn begins. continued: what the model is to go on
    with in its turn; None: it begins. header: what stands before that in the turn: tags,
    reasoning, channels. thinking: whether the model writes reasoning next.
    """

    turn: str
    header: str = ""
    continued: str | None = None
    thinking: bool = False

    @property
    def text(self) -> str:
        """All of it."""
        return self.turn + self._own

    @property
    def has_reasoned(self) -> bool:
        """Whether the model goes on with its answer, behind any reasoning."""
        return self.continued is not None and not self.thinking

    def tokens(self, model: Model) -> list[int]:
        """The tokens. Those of the model's own turn are apart, as if it had written them."""
        own = text_tokens(self._own, model.spell_after)
        return template_tokens(self.turn, model) + own

    def without_reasoning(self, tags: Tags) -> "ChatPrompt":
        """The prompt behind the reasoning that it begins, which is closed at once."""
        return replace(self, header=self._own + tags.ending, continued="", thinking=False)

    @property
    def _own(self) -> str:
        return self.header + (self.continued or "")


def can_continue(messages: Messages) -> bool:
    """Whether the last message is an answer that can go on: a text, without calls."""
    last = messages[-1] if messages else {}
    says = last.get("content") or last.get("reasoning_content")
    return last.get("role") == "assistant" and bool(says) and not last.get("tool_calls")


def chat_prompt(
    model: Model,
    messages: Messages,
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> ChatPrompt:
    """The messages as a model's chat template writes them. Raises InvalidValueError.

    options: variables of the template, and CONTINUE.
    """
    tags = tags_for(model.chat_template)
    variables = {name: value for name, value in options.items() if name != CONTINUE}

    def write(messages: Messages, **more: Any) -> str:
        return render_chat(model, messages, tools, {**variables, **more})

    wanted, template = options.get(CONTINUE), model.chat_template or ""
    continues = wanted and can_continue(messages)
    if continues and (found := _continued(messages, write, tags, template)):
        return found
    if wanted == REQUIRED:
        raise InvalidValueError(
            f"{CONTINUE} is true, and the last message has no text that this model's chat template "
            "lets it go on with; leave it out, or send the beginning of a text"
        )
    turn = write(messages)
    return ChatPrompt(turn, thinking=opens_thinking(turn, tags))


def _continued(
    messages: Messages, write: Callable[..., str], tags: Tags, template: str
) -> ChatPrompt | None:
    """The prompt to go on with the last message, as the model would have written it.

    None where it is only reasoning that nobody could tell from an answer: the template does not
    write it, or between other tags.
    """
    *before, last = messages
    turn, parts = write(before, add_generation_prompt=True), _parts(last, tags)
    opened, in_channels = opens_thinking(turn, tags), family_of(template).always_read

    def header(thought: str, content: str) -> str | None:
        """What the template writes between the turn's beginning and the mark.

        None where it refuses an answer at the end, leaves it out, or begins it in another way.
        """
        marked = {**last, "reasoning_content": thought, "content": content}
        given = {name: value for name, value in marked.items() if value}
        try:
            whole = write([*before, given], add_generation_prompt=False)
        except InvalidValueError:
            return None
        beginning, mark, _ = whole.rpartition(_MARK)
        return beginning.removeprefix(turn) if mark and beginning.startswith(turn) else None

    if not in_channels and (as_sent := _as_sent(turn, last, tags)):
        if any(tag in template for tag in tags):
            return as_sent
        # Tags that the template does not know are a part of the text.
        return replace(as_sent, header=(header("", _MARK) or "") + as_sent.header)
    if not parts.said and tags.closing not in (last.get("content") or ""):
        ahead = header(_MARK, "...") or ""
        is_read = opened or tags.opening in ahead or (in_channels and ahead)
        if not parts.thought or not is_read:
            return None
        return ChatPrompt(turn, ahead, parts.thought, thinking=True)
    found = header(parts.thought, _MARK)
    if opened and tags.closing not in (found or ""):
        found = header(parts.thought or _THOUGHT, _MARK)
        if not found or tags.closing not in found:  # so most models end their reasoning
            found = parts.thought + tags.ending
        found = found.replace(_THOUGHT, "")
    return ChatPrompt(turn, found or "", parts.said)


def _as_sent(turn: str, message: Mapping[str, Any], tags: Tags) -> ChatPrompt | None:
    """The prompt to go on with a text that has its own tags; None: there are none.

    They stand in the place of those that the template ends the turn's beginning with. The opening
    one may be missing where the template writes it, as it is in what such a model writes.
    """
    text = message.get("content") or ""
    if message.get("reasoning_content"):
        return None
    if text.lstrip().startswith(tags.opening):
        opening, closing = map(re.escape, tags)
        turn = re.sub(rf"(?:{opening}\s*)?(?:{closing}\s*)?\Z", "", turn, count=1)
    elif not opens_thinking(turn, tags) or tags.closing not in text:
        return None
    closed = tags.closing in text
    rest = text.partition(tags.closing if closed else tags.opening)[2].lstrip("\n")
    return ChatPrompt(turn, text.removesuffix(rest), rest, thinking=not closed)


def _parts(message: Mapping[str, Any], tags: Tags) -> Split:
    """The reasoning and the text of an answer; clients may send both as one text, with tags."""
    text, thought = message.get("content") or "", message.get("reasoning_content") or ""
    if thought:
        return Split(thought, text)
    splitter = Splitter(tags)
    first, rest = splitter.push(text), splitter.flush()
    return Split(first.thought + rest.thought, first.said + rest.said)
