"""Parts that OpenAI's protocols share: choices and usage."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from localspec.server.chat import Chat
from localspec.server.errors import JSON, ApiError
from localspec.server.fields import Fields
from localspec.server.reply import Delta, Reply, with_seed
from localspec.server.service import Service
from localspec.server.text_request import TextRequest

_MOST_CHOICES = 16
_MOST_PROMPTS = 64
_REASONS = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}


def asks_for_usage(body: Fields) -> bool:
    """Whether a stream ends with the tokens of all its texts. Raises ApiError."""
    options = body.member("stream_options")
    return bool(options and options.flag("include_usage"))


def choices_of(body: Fields) -> int:
    """How many answers are asked for."""
    return body.whole("n_cmpl" if "n_cmpl" in body else "n", 1, _MOST_CHOICES) or 1


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
    service: Service, prompts: Sequence[TextRequest], choices: int, *, shows_progress: bool = False
) -> AsyncGenerator[tuple[int, Reply, Delta | None]]:
    """The deltas of all texts as they come: (number, reply, delta); None ends a text.

    Choice c of prompt p has the number p * choices + c, and a seed of its own. The choices of a
    prompt begin once the first has read it. Of several prompts, as many are written at once as
    leave one slot to other requests. The first error ends all texts. shows_progress: whether deltas
    say how far the prompts are read.
    """
    slots, count = len(service.pool.slots), len(prompts) * choices
    has_read = [asyncio.Event() for _ in prompts]
    turns = asyncio.Semaphore(count if len(prompts) == 1 else max(1, slots - 1))
    arrived: asyncio.Queue[tuple[int, Reply, Delta | None] | BaseException] = asyncio.Queue(64)

    async def write(number: int) -> None:
        place, choice = divmod(number, choices)
        asked = replace(with_seed(prompts[place], choice), shows_progress=shows_progress)
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


async def token_count(chat: Chat, service: Service) -> JSON:
    """How many tokens the prompt of a chat has."""
    asked = await service.chat(chat, must_fit=False)
    return {"object": "response.input_tokens", "input_tokens": len(asked.prompt)}


def usage(replies: Sequence[Reply]) -> JSON:
    """The tokens of a request; its prompt counts once."""
    first = replies[0].stats
    written = sum(reply.stats.text_tokens for reply in replies)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": written,
        "total_tokens": first.prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": first.prompt_cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(reply.stats.accepted for reply in replies),
            "reasoning_tokens": sum(reply.thinking_budget.used for reply in replies),
            "rejected_prediction_tokens": sum(
                reply.stats.drafted - reply.stats.accepted for reply in replies
            ),
        },
    }
