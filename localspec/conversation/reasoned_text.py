"""ReasonedText: one text of an engine, with its reasoning told apart from its answer."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Unpack

from localspec.control.explanation import Explain
from localspec.conversation.answer_settings import settings_behind
from localspec.conversation.answer_writer import AnswerWriter, Written
from localspec.conversation.reasoning import Split, has_channels, opens_thinking, tags_for
from localspec.engine.engine import Engine
from localspec.engine.generation import Generation, Result, StopReason, Token
from localspec.engine.prompt import Chat, Prompt
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.stats import Stats
from localspec.utils.media import words_of

# The origin of the tokens that end reasoning whose budget is used up.
INSERTED = "inserted"
# A prompt ends with an opening tag if its last tokens spell it.
_TAG_TOKENS = 16


class ReasonedText(Iterator[tuple[Token, Split]]):
    """The text for one prompt, token by token, each with what is certain with it of the text.

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
        model, template = engine.model, engine.model.chat_template
        reasons = isinstance(prompt, Chat) and self.settings.is_free and not has_channels(template)
        tags = tags_for(template) if reasons else None
        end = "".join(map(model.piece_text, words_of(self.prompt[-_TAG_TOKENS:])))
        self._writer = AnswerWriter(
            model,
            self.generation.detokenizer,
            tags,
            thinking=tags is not None and opens_thinking(end, tags),
            budget=budget,
            counted=self.generation.stats,
        )
        self._running = self._run()

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
        return self._writer.stats

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text ended; None while it goes on."""
        return self._writer.stop_reason

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
        return self._writer.is_budget_spent

    def reading(self) -> Iterator[tuple[int, int]]:
        """Evaluate the prompt in chunks, as `Generation.reading` does."""
        return self.generation.reading()

    def __next__(self) -> tuple[Token, Split]:
        token, split = next(self._running)
        self.tokens.append(token)
        self.said += split.said
        self.thought += split.thought
        return token, split

    def result(self) -> Result:
        """Run to the end and return the whole text."""
        for _ in self:
            pass
        tokens, wanted = self.tokens, self.settings.logprobs
        return replace(
            self._part.result(),
            stats=self.stats,
            text="".join(token.text for token in tokens),
            token_ids=[token.id for token in tokens],
            origins=[token.origin for token in tokens],
            logprobs=[token.logprob for token in tokens] if wanted else None,
            top_logprobs=[token.top for token in tokens] if wanted else None,
            stop_reason=self.stop_reason or "cancelled",
            seed=self.settings.seed,
        )

    def _run(self) -> Iterator[tuple[Token, Split]]:
        writer = self._writer
        if writer.budget.is_spent():  # before the first token
            writer.leave(self.generation)
        most, context, before = self.settings.max_tokens, self._engine.context, 0
        for each in writer.write(self._start, prompt=len(self.prompt), most=most, context=context):
            if not isinstance(each, Written):
                self._part = each
            elif each.token is None:
                yield from self._inserted(writer.raw[before:], each.split)
            else:
                yield each.token, each.split.then(writer.end() if self.stop_reason else Split())
            before = len(writer.raw)

    def _start(self) -> Generation:
        written, prompt = self._writer.tokens, self.prompt
        if not written:
            return self.generation
        rest = settings_behind(self.settings, written=len(written), prompt=len(prompt))
        return self._engine.go_on(
            self._part, [*prompt, *written], rest, cancel=self._cancel, explain=self._explain
        )

    def _inserted(self, text: str, split: Split) -> Iterator[tuple[Token, Split]]:
        """Yield the tokens of the closing tag; the first one has all the text."""
        for token in self._writer.closing_tokens:
            yield Token(text, token, INSERTED, None), split
            text, split = "", Split()
