"""ReasonedText: one text of an engine, with its reasoning told apart from its answer."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Unpack

from localspec.control.explanation import Explain
from localspec.conversation.answer_settings import settings_behind
from localspec.conversation.answer_writer import AnswerWriter
from localspec.conversation.reasoning import Split, has_channels, opens_thinking, tags_for
from localspec.engine.engine import Engine
from localspec.engine.generation import Result, StopReason, Token
from localspec.engine.prompt import Chat, Prompt
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.stats import Stats

# The origin of the tokens that end reasoning whose budget is used up.
INSERTED = "inserted"
# A prompt ends with an opening tag if its last tokens spell it.
_TAG_TOKENS = 16


class Written(NamedTuple):
    """One token of the text, and what is certain with it of the answer and of the reasoning."""

    token: Token
    said: str
    thought: str


class ReasonedText(Iterator[Written]):
    """The text for one prompt, token by token.

    budget: the most tokens of reasoning; None: no limit. cancel, explain, options: as in
    `Engine.stream`. Only the text of a chat prompt has reasoning, none that a grammar describes,
    and none of a model that writes it into a channel; any other text is all answer.

    generation: the first part of the text, which is the whole but where the budget was used up.
    tokens: all so far, with those that ended the reasoning. said, thought: the text so far in two.
    """

    def __init__(
        self,
        engine: Engine,
        prompt: Prompt,
        *,
        budget: int | None = None,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        **options: Unpack[GenerationOptions],
    ) -> None:
        self.tokens: list[Token] = []
        self.said = self.thought = ""
        self.generation = engine.stream(prompt, cancel=cancel, explain=explain, **options)
        self._engine, self.budget = engine, budget
        self._cancel, self._explain = cancel, explain
        self._part = self.generation
        self._inserted: list[Written] = []
        # The stats of the first part, where there is another one.
        self._first: Stats | None = None
        self._stopped: StopReason | None = None
        model, template = engine.model, engine.model.chat_template
        reasons = isinstance(prompt, Chat) and self.settings.is_free and not has_channels(template)
        tags = tags_for(template) if reasons else None
        end = "".join(map(model.piece_text, self.prompt[-_TAG_TOKENS:]))
        self._writer = AnswerWriter(
            model,
            self.generation.detokenizer,
            tags,
            thinking=tags is not None and opens_thinking(end, tags),
            budget=budget,
        )
        self._part.commit_at_most(self._writer.budget.room)

    @property
    def settings(self) -> GenerationConfig:
        """The settings of the text, seed included."""
        return self.generation.settings

    @property
    def prompt(self) -> Sequence[int]:
        """The prompt's token ids."""
        return self.generation.prompt

    @property
    def stats(self) -> Stats:
        """The counts and times so far."""
        return self._part.stats.of_whole_text(self._first, self._writer.inserted)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text ended; None while it goes on."""
        if self._stopped or self._inserted:
            return self._stopped
        return self._part.stop_reason

    @property
    def is_reasoned(self) -> bool:
        """Whether reasoning is told apart."""
        return self._writer.is_reasoned

    @property
    def is_thinking(self) -> bool:
        """Whether the text so far ends inside the reasoning."""
        return self._writer.is_thinking

    @property
    def is_budget_spent(self) -> bool:
        """Whether the reasoning was ended because its budget was used up."""
        return self._part is not self.generation

    def reading(self) -> Iterator[tuple[int, int]]:
        """Evaluate the prompt in chunks, as `Generation.reading` does."""
        return self.generation.reading()

    def __next__(self) -> Written:
        if not self.tokens and self._writer.budget.is_spent():
            self._end_thought()
        if self._inserted:
            return self._add(self._inserted.pop(0))
        if self._stopped or (token := next(self._part, None)) is None:
            raise StopIteration
        split, ended = self._writer.add(token.id, token.text), self._part.stop_reason
        if not ended and self._writer.budget.is_spent():
            self._end_thought()
            ended = self._stopped
        if ended:
            rest = self._writer.end()
            split = Split(split.thought + rest.thought, split.said + rest.said)
        return self._add(Written(token, split.said, split.thought))

    def result(self) -> Result:
        """Run to the end and return the whole text."""
        for _ in self:
            pass
        return replace(
            self._part.result(),
            stats=self.stats,
            text="".join(token.text for token in self.tokens),
            token_ids=[token.id for token in self.tokens],
            origins=[token.origin for token in self.tokens],
            stop_reason=self.stop_reason or "cancelled",
            seed=self.settings.seed,
        )

    def _add(self, written: Written) -> Written:
        self.tokens.append(written.token)
        self.said += written.said
        self.thought += written.thought
        return written

    def _end_thought(self) -> None:
        """Close the part, insert the closing tag, and begin the next part."""
        ended, writer, prompt = self._part, self._writer, len(self.prompt)
        ended.close()
        self._stopped = writer.no_room(
            prompt=prompt, most=self.settings.max_tokens, context=self._engine.context
        )
        if self._stopped:
            return
        before, tokens = len(writer.raw), writer.closing_tokens
        split = writer.close_thought()
        # The first one has all the text, with what the detokenizer held back.
        first, *others = (Token("", each, INSERTED, None) for each in tokens)
        first = replace(first, text=writer.raw[before:])
        self._inserted = [
            Written(first, split.said, split.thought),
            *(Written(each, "", "") for each in others),
        ]
        self._first = replace(ended.stats)
        rest = settings_behind(self.settings, written=len(writer.tokens), prompt=prompt)
        whole = [*self.prompt, *writer.tokens]
        self._part = self._engine.go_on(
            ended, whole, rest, cancel=self._cancel, explain=self._explain
        )
        self._part.commit_at_most(writer.budget.room)
