"""InputProcessor: turns messages and texts of requests into what a model reads and may write."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from localspec.conversation.reasoning import Tags, tags_for
from localspec.engine.engine import Engine
from localspec.engine.fim_prompt import Snippet, fim_prompt, infill_prompt
from localspec.engine.media_marks import require_written, without_marks
from localspec.engine.prompt import TextPrompt, checked_ids, require_words_last, warn_left_out
from localspec.errors import InvalidValueError
from localspec.llama.grammar import Grammar, special_tokens
from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE, REQUIRED, ChatPrompt, chat_prompt
from localspec.server.errors import ApiError, too_long
from localspec.server.options import TextSettings
from localspec.server.text_request import TextRequest
from localspec.server.thinking import beside
from localspec.server.thinking_budget import NO_BUDGET
from localspec.server.tool_calls import (
    Family,
    answer_grammar,
    family_of,
    grammar_for,
    parser_for,
)
from localspec.server.tool_use import ToolUse

# No token stands for more characters. A text that is longer than a context full of such tokens is
# refused before it is rendered and tokenized, which would take seconds.
LONGEST_TOKEN = 256


@dataclass(frozen=True, slots=True)
class InputProcessor:
    """Makes the requests of an engine's texts.

    The engine's lock is held during decodes, and a request must not wait for several of them before
    its text begins. So prompts are tokenized without the lock: a vocabulary never changes, and the
    engine of a server switches no models.

    name: the model's. system: the system prompt of chats that have none; "": none.
    template_options: variables for the chat template where a request does not say.
    thinking_budget: the most tokens of reasoning where a request does not say; NO_BUDGET: no limit.
    """

    engine: Engine
    name: str
    system: str
    template_options: Mapping[str, Any]
    thinking_budget: int

    async def chat(self, chat: ChatInput, *, must_fit: bool = True) -> TextRequest:
        """A request to answer these messages. Raises InvalidValueError.

        must_fit: whether a prompt that is longer than the context is refused.
        """
        family, tools, budget = self._family, chat.tools, self._budget(chat)
        if tools.must_call and chat.settings.describes_answer:  # there is a call, and no answer
            free = replace(chat.settings, schema=None, grammar=None, not_enforced=())
            chat = replace(chat, settings=free)
        messages = self._with_system(chat.messages)
        chat = replace(chat, messages=messages, template_options=self._variables(chat, budget))
        self._require_short(sum(len(str(each.get("content") or "")) for each in chat.messages))
        read = await self.rendered(
            chat.messages, tools=tools.for_template, template_options=chat.template_options
        )
        self._require_short(len(read.text))
        if budget == 0 and read.thinking:
            read = read.without_reasoning(self._tags)

        def tokens() -> list[int]:
            found = read.tokens(self.engine.model)
            return self._fitting(found) if must_fit else found

        prompt = tuple(await asyncio.to_thread(tokens))
        wordings = await self._wordings(chat)
        settings, answer_grammar = await self._constrained(chat, read, budget)
        await self._prepare(settings)
        asked = TextRequest(
            prompt,
            settings,
            None if read.has_reasoned else self._tags,
            read.thinking and not family.always_read,
            continued=read.continued or "",
            channel=read.header if family.always_read else "",
            thinking_budget=None if budget == NO_BUDGET else budget,
            answer_grammar=answer_grammar,
            wordings=wordings,
        )
        if not tools.offered and not family.always_read:
            return asked
        return replace(
            asked,
            tool_calls=lambda: parser_for(family, tools.readable),
            marks=family.marks,
            one_call=not tools.parallel,
        )

    @property
    def _family(self) -> Family:
        """How the model writes calls."""
        return family_of(self.engine.model.chat_template)

    @property
    def _tags(self) -> Tags:
        """What stands around the model's reasoning."""
        return tags_for(self.engine.model.chat_template)

    def _budget(self, chat: ChatInput) -> int:
        """The thinking budget of an answer; NO_BUDGET: there is none."""
        budget = self.thinking_budget if chat.thinking_budget is None else chat.thinking_budget
        # No reasoning at all leaves a grammar the whole text.
        of_all = bool(budget) and chat.settings.of_all
        return NO_BUDGET if self._family.always_read or of_all else budget

    async def _constrained(
        self, chat: ChatInput, read: ChatPrompt, budget: int
    ) -> tuple[TextSettings, str | None]:
        """The settings, with a grammar of reasoning and of calls or an answer behind it.

        Beside them the grammar of what follows reasoning that its budget has ended; None: that is
        not described, or cannot happen. Raises InvalidValueError.
        """
        settings, tools, tags, family = chat.settings, chat.tools, self._tags, self._family
        reasons = any(tag in (self.engine.model.chat_template or "") for tag in tags)
        by_grammar = reasons or tools.offered or family.always_read
        if not tools.must_call and not (settings.describes_answer and by_grammar):
            return settings, None
        around = tags if reasons and not read.has_reasoned else None
        thinking = read.thinking and not family.always_read
        constrained = partial(self._with_grammar, settings, tools)
        whole = await asyncio.to_thread(constrained, around, thinking)
        if not around or budget == NO_BUDGET:
            return whole, None
        behind = await asyncio.to_thread(constrained, None, False)
        await self._prepare(behind)
        return whole, behind.grammar

    def _with_grammar(
        self, settings: TextSettings, tools: ToolUse, tags: Tags | None, thinking: bool
    ) -> TextSettings:
        """The settings with a grammar of reasoning, where there are tags, and what follows it."""
        if tools.must_call and not settings.is_free:
            raise InvalidValueError(
                "tool_choice asks for a call, and grammar describes another text; choose one"
            )
        family = self._family
        with self.engine.slots.lock:
            special = special_tokens(self.engine.model, [*family.marks, *(tags or ())])
        rest: dict[str, Any] = {
            "parallel": tools.parallel,
            "special": special,
            "reasoning": tags,
            "thinking": thinking,
        }
        if tools.must_call:
            grammar = grammar_for(family, tools.callable, tools.name, **rest)
        else:
            tools.require_readable()
            compiled = settings.compiled_grammar() or ""
            grammar = answer_grammar(family, compiled, tools.callable, **rest)
        not_enforced = (*settings.not_enforced, *tools.not_enforced)
        return replace(settings, schema=None, grammar=grammar, not_enforced=not_enforced)

    async def _prepare(self, settings: TextSettings) -> None:
        """Prepare the grammar of a text, and its DRY breakers, while nobody waits.

        Raises InvalidValueError.
        """

        def prepare() -> None:
            if grammar := settings.compiled_grammar():
                Grammar.begin(grammar, self.engine.model)
            self.engine.slots.own.params(settings)

        if not settings.is_free or settings.sampling.get("dry_multiplier"):
            await asyncio.to_thread(prepare)

    async def rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] = {},
    ) -> ChatPrompt:
        """The messages as the model's chat template writes them. Raises InvalidValueError."""
        template = self.engine.model.chat_template
        if not template:
            raise ApiError(
                400,
                f"{self.name} has no chat template; start the server with --chat-template, or send "
                "a text to /v1/completions",
                code="no_chat_template",
            )

        model = self.engine.model
        messages = self._with_system(messages)
        template_options = beside(self.template_options, template_options)
        # A template is a foreign program and may take its time.
        read = await asyncio.to_thread(chat_prompt, model, messages, tools, template_options)
        if model.projector and require_written(read.text, messages):
            warn_left_out("localspec.server", self.name, template)
        return read

    async def _wordings(self, chat: ChatInput) -> dict[Path, str]:
        """The messages in the chat templates of drafters with vocabularies of their own.

        Those without a template are left out, and those whose template refuses the messages.
        """
        given = chat.messages, chat.tools.for_template, chat.template_options
        found = dict[Path, str]()
        for model in self.engine.drafter_set.foreign_models:
            if model.chat_template:
                with suppress(InvalidValueError):
                    worded = await asyncio.to_thread(chat_prompt, model, *given)
                    found[model.path] = without_marks(worded.text)
        return found

    async def continuation(
        self, prompt: str | Sequence[int], settings: TextSettings, *, suffix: str | None = None
    ) -> TextRequest:
        """A request to continue a text or token ids. Raises InvalidValueError.

        suffix: what follows; the model then writes what belongs between the two.
        """
        if isinstance(prompt, str):
            self._require_short(len(prompt) + len(suffix or ""))
        else:
            self._require_fitting(len(prompt))
        model = self.engine.model

        def tokens() -> list[int]:
            if suffix is None:
                return self._fitting(TextPrompt(prompt).tokens(model, sys.maxsize))
            ahead = (
                prompt if isinstance(prompt, str) else checked_ids("prompt token", prompt, model)
            )
            return self._fitting(fim_prompt(model, ahead, suffix))

        await self._prepare(settings)
        return TextRequest(tuple(await asyncio.to_thread(tokens)), settings)

    async def infill(
        self,
        prefix: str,
        suffix: str,
        settings: TextSettings,
        *,
        written: str,
        snippets: Sequence[Snippet],
    ) -> TextRequest:
        """A request to fill a gap; the arguments are those of `infill_prompt`."""
        texts = [prefix, suffix, written, *(each.text for each in snippets)]
        self._require_short(sum(map(len, texts)))

        def tokens() -> list[int]:
            found = infill_prompt(
                self.engine.model,
                prefix,
                suffix,
                written=written,
                snippets=snippets,
                context=self.engine.context,
                most_tokens=settings.max_tokens,
            )
            return self._fitting(found)

        asked = TextRequest(tuple(await asyncio.to_thread(tokens)), settings)
        await self._prepare(settings)
        return asked

    def _fitting(self, tokens: list[int]) -> list[int]:
        self._require_fitting(len(tokens))
        require_words_last(tokens)
        return tokens

    def _require_fitting(self, tokens: int) -> None:
        most = self.engine.context - 1
        if tokens > most:
            raise too_long(f"{tokens} tokens > {most} maximum", most + 1, tokens)

    def _require_short(self, characters: int) -> None:
        """Raise for a text that cannot fit, however it is tokenized."""
        context = self.engine.context
        if characters > context * LONGEST_TOKEN:
            what = f"{characters} characters, and the context holds {context} tokens"
            raise too_long(what, context)

    def _with_system(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The messages behind the server's system prompt, if they begin with none of their own.

        An empty one is none, and a later system message stands beside it.
        """
        own = [*takewhile(lambda each: each.get("role") == "system", messages)]
        if not self.system or any(each.get("content") for each in own):
            return messages
        return [{"role": "system", "content": self.system}, *messages[len(own) :]]

    def _variables(self, chat: ChatInput, budget: int) -> Mapping[str, Any]:
        """The options of the template. Raises InvalidValueError."""
        none = {"enable_thinking": False} if budget == 0 else {}
        given = beside(beside(self.template_options, none), chat.template_options)
        if not chat.tools.must_call and chat.settings.is_free:
            return given
        # A grammar describes a whole answer.
        if given.get(CONTINUE) == REQUIRED:
            raise InvalidValueError(
                f"{CONTINUE} is true beside a grammar, a schema or a required call, which describe "
                "a whole answer; leave one of them out"
            )
        return {**given, CONTINUE: False}
