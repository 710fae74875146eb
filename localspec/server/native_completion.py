"""POST /completion, llama-server's own way to continue a text, which many of its clients use."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.server.fields import Fields
from localspec.server.native_answer import Form, NativeAnswer
from localspec.server.openai_parts import require_few
from localspec.server.options import TextSettings
from localspec.server.service import Service
from localspec.server.thinking_budget import refuse_budget

# llama-server takes a text, or tokens and texts in a row.
NativePrompt = str | Sequence[int | str]


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """A request, read and checked. is_list: whether it has a list of prompts."""

    prompts: Sequence[NativePrompt]
    is_list: bool
    settings: TextSettings
    form: Form


def read(body: Fields, service: Service) -> NativeRequest:
    """Read a request. Raises ApiError."""
    refuse_budget(body)
    form = Form.of(body)
    prompts, is_list = _prompts(body)
    form.require_one(body, len(prompts))
    settings = form.settings(body, service, service.engine.context)
    return NativeRequest(prompts, is_list, settings, form)


def _prompts(body: Fields) -> tuple[list[NativePrompt], bool]:
    """The prompts, and whether they are a list of prompts. Raises ApiError."""
    given = _text_of(body.needed("prompt"))
    if _is_prompt(given):
        return [given], False
    prompts = [*map(_text_of, given)] if isinstance(given, list) else []
    if not prompts or not all(map(_is_prompt, prompts)):
        raise body.wrong("prompt", "a text, a list of tokens and texts, or a list of these")
    require_few(prompts)
    return prompts, True


def _text_of(given: Any) -> Any:
    """The text of an object that has only that: llama-server's form of a prompt with pictures."""
    is_text = isinstance(given, dict) and given.keys() == {"prompt_string"}
    return given["prompt_string"] if is_text else given


def _is_prompt(given: object) -> bool:
    if isinstance(given, str):
        return True
    # A list of texts alone is a list of prompts.
    return (
        isinstance(given, list)
        and any(type(part) is int for part in given)
        and all(type(part) is int or isinstance(part, str) for part in given)
    )


async def answer(request: NativeRequest, service: Service) -> NativeAnswer:
    """The answer, before it is written; all prompts are read before the first text is."""

    def tokens(prompt: NativePrompt) -> str | Sequence[int]:
        if isinstance(prompt, str) or all(isinstance(part, int) for part in prompt):
            return prompt  # type: ignore[return-value]
        found: list[int] = []
        for place, part in enumerate(prompt):
            if isinstance(part, int):
                found.append(part)
            else:
                found += service.tokens(part, add_special=place == 0, parse_special=True)
        return found

    prompts = [
        await service.inputs.continuation(await asyncio.to_thread(tokens, prompt), request.settings)
        for prompt in request.prompts
    ]
    return NativeAnswer(request.form, prompts, service, is_list=request.is_list)
