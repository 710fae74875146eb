"""Service: a loaded model as the protocols see it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from localspec.engine.engine import Engine
from localspec.engine.prompt import checked_ids, text_tokens
from localspec.generation_config import GenerationOptions
from localspec.gguf.lora import LoraFile
from localspec.server.errors import shutting_down
from localspec.server.fields import Fields
from localspec.server.input_processor import InputProcessor
from localspec.server.kept_states import KeptStates
from localspec.server.metrics import Metrics
from localspec.server.options import TextSettings, settings_of
from localspec.server.reply import Reply
from localspec.server.slot_pool import SlotPool
from localspec.server.text_log import ToldOnce, facts_of, line_of
from localspec.server.text_request import TextRequest
from localspec.server.thinking_budget import NO_BUDGET
from localspec.server.waiting import waited_for_model

log = logging.getLogger("localspec.server")


@dataclass(slots=True)
class Service:
    """An engine, its slots, and what it counts.

    names: what clients may call the model; the first is listed.
    usual: settings of texts whose requests say nothing else. system: the system prompt of chats
    that have none; "": none. template_options: variables for the
    chat template where a request does not say. thinking_budget: the most tokens of
    reasoning where a request does not say; NO_BUDGET: no limit. kept: keeps what slots hold for the
    next run; None: nothing does. told: what the log has said of requests. inputs: makes requests of
    messages and texts.
    """

    engine: Engine
    pool: SlotPool
    names: Sequence[str]
    usual: GenerationOptions = field(default_factory=lambda: GenerationOptions())
    system: str = ""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    thinking_budget: int = NO_BUDGET
    metrics: Metrics = field(default_factory=Metrics)
    kept: KeptStates | None = None
    # What is being written, by the number of its slot.
    replies: dict[int, Reply] = field(default_factory=dict)
    # Whether texts that are being written end now.
    stopping: bool = False
    # Long work that writes no text leaves threads to the requests of others.
    aside: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    told: ToldOnce = field(default_factory=ToldOnce)
    inputs: InputProcessor = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = InputProcessor(
            self.engine, self.name, self.system, self.template_options, self.thinking_budget
        )

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.names[0]

    @property
    def adapters(self) -> Sequence[LoraFile]:
        """Those that are on in all of its texts."""
        return self.engine.slots.own.loaded.adapters

    def stop(self) -> None:
        """End all texts within one step, each with a proper end of its stream."""
        self.stopping = True

    def close(self) -> None:
        """Keep what slots hold, if that is wanted, and free everything; no text is written."""
        if self.kept:
            self.kept.save(self.pool.slots)
        self.pool.close()
        self.engine.close()
        earlier = self.engine.drafter_set.earlier
        if earlier and earlier.problem:
            log.warning("%s", earlier.problem)

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        return self.engine.model.piece(token)

    def tokens(
        self, text: str, *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """The tokens of a text, as in `Model.tokenize`. Raises InvalidValueError."""
        model = self.engine.model
        return text_tokens(
            text,
            lambda each: model.tokenize(each, add_special=add_special, parse_special=parse_special),
        )

    def prompt_piece(self, token: int) -> bytes:
        """The bytes of a token as it is written in a prompt, control tokens included."""
        return self.piece(token) or self.engine.model.piece_text(token).encode()

    def text(self, tokens: Iterable[object]) -> str:
        """The text of tokens as a prompt has it. Raises InvalidValueError, TypeError."""
        known = checked_ids("token", tokens, self.engine.model)
        return b"".join(map(self.prompt_piece, known)).decode("utf-8", "replace")

    def settings_of(self, body: Fields, **given: Any) -> TextSettings:
        """The settings that a body asks for, as `options.settings_of`. Raises ApiError."""
        return settings_of(body, self.usual, self.tokens, **given)

    def _log_unused(self, reply: Reply) -> None:
        """Log what of a request has no effect; of its members, what was not logged before."""
        members = reply.asked.settings.not_used
        self.told.log(members)
        for line in reply.not_used:
            if line not in members:
                log.warning("what is not used of a request: %s", line)

    @asynccontextmanager
    async def reply(self, asked: TextRequest, *, is_choice: bool = False) -> AsyncIterator[Reply]:
        """The reply to a request, on a slot, as soon as one is free; it ends with the `with`.

        is_choice: whether it is a further choice of a request that has been taken.
        """
        began = time.perf_counter()
        async with self.pool.slot_for(asked.prompt, is_choice=is_choice) as pooled:
            if self.stopping and not is_choice:
                raise shutting_down()
            waited = time.perf_counter() - began + (0.0 if is_choice else waited_for_model.get())
            reply = Reply(pooled.slot, asked, lambda: self.stopping, number=pooled.number)
            self.replies[pooled.number] = reply
            for line in () if is_choice else asked.settings.not_enforced:
                log.warning("what is not enforced of a schema: %s", line)
            if not is_choice:
                self._log_unused(reply)
            try:
                yield reply
            finally:
                del self.replies[pooled.number]
                self.metrics.add(reply, waited)
                facts = facts_of(reply, waited)
                log.info("%s", line_of(facts), extra={"facts": facts})
