"""Chat templates of GGUF files: a conversation as the text that its model was trained on.

A template is a program out of a downloaded file, so it is rendered by a worker process, which may
use only so much time and memory (`template_renderer`).
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

from localspec.errors import InvalidValueError
from localspec.utils.option_names import option, raw_prompt
from localspec.utils.worker_process import WorkerLimitError, WorkerProcess

Message = Mapping[str, Any]


class TemplateRefusedError(InvalidValueError):
    """A template refuses what it is given, lacks a variable, or is broken."""


# A conversation of a million tokens takes a tenth of each.
_SECONDS, _MEMORY = 5, 1_000_000_000
_renderer = WorkerProcess("localspec.llama.template_renderer", seconds=_SECONDS, memory=_MEMORY)
# What was wrong with templates that exceeded the limits at a usual conversation; they are not
# rendered a second time. A very long one says nothing of the template.
_USUAL_CHARACTERS = 100_000
_over_limits: dict[str, str] = {}
# Whether a template writes a content only where it is a list of parts.
_PROBE = "What is it?"
_reads_only_parts: dict[str, bool] = {}


def start_renderer() -> None:
    """Start the worker process, so that a conversation that follows soon need not wait for it."""
    _renderer.start()


def render(
    template: str,
    messages: Sequence[Message],
    *,
    bos: str,
    eos: str,
    tools: Sequence[Mapping[str, Any]] | None = None,
    now: datetime | None = None,
    options: Mapping[str, Any] = {},
) -> str:
    """Render a chat template.

    messages: {"role": ..., "content": ...}, and other keys that the template reads; a content is a
    text, which a template that reads lists of parts only gets as such a list. bos, eos: the texts
    of the special tokens. now: the time that the template sees; None is the present time.
    options: further variables, such as enable_thinking; they override the others. Messages, tools
    and options are what JSON can express.

    Raises TemplateRefusedError if the template refuses the messages, lacks a variable or is broken,
    and InvalidValueError if it needs more time or memory than a template may use.
    """
    variables = {
        "messages": messages,
        "tools": tools,
        "documents": None,
        "bos_token": bos,
        "eos_token": eos,
        "add_generation_prompt": True,
        **options,
    }
    given = {"variables": variables, "now": (now or datetime.now()).isoformat()}
    if template not in _reads_only_parts:
        _probe(template, given)
    if _reads_only_parts.get(template):
        given["variables"] = {**variables, "messages": [_in_parts(each) for each in messages]}
    return str(_asked(template, given)["text"])


def _probe(template: str, given: Mapping[str, Any]) -> None:
    """Find out which content a template writes: a text, or else a list of parts.

    One that writes neither may need other variables; it is asked again, and gets texts until then.
    """
    text = {"role": "user", "content": _PROBE}
    for in_parts, message in enumerate((text, _in_parts(text))):
        variables = {**given["variables"], "messages": [message]}
        with suppress(TemplateRefusedError):
            if _PROBE in _asked(template, {**given, "variables": variables})["text"]:
                _reads_only_parts[template] = bool(in_parts)
                return


def _in_parts(message: Message) -> Message:
    """A message with its content as a list of parts; one without a content has an empty part."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        content = [{"type": "text", "text": content or ""}]
    return {**message, "content": content}


def mentions(template: str, name: str) -> bool:
    """Whether a template reads a variable, an attribute or a key of this name, such as `tools`.

    Raises InvalidValueError if the template is broken.
    """
    return name in _names_read(template)


@lru_cache(maxsize=16)
def _names_read(template: str) -> frozenset[str]:
    return frozenset(_asked(template, None)["names"])


def _asked(template: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the worker answers. given: None asks for the names that the template reads."""
    if template in _over_limits:
        raise InvalidValueError(_over_limits[template])
    try:
        answer: dict[str, Any] = _renderer.ask({"template": template, "given": _copied(given)})
    except WorkerLimitError as error:
        message = f"the chat template needs {error} for these messages; {_way_out()}"
        if len(json.dumps(_copied(given))) <= _USUAL_CHARACTERS:
            _over_limits[template] = message
        raise InvalidValueError(message) from error
    except OSError as error:
        raise InvalidValueError(
            "the chat template cannot be rendered: no process can be started for it "
            f"({error.strerror or error}); try {raw_prompt()}"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(
            f"the messages cannot be given to a chat template ({error}); "
            "use texts, numbers, lists and dicts"
        ) from error
    if "error" in answer:
        raise TemplateRefusedError(f"the chat template {answer['error']}; {_way_out()}")
    return answer


def _way_out() -> str:
    return f"try another template ({option('chat_template')}), or {raw_prompt()}"


def _copied(value: Any) -> Any:
    """A deep copy as dicts and lists, which JSON can express."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_copied(item) for item in value]
    return value
