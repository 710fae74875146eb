"""POST /v1/completions, OpenAI's older protocol: a text is continued."""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from localspec.server.errors import JSON, ApiError
from localspec.server.fields import Fields
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import CompletionLogprobs
from localspec.server.openai_parts import (
    asks_for_usage,
    choices_of,
    finish_reason,
    merged,
    require_few,
    usage,
)
from localspec.server.options import TextSettings, most_tokens
from localspec.server.prompt_progress import asks_for_progress
from localspec.server.reply import Reply
from localspec.server.service import Service
from localspec.server.text_request import TextRequest
from localspec.server.thinking_budget import refuse_budget

# Where no number is given: OpenAI's 16 cuts most texts, and the context may be large.
USUAL_TOKENS = 256
# Members of llama-server that end a text, or that its own path and chats alone have.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "post_sampling_probs": (False,),
    "t_max_predict_ms": (-1, 0),
    "n_indent": (0,),
}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request, read and checked.

    prompts: texts or token ids. suffix: what follows the text to write; None: it only continues.
    """

    prompts: list[Any]
    suffix: str | None
    settings: TextSettings
    choices: int
    echo: bool
    include_usage: bool
    timings_per_token: bool
    shows_progress: bool


def read(body: Fields, service: Service) -> CompletionRequest:
    """Read a request. Raises ApiError."""
    service.require_model(body.text("model"))
    body.refuse(_NOT_HERE)
    refuse_budget(body)
    if body.whole("best_of", 1) not in (None, choices_of(body)):
        raise body.wrong("best_of", "equal to n")
    top = body.whole("logprobs", 0, 20)
    echo = bool(body.flag("echo"))
    if echo and top is not None:
        raise body.wrong("logprobs", "left out with echo: a prompt has none here")
    settings = service.settings_of(
        body,
        max_tokens=most_tokens(
            body, "max_tokens", "max_completion_tokens", "n_predict", context=USUAL_TOKENS
        ),
        logprobs=top is not None,
        top_logprobs=top or None,
    )
    return CompletionRequest(
        _prompts(body),
        body.text("suffix"),
        settings,
        choices_of(body),
        echo,
        asks_for_usage(body),
        bool(body.flag("timings_per_token")),
        asks_for_progress(body),
    )


def _prompts(body: Fields) -> list[Any]:
    """The prompts: one text, one list of ids, or a list of either."""
    given = body.needed("prompt")
    wrong = body.wrong("prompt", "a text, token ids, or a list of them")
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise wrong
    if all(isinstance(each, int) and not isinstance(each, bool) for each in given):
        return [given]
    require_few(given)
    for each in given:
        ids = isinstance(each, list) and all(type(token) is int for token in each)
        if not (isinstance(each, str) or ids):
            raise wrong
    return given


async def complete(request: CompletionRequest, service: Service) -> JSON:
    """The whole answer."""
    found: dict[int, Reply] = {}
    texts: dict[int, list[str]] = {}
    prompts = await _asked(request, service)
    async with aclosing(merged(service, prompts, request.choices)) as deltas:
        async for number, reply, delta in deltas:
            found[number] = reply
            texts.setdefault(number, []).append(delta.text if delta else "")
    choices: list[JSON] = []
    for number, reply in sorted(found.items()):
        text = "".join(texts[number])
        if request.echo:
            text = _echo(request.prompts[number // request.choices], service) + text
        logprobs = None
        if request.settings.logprobs:
            logprobs = CompletionLogprobs(service).lists(reply.tokens)
        choices.append(_choice(number, text, finish_reason(reply), logprobs))
    return {
        **_head(service),
        "choices": choices,
        "usage": _usage(found, request.choices),
        **speculation(*_in_order(found)),
    }


async def chunks(request: CompletionRequest, service: Service) -> AsyncGenerator[JSON]:
    """The answer in chunks, those of all texts as they come."""
    head, found = _head(service), dict[int, Reply]()
    prompts = await _asked(request, service)
    lists = [CompletionLogprobs(service) for _ in range(len(prompts) * request.choices)]
    texts = merged(service, prompts, request.choices, shows_progress=request.shows_progress)
    async with aclosing(texts) as deltas:
        async for number, reply, delta in deltas:
            if number not in found:
                found[number] = reply
                if request.echo:
                    text = _echo(request.prompts[number // request.choices], service)
                    yield {**head, "choices": [_choice(number, text, None, None)]}
            if delta is None:
                last = _choice(number, "", finish_reason(reply), None)
                extra = {} if request.include_usage else speculation(reply)
                yield {**head, "choices": [last], **extra}
                continue
            if delta.progress:
                nothing = _choice(number, "", None, None)
                yield {**head, "choices": [nothing], **delta.progress.members()}
                continue
            logprobs = None
            if request.settings.logprobs and delta.token:
                logprobs = lists[number].lists([delta.token])
            if delta.text or logprobs:
                more = speculation(reply) if request.timings_per_token else {}
                yield {**head, "choices": [_choice(number, delta.text, None, logprobs)], **more}
    if request.include_usage:
        more = {"usage": _usage(found, request.choices), **speculation(*_in_order(found))}
        yield {**head, "choices": [], **more}


async def _asked(request: CompletionRequest, service: Service) -> list[TextRequest]:
    """What each prompt asks; all are read before the first is written."""
    try:
        return [
            await service.continuation(each, request.settings, suffix=request.suffix)
            for each in request.prompts
        ]
    except TypeError as error:
        raise ApiError(400, "prompt must be a text or token ids", param="prompt") from error


def _echo(prompt: Any, service: Service) -> str:
    """The text of a prompt."""
    return prompt if isinstance(prompt, str) else service.text(prompt)


def _head(service: Service) -> JSON:
    return {
        "id": f"cmpl-{token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": service.name,
        "system_fingerprint": "localspec",
    }


def _choice(index: int, text: str, reason: str | None, logprobs: JSON | None) -> JSON:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}


def _usage(replies: Mapping[int, Reply], choices: int) -> JSON:
    """The tokens of all prompts, each counted once, and of all texts."""
    every = _in_order(replies)
    first = every[::choices]
    found = usage(every)
    prompt = sum(reply.stats.prompt_tokens for reply in first)
    found["prompt_tokens"] = prompt
    found["total_tokens"] = prompt + found["completion_tokens"]
    found["prompt_tokens_details"] = {
        "cached_tokens": sum(reply.stats.prompt_cached for reply in first)
    }
    return found


def _in_order(replies: Mapping[int, Reply]) -> list[Reply]:
    return [reply for _, reply in sorted(replies.items())]
