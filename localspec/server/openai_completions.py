"""POST /v1/completions, OpenAI's older protocol: a text is continued."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from localspec.server.errors import JSON, ApiError
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members
from localspec.server.metrics import speculation
from localspec.server.openai_logprobs import CompletionLogprobs
from localspec.server.openai_parts import (
    AnswerForm,
    answer_head,
    finish_reason,
    merged,
    require_few,
    usage,
)
from localspec.server.options import TextSettings, most_tokens
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
    echo: whether the prompt comes in front of the text.
    """

    prompts: list[Any]
    suffix: str | None
    settings: TextSettings
    echo: bool
    form: AnswerForm


def read(body: Fields, service: Service) -> CompletionRequest:
    """Read a request. Raises ApiError."""
    body.refuse(_NOT_HERE)
    refuse_budget(body)
    form = AnswerForm.of(body)
    if body.whole("best_of", 1) not in (None, form.choices):
        raise body.wrong("best_of", "equal to n")
    top = body.whole("logprobs", 0, 20)
    echo = bool(body.flag("echo"))
    suffix = body.text("suffix") or None  # an empty one is none
    if echo and suffix and top is not None:
        raise body.wrong("logprobs", "left out with echo and suffix: the prompt has other tokens")
    names = "max_tokens", "max_completion_tokens", "n_predict"
    most = most_tokens(body, *names, context=USUAL_TOKENS, least=0 if echo else 1)
    settings = service.settings_of(
        body,
        max_tokens=most,
        logprobs=top is not None,
        top_logprobs=top or None,
        prompt_logprobs=echo and (top is not None or not most),
        not_used=unused_members(body, "completions"),
    )
    return CompletionRequest(_prompts(body), suffix, settings, echo, form)


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
    async with aclosing(merged(service, prompts, request.form)) as deltas:
        async for number, reply, delta in deltas:
            found[number] = reply
            texts.setdefault(number, []).append(delta.text if delta else "")
    choices: list[JSON] = []
    for number, reply in sorted(found.items()):
        echo, lists = _echo(request, number, service), CompletionLogprobs(service)
        text, logprobs = echo + "".join(texts[number]), None
        if request.settings.logprobs:
            ahead = await _prompt_lists(request, number, found, lists, echo)
            behind = lists.lists(reply.tokens)
            logprobs = {name: ahead.get(name, []) + behind[name] for name in behind}
        choices.append(_choice(number, text, finish_reason(reply), logprobs))
    return {
        **answer_head(service, "text_completion", "cmpl"),
        "choices": choices,
        "usage": _usage(found, request.form.choices),
        **speculation(*_in_order(found)),
    }


async def chunks(request: CompletionRequest, service: Service) -> AsyncGenerator[JSON]:
    """The answer in chunks, those of all texts as they come."""
    head, found = answer_head(service, "text_completion", "cmpl"), dict[int, Reply]()
    form, prompts = request.form, await _asked(request, service)
    lists = dict[int, CompletionLogprobs]()
    async with aclosing(merged(service, prompts, form)) as deltas:
        async for number, reply, delta in deltas:
            found[number] = reply
            if number not in lists and not (delta and delta.progress):
                echo, lists[number] = _echo(request, number, service), CompletionLogprobs(service)
                ahead = await _prompt_lists(request, number, found, lists[number], echo)
                if request.echo:
                    yield {**head, "choices": [_choice(number, echo, None, ahead or None)]}
            if delta is None:
                last = _choice(number, "", finish_reason(reply), None)
                yield {**head, "choices": [last], **form.at_end(reply)}
                continue
            if delta.progress:
                nothing = _choice(number, "", None, None)
                yield {**head, "choices": [nothing], **delta.progress.members()}
                continue
            logprobs = None
            if request.settings.logprobs and delta.token:
                logprobs = lists[number].lists([delta.token])
            if delta.text or logprobs:
                part = _choice(number, delta.text, None, logprobs)
                yield {**head, "choices": [part], **form.so_far(reply)}
    if form.include_usage:
        more = {"usage": _usage(found, form.choices), **speculation(*_in_order(found))}
        yield {**head, "choices": [], **more}


async def _asked(request: CompletionRequest, service: Service) -> list[TextRequest]:
    """What each prompt asks; all are read before the first is written."""
    try:
        return [
            await service.inputs.continuation(each, request.settings, suffix=request.suffix)
            for each in request.prompts
        ]
    except TypeError as error:
        raise ApiError(400, "prompt must be a text or token ids", param="prompt") from error


def _echo(request: CompletionRequest, number: int, service: Service) -> str:
    """The prompt of the text of this number, where it comes in front of it."""
    if not request.echo:
        return ""
    prompt = _given(request, number)
    return prompt if isinstance(prompt, str) else service.text(prompt)


def _given(request: CompletionRequest, number: int) -> Any:
    """The prompt of the text of this number, a text or token ids."""
    return request.prompts[number // request.form.choices]


async def _prompt_lists(
    request: CompletionRequest,
    number: int,
    found: Mapping[int, Reply],
    lists: CompletionLogprobs,
    echo: str,
) -> JSON:
    """The log-probabilities of the prompt of the text of this number; empty: there are none."""
    # The first choice of a prompt has those of all.
    first = found.get(number - number % request.form.choices, found[number])
    tokens = first.prompt_logprobs if request.settings.logprobs else []
    if not tokens:
        return {}
    # A long prompt has many, and others wait for the loop.
    return await asyncio.to_thread(lists.prompt_lists, tokens, _given(request, number), echo)


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
