"""AnswerWriter: writes an answer, and splits its text into reasoning and answer."""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol

from localspec.conversation.reasoning import Split, Splitter, Tags
from localspec.conversation.thinking_budget import ThinkingBudget
from localspec.conversation.turns import TokenizedText
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, StopReason, Token
from localspec.sampling.params import SamplerState
from localspec.stats import Stats


class Vocabulary(Protocol):
    """The part of a model that turns tokens into text, and text into tokens."""

    def piece(self, token: int) -> bytes: ...

    def piece_text(self, token: int) -> str: ...

    def ends_generation(self, token: int) -> bool: ...

    def spell_after(self, text: str) -> list[int]: ...


class Written(NamedTuple):
    """A token of an answer, and the new text. token: None for a closing tag that was inserted."""

    token: Token | None
    split: Split


# Starts a part of an answer behind the tokens so far, which goes on with `AnswerWriter.counted`.
Start = Callable[[], Generation]


class AnswerWriter:
    """The tokens and the text of one answer, as generated so far, in one part or several.

    Where the reasoning reaches its budget, its closing tag is written in the model's place, and the
    text goes on in a new part, whose prompt is the first one and what was written. The budget
    counts tokens of the text, so it ends reasoning at the same token whatever is drafted.

    detokenizer: shared by all parts. tags: the tags around the model's reasoning; None: all is
    answer. thinking: whether the prompt ended within the reasoning; continued: whether some of it
    was there already. budget: the most tokens of reasoning; None: no limit. marks: other control
    tokens whose text belongs to the answer. counted: the stats of all parts; those of the first,
    where it has been started already.

    tokens: the answer's token ids, those of a closing tag included, without the token that ended
    it. inserted: how many of them are of a closing tag that was written here. sampler_state: what
    the tokens have made of mirostat's or adaptive-p's state, which begins anew behind such a tag;
    None: it begins, or neither is on. raw: the whole text, reasoning and tags included.
    stop_reason: why the answer has ended; None before its last token.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        detokenizer: Detokenizer,
        tags: Tags | None,
        *,
        thinking: bool,
        continued: bool = False,
        budget: int | None = None,
        marks: Collection[str] = (),
        counted: Stats | None = None,
    ) -> None:
        self.detokenizer = detokenizer
        self.tokens: list[int] = []
        self.sampler_state: SamplerState | None = None
        # The states behind so many tokens: those of a stop string are not kept.
        self._states: dict[int, SamplerState | None] = {}
        self.inserted = 0
        self.raw = ""
        self.stop_reason: StopReason | None = None
        self.counted = Stats() if counted is None else counted
        # A copy from the end of the first part, which alone counts the prompt as it was asked.
        self._first_stats: Stats | None = None
        # The beginning of the answer that the user wrote, not the model.
        self._given = TokenizedText("", ())
        self._vocabulary = vocabulary
        self._tags = tags
        self._marks = {*(tags or ()), *marks}
        self._splitter = Splitter(tags, thinking=thinking, continued=continued) if tags else None
        self.budget = ThinkingBudget(budget, self._splitter, detokenizer)

    @property
    def is_reasoned(self) -> bool:
        """Whether reasoning is told apart."""
        return self._splitter is not None

    @property
    def is_thinking(self) -> bool:
        """Whether the next token belongs to the reasoning."""
        return self._splitter is not None and self._splitter.thinking

    @property
    def is_budget_spent(self) -> bool:
        """Whether the reasoning was ended because its budget was used up."""
        return self.inserted > 0

    @property
    def stats(self) -> Stats:
        """The counts and times so far; those of the prompt are of the first part."""
        return self.counted.of_whole_text(self._first_stats, self.inserted)

    def write(
        self, start: Start, *, prompt: int, most: int, context: int
    ) -> Generator[Generation | Written, None, None]:
        """Write until the answer ends; yields each part before it is read, and what it adds.

        prompt: the tokens before the answer. most: of the answer. context: of both. A part that is
        left at some token is not closed: the caller does that.
        """

        def full() -> StopReason | None:
            return self._no_room(prompt, most, context) if self.budget.is_spent() else None

        self.stop_reason = full()
        try:
            while not self.stop_reason:
                if self.budget.is_spent():
                    self.inserted += len(self.closing_tokens)
                    self.sampler_state = None
                    yield Written(None, self._close_thought())
                self._states[len(self.tokens)] = self.sampler_state
                part = start()
                part.commit_at_most(self.budget.room)
                yield part
                for token in part:
                    split = self.add(token.id, token.text)
                    if not self._vocabulary.ends_generation(token.id):
                        self.sampler_state = part.sampler_state
                        self._states[len(self.tokens)] = part.sampler_state
                    self.stop_reason = part.stop_reason or full()
                    yield Written(token, split)
                    if part.stop_reason is None and self.budget.is_spent():
                        self.leave(part)
                        break
                else:
                    self.stop_reason = self.stop_reason or part.stop_reason
                    return
        finally:
            self.stop_reason = self.stop_reason or "cancelled"

    def leave(self, part: Generation) -> None:
        """Close a part whose reasoning has used up its budget."""
        part.close()
        self._first_stats = self._first_stats or replace(self.counted)

    def add(self, token: int, text: str) -> Split:
        """Add a token and the text that the detokenizer gave for it; returns the new text."""
        if not self._vocabulary.ends_generation(token):
            self.tokens.append(token)
        self.budget.count()
        return self._split(text + self._mark(token))

    def give(self, given: TokenizedText) -> None:
        """Begin with the reasoning and the answer of a user, who spelled them character by
        character; what follows is all answer.
        """
        self._given = given
        self.raw, self.tokens = given.text, [*given.tokens]
        if self._splitter:
            self._splitter.end_reasoning()

    def take_up(self, tokens: Sequence[int]) -> Split:
        """Add generated tokens that stand already; returns their text.

        What they leave open is held back again, but no stop string ends them. A closing tag that
        was written in the model's place is apart from the text before it, as it was.
        """
        taken, rest = Split(), [*tokens]
        while rest:
            size = len(self.closing_tokens)
            if self.budget.is_spent() and rest[:size] == self.closing_tokens:
                split, rest = self._close_thought(), rest[size:]
            else:
                token = rest.pop(0)
                text = self.detokenizer.push_standing(self._vocabulary.piece(token))
                split = self.add(token, text)
            taken = taken.then(split)
        return taken

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens that stand alone, whatever a stop string would hold back of it."""
        detokenizer = Detokenizer()
        return "".join(map(partial(self._pushed, detokenizer), tokens)) + detokenizer.flush()

    def _no_room(self, prompt: int, most: int, context: int) -> StopReason | None:
        """Return why no answer fits behind reasoning that is closed here; None if one does."""
        written = len(self.tokens) + len(self.closing_tokens)
        if written >= most:
            return "length"
        return "context" if prompt + written >= context else None

    @cached_property
    def closing_tokens(self) -> list[int]:
        """The tokens of the closing tag, as they are written in the model's place."""
        return self._vocabulary.spell_after(self._tags.ending) if self._tags else []

    def _close_thought(self) -> Split:
        """Write the closing tag in the model's place; returns the new text."""
        self.tokens += self.closing_tokens
        held = self._split(self.detokenizer.flush())
        return held.then(self._split(self._tags.ending if self._tags else ""))

    def end(self) -> Split:
        """End the answer; returns the text that was held back."""
        held = self._split(self.detokenizer.flush())
        return held.then(self._splitter.flush() if self._splitter else Split())

    @property
    def written(self) -> TokenizedText:
        """The tokens whose text is part of the answer, without those of a stop string."""
        if not self.detokenizer.stopped:
            return TokenizedText(self.raw, tuple(self.tokens))
        detokenizer, (text, given) = Detokenizer(), self._given
        for count, token in enumerate(self.tokens[len(given) :], len(given)):
            more = text + self._pushed(detokenizer, token)
            if not self.raw.startswith(more):
                return TokenizedText(text, tuple(self.tokens[:count]))
            text = more
        return TokenizedText(text, tuple(self.tokens))

    @property
    def written_state(self) -> SamplerState | None:
        """The sampler's state behind the tokens that are `written`."""
        if not self.detokenizer.stopped:
            return self.sampler_state
        return self._states.get(len(self.written.tokens))

    def _pushed(self, detokenizer: Detokenizer, token: int) -> str:
        return detokenizer.push(self._vocabulary.piece(token)) + self._mark(token)

    def _mark(self, token: int) -> str:
        """The text of a mark that is a control token, which has none in the answer."""
        # Where a mark has text, that may be held back, as what may begin a stop string.
        if not self._marks or self._vocabulary.piece(token):
            return ""
        mark = self._vocabulary.piece_text(token)
        return mark if mark in self._marks else ""

    def _split(self, text: str) -> Split:
        self.raw += text
        return self._splitter.push(text) if self._splitter else Split(said=text)
