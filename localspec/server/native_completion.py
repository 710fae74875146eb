"""POST /completion, llama-server's own way to continue a text, which many of its clients use."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from localspec.engine.media_parts import contents
from localspec.engine.prompt import template_tokens
from localspec.llama.model import MediaReader
from localspec.server.content_reader import file_mark
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.native_answer import Form, NativeAnswer
from localspec.server.openai_parts import require_few
from localspec.server.options import TextSettings
from localspec.server.service import Service
from localspec.server.thinking_budget import refuse_budget

# What stands for an image or a sound in `prompt_string`.
MEDIA_MARKER = "<__media__>"


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with marks of images and sounds."""

    text: str


# llama-server takes a text, or tokens and texts in a row.
NativePrompt = str | MarkedText | Sequence[int | str]


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
    prompts, is_list = _prompts(body, service.engine.model.projector)
    form.require_one(body, len(prompts))
    settings = form.settings(body, service, service.engine.context)
    return NativeRequest(prompts, is_list, settings, form)


def _prompts(body: Fields, projector: MediaReader | None) -> tuple[list[NativePrompt], bool]:
    """The prompts, and whether they are a list of prompts. Raises ApiError."""
    given = body.needed("prompt")
    prompt = _text_of(given, "prompt", projector)
    if _is_prompt(prompt):
        return [prompt], False
    places = enumerate(given) if isinstance(given, list) else ()
    prompts = [_text_of(each, f"prompt[{at}]", projector) for at, each in places]
    if not prompts or not all(map(_is_prompt, prompts)):
        raise body.wrong("prompt", "a text, a list of tokens and texts, or a list of these")
    require_few(prompts)
    return prompts, True


def _text_of(given: Any, place: str, projector: MediaReader | None) -> Any:
    """The text of llama-server's form of a prompt with images; of anything else, that itself."""
    if not isinstance(given, dict) or not given.keys() <= {"prompt_string", "multimodal_data"}:
        return given
    prompt = Fields(given, place)
    text, files = prompt.needed("prompt_string"), prompt.items("multimodal_data") or []
    if not files:
        return text
    *parts, last = (prompt.text("prompt_string") or "").split(MEDIA_MARKER)
    if len(parts) != len(files):
        place = prompt.place("multimodal_data")
        raise ApiError(
            400,
            f"{place} has {len(files)} files, and the text {len(parts)} {MEDIA_MARKER}; "
            "send as many of each",
            param=place,
        )
    found = ""
    for at, (part, file) in enumerate(zip(parts, files, strict=True)):
        where = f"{prompt.place('multimodal_data')}[{at}]"
        found += part + file_mark(partial(contents, file, where), where, projector)
    return MarkedText(found + last)


def _is_prompt(given: object) -> bool:
    if isinstance(given, str | MarkedText):
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
        if isinstance(prompt, MarkedText):
            return template_tokens(prompt.text, service.engine.model)
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
