"""Service: a loaded model as the protocols see it."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from localspec.conversation.reasoning import Tags, tags_for
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.engine import Engine
from localspec.engine.fim_prompt import Snippet, fim_prompt, infill_prompt
from localspec.engine.prompt import (
    TextPrompt,
    checked_ids,
    text_tokens,
)
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationOptions
from localspec.llama.grammar import Grammar, special_tokens
from localspec.server.chat import Chat
from localspec.server.chat_prompt import CONTINUE, REQUIRED, ChatPrompt, chat_prompt
from localspec.server.errors import ApiError, too_long
from localspec.server.fields import Fields
from localspec.server.kept_states import KeptStates
from localspec.server.metrics import Metrics
from localspec.server.options import TextSettings, settings_of
from localspec.server.reply import Reply
from localspec.server.slot_pool import SlotPool
from localspec.server.text_log import facts_of, line_of
from localspec.server.text_request import TextRequest
from localspec.server.thinking_budget import NO_BUDGET
from localspec.server.tool_calls import (
    Family,
    answer_grammar,
    family_of,
    grammar_for,
    parser_for,
)
from localspec.server.tool_use import ToolUse

log = logging.getLogger("localspec.server")
# No token stands for more characters. A text that is longer than a context full of such tokens is
# refused before it is rendered and tokenized, which would take seconds.
_LONGEST_TOKEN = 256


@dataclass(slots=True)
class Service:
    """An engine, its slots, and what it counts.

    The engine's lock is held during decodes, and a request must not wait for several of them before
    its text begins. So prompts are tokenized without the lock: a vocabulary never changes, and the
    engine of a server switches no models.

    names: what clients may call the model; the first is listed. Names of other models are refused.
    usual: settings of texts whose requests say nothing else. thinking_budget: the most tokens of
    reasoning where a request does not say; NO_BUDGET: no limit. kept: keeps what slots hold for the
    next run; None: nothing does.
    """

    engine: Engine
    pool: SlotPool
    names: Sequence[str]
    usual: GenerationOptions = field(default_factory=lambda: GenerationOptions())
    thinking_budget: int = NO_BUDGET
    metrics: Metrics = field(default_factory=Metrics)
    kept: KeptStates | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    # What is being written, by the number of its slot.
    replies: dict[int, Reply] = field(default_factory=dict)
    # Whether no further request is taken, and whether texts that are being written end now.
    closing: bool = False
    stopping: bool = False
    # Long work that writes no text leaves threads to the requests of others.
    aside: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    _pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.names[0]

    def stop(self) -> None:
        """End all texts within one step, each with a proper end of its stream."""
        self.closing = self.stopping = True

    def close(self) -> None:
        """Keep what slots hold, if that is wanted, and free everything; no text is written."""
        if self.kept:
            self.kept.save(self.pool.slots)
        self.pool.close()
        self.engine.close()

    def require_model(self, name: str | None) -> None:
        """Raise ApiError (404) for the name of another model; none and "" are any."""
        if name and name not in self.names:
            raise ApiError(
                404,
                f"the model {name:.80} is not loaded here; ask for {self.name}",
                param="model",
                code="model_not_found",
            )

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        if token not in self._pieces:
            self._pieces[token] = self.engine.model.piece(token)
        return self._pieces[token]

    def tokens(
        self, text: str, *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """The tokens of a text, as in `Model.tokenize`. Raises InvalidValueError."""
        model = self.engine.model
        return text_tokens(
            text,
            lambda each: model.tokenize(each, add_special=add_special, parse_special=parse_special),
        )

    def text(self, tokens: Iterable[object]) -> str:
        """The text of tokens, without control tokens. Raises InvalidValueError, TypeError."""
        detokenizer = Detokenizer()
        known = checked_ids("token", tokens, self.engine.model)
        return "".join([detokenizer.push(self.piece(each)) for each in known]) + detokenizer.flush()

    def settings_of(self, body: Fields, **given: Any) -> TextSettings:
        """The settings that a body asks for, as `options.settings_of`. Raises ApiError."""
        return settings_of(body, self.usual, self.tokens, **given)

    async def chat(self, chat: Chat, *, must_fit: bool = True) -> TextRequest:
        """A request to answer these messages. Raises InvalidValueError.

        must_fit: whether a prompt that is longer than the context is refused.
        """
        messages, settings, tools = chat.messages, chat.settings, chat.tools
        template_options = chat.template_options
        template = self.engine.model.chat_template
        family, tags = family_of(template), tags_for(template)
        budget = self.thinking_budget if chat.thinking_budget is None else chat.thinking_budget
        # No reasoning at all leaves a grammar the whole text.
        if family.always_read or (budget and settings.of_all):
            budget = NO_BUDGET
        if budget == 0:
            template_options = {"enable_thinking": False, **template_options}
        self._require_short(sum(len(str(each.get("content") or "")) for each in messages))
        if tools.must_call or not settings.is_free:
            template_options = _without_continuing(template_options)
        read = await self.rendered(
            messages,
            tools=tools.given if tools.offered else None,
            template_options=template_options,
        )
        self._require_short(len(read.text))
        if budget == 0 and read.thinking:
            read = read.without_reasoning(tags)

        def tokens() -> list[int]:
            found = read.tokens(self.engine.model)
            return self._fitting(found) if must_fit else found

        prompt = tuple(await asyncio.to_thread(tokens))
        wordings = await self._wordings(messages, tools, template_options)
        thinking = read.thinking and not family.always_read
        has_reasoned = read.continued is not None and not read.thinking
        reasons = any(tag in (template or "") for tag in tags)
        not_alone = reasons or tools.offered or family.always_read
        answer_grammar = None
        if tools.must_call or (settings.describes_answer and not_alone):
            around = tags if reasons and not has_reasoned else None
            constrained = partial(self._constrained, settings, family, tools)
            settings = await asyncio.to_thread(constrained, around, thinking)
            if around and budget != NO_BUDGET:
                behind = await asyncio.to_thread(constrained, None, False)
                await self._prepare(behind)
                answer_grammar = behind.grammar
        await self._prepare(settings)
        asked = TextRequest(
            prompt,
            settings,
            None if has_reasoned else tags,
            thinking,
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
            tool_calls=lambda: parser_for(family, tools.callable if tools.offered else ()),
            marks=family.marks,
            one_call=not tools.parallel,
        )

    def _constrained(
        self,
        settings: TextSettings,
        family: Family,
        tools: ToolUse,
        tags: Tags | None,
        thinking: bool,
    ) -> TextSettings:
        """The settings, with a grammar of reasoning and of what follows: calls or an answer."""
        if tools.must_call and not settings.is_free:
            raise InvalidValueError(
                "tool_choice asks for a call, and a grammar or response_format for another text; "
                "choose one"
            )
        with self.engine.lock:
            special = special_tokens(self.engine.model, [*family.marks, *(tags or ())])
        rest: dict[str, Any] = {"special": special, "reasoning": tags, "thinking": thinking}
        if tools.must_call:
            grammar = grammar_for(
                family, tools.callable, tools.name, parallel=tools.parallel, **rest
            )
        else:
            if tools.offered:
                tools.require_readable()
            callable_tools = tools.callable if tools.offered else ()
            compiled = settings.compiled_grammar() or ""
            grammar = answer_grammar(
                family, compiled, callable_tools, parallel=tools.parallel, **rest
            )
        not_enforced = (*settings.not_enforced, *tools.not_enforced)
        return replace(settings, schema=None, grammar=grammar, not_enforced=not_enforced)

    async def _prepare(self, settings: TextSettings) -> None:
        """Prepare the grammar of a text, and its DRY breakers, while nobody waits.

        Raises InvalidValueError.
        """

        def prepare() -> None:
            if grammar := settings.compiled_grammar():
                Grammar.begin(grammar, self.engine.model)
            self.engine.slot.params(settings)

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

        # A template is a foreign program and may take its time.
        return await asyncio.to_thread(
            chat_prompt, self.engine.model, messages, tools, template_options
        )

    async def _wordings(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: ToolUse,
        template_options: Mapping[str, Any],
    ) -> dict[Path, str]:
        """The messages in the chat templates of drafters with vocabularies of their own.

        Those without a template are left out, and those whose template refuses the messages.
        """
        found = dict[Path, str]()
        for model in self.engine.drafter_set.foreign_models:
            if model.chat_template:
                given = tools.given if tools.offered else None
                with suppress(InvalidValueError):
                    worded = await asyncio.to_thread(
                        chat_prompt, model, messages, given, template_options
                    )
                    found[model.path] = worded.text
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

    @asynccontextmanager
    async def reply(self, asked: TextRequest, *, is_choice: bool = False) -> AsyncIterator[Reply]:
        """The reply to a request, on a slot, as soon as one is free; it ends with the `with`.

        is_choice: whether it is a further choice of a request that has been taken.
        """
        self._require(is_choice or not self.closing)
        began = time.perf_counter()
        async with self.pool.slot_for(asked.prompt, is_choice=is_choice) as pooled:
            self._require(is_choice or not self.stopping)
            waited = time.perf_counter() - began
            reply = Reply(pooled.slot, asked, lambda: self.stopping, number=pooled.number)
            self.replies[pooled.number] = reply
            for line in () if is_choice else asked.settings.not_enforced:
                log.warning("what is not enforced of a schema: %s", line)
            try:
                yield reply
            finally:
                del self.replies[pooled.number]
                self.metrics.add(reply, waited)
                facts = facts_of(reply, waited)
                log.info("%s", line_of(facts), extra={"facts": facts})

    def _require(self, serves: bool) -> None:
        if not serves:
            raise ApiError(503, "the server is shutting down", code="shutting_down")

    def _fitting(self, tokens: list[int]) -> list[int]:
        self._require_fitting(len(tokens))
        return tokens

    def _require_fitting(self, tokens: int) -> None:
        most = self.engine.context - 1
        if tokens > most:
            raise too_long(f"{tokens} tokens > {most} maximum", most + 1, tokens)

    def _require_short(self, characters: int) -> None:
        """Raise for a text that cannot fit, however it is tokenized."""
        context = self.engine.context
        if characters > context * _LONGEST_TOKEN:
            what = f"{characters} characters, and the context holds {context} tokens"
            raise too_long(what, context)


def _without_continuing(template_options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of an answer that a grammar describes, which is a whole one."""
    if template_options.get(CONTINUE) == REQUIRED:
        raise InvalidValueError(
            f"{CONTINUE} is true beside a grammar, a schema or a required call, which describe a "
            "whole answer; leave one of them out"
        )
    return {**template_options, CONTINUE: False}
