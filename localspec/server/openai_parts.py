"""Parts that OpenAI's protocols and llama-server's share: the form of an answer, and usage."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex

from localspec.server.chat_input import ChatInput
from localspec.server.errors import JSON, ApiError
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.reply import Delta, Reply, with_seed
from localspec.server.service import Service
from localspec.server.text_request import TextRequest

_MOST_CHOICES = 16
_MOST_PROMPTS = 64
_REASONS = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer has.

    choices: the texts of each prompt. include_usage: whether a stream ends with the tokens of all
    its texts. timings_per_token: whether each part of a stream says how the text was written so
    far. shows_progress: whether parts of a stream say how far the prompts are read.
    """

    choices: int
    stream: bool
    include_usage: bool
    timings_per_token: bool
    shows_progress: bool

    @classmethod
    def of(cls, body: Fields) -> "AnswerForm":
        """That of a request. Raises ApiError."""
        options, stream = body.member("stream_options"), bool(body.flag("stream"))
        return cls(
            body.whole("n_cmpl" if "n_cmpl" in body else "n", 1, _MOST_CHOICES) or 1,
            stream,
            bool(options and options.flag("include_usage")),
            bool(body.flag("timings_per_token")),
            bool(body.flag("return_progress")) and stream,
        )

    def so_far(self, reply: Reply) -> JSON:
        """What a part of a stream says of how the text was written so far."""
        return speculation(reply) if self.timings_per_token else {}

    def at_end(self, reply: Reply) -> JSON:
        """What the last part of a text says of it; where usage follows, that says it of all."""
        return {} if self.include_usage else speculation(reply)


def answer_head(service: Service, kind: str, prefix: str) -> JSON:
    """What an answer and each of its parts begin with. prefix: of its id."""
    return {
        "id": f"{prefix}-{token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": service.name,
        "system_fingerprint": "localspec",
    }


def require_few(prompts: Sequence[object]) -> None:
    """Raise ApiError for more prompts than a request may have."""
    if len(prompts) > _MOST_PROMPTS:
        raise ApiError(
            400, f"there are {len(prompts)} prompts; send {_MOST_PROMPTS} at most", param="prompt"
        )


def finish_reason(reply: Reply) -> str:
    """Why a text has ended, in OpenAI's words. A text that the server ended was cut short."""
    reason = _REASONS.get(reply.stop_reason or "", "length")
    return "tool_calls" if reply.has_called and reason == "stop" else reason


async def merged(
    service: Service, prompts: Sequence[TextRequest], form: AnswerForm
) -> AsyncGenerator[tuple[int, Reply, Delta | None]]:
    """The deltas of all texts as they come: (number, reply, delta); None ends a text.

    Choice c of prompt p has the number p * choices + c, and a seed of its own. The choices of a
    prompt begin once the first has read it. Of several prompts, as many are written at once as
    leave one slot to other requests. The first error ends all texts.
    """
    choices = form.choices
    slots, count = len(service.pool.slots), len(prompts) * choices
    has_read = [asyncio.Event() for _ in prompts]
    turns = asyncio.Semaphore(count if len(prompts) == 1 else max(1, slots - 1))
    arrived: asyncio.Queue[tuple[int, Reply, Delta | None] | BaseException] = asyncio.Queue(64)

    async def write(number: int) -> None:
        place, choice = divmod(number, choices)
        asked = replace(with_seed(prompts[place], choice), shows_progress=form.shows_progress)
        try:
            if choice:
                await has_read[place].wait()
            async with turns, service.reply(asked, is_choice=number > 0) as reply:
                async with reply.deltas() as deltas:
                    async for delta in deltas:
                        if delta.progress is None:
                            has_read[place].set()
                        await arrived.put((number, reply, delta))
                has_read[place].set()
                await arrived.put((number, reply, None))
        except Exception as error:
            await arrived.put(error)

    tasks = [asyncio.create_task(write(number)) for number in range(count)]
    try:
        ended = 0
        while ended < count:
            found = await arrived.get()
            if isinstance(found, BaseException):
                raise found
            ended += found[2] is None
            yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def token_count(chat: ChatInput, service: Service) -> JSON:
    """How many tokens the prompt of a chat has."""
    asked = await service.inputs.chat(chat, must_fit=False)
    return {"object": "response.input_tokens", "input_tokens": len(asked.prompt)}


def usage(replies: Sequence[Reply]) -> JSON:
    """The tokens of a request; its prompt counts once."""
    first = replies[0].stats
    written = sum(reply.stats.text_tokens for reply in replies)
    predicted = sum(reply.stats.predicted for reply in replies)
    accepted = sum(reply.stats.predicted_accepted for reply in replies)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": written,
        "total_tokens": first.prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": first.prompt_cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "reasoning_tokens": sum(reply.thinking_budget.used for reply in replies),
            "rejected_prediction_tokens": predicted - accepted,
        },
    }
