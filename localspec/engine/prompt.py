"""Prompt: a text, token ids or chat messages, turned into the target's token ids."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import index
from typing import Any, cast

from localspec.engine.chat_messages import as_texts
from localspec.engine.media_marks import (
    LEAVES_OUT,
    media_tokens,
    require_written,
    told_without_marks,
    without_marks,
    without_pieces,
)
from localspec.errors import InvalidValueError
from localspec.generation_config import require
from localspec.llama.chat_template import Message, TemplateRefusedError, render
from localspec.llama.model import Model
from localspec.utils.media import MediaToken
from localspec.utils.option_names import option, raw_prompt
from localspec.utils.option_types import require_kind
from localspec.utils.reasoning_levels import EFFORT, EFFORTS


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a chat, with further variables for the model's template."""

    messages: Sequence[Message]
    template_options: Mapping[str, Any] = field(default_factory=dict)

    def text(self, model: Model, template: str, *, media: bool | None = None) -> str:
        """The messages as a model's chat template writes them. Raises InvalidValueError.

        media: whether there may be images and sounds; None: if the model reads such.
        """
        media = model.projector is not None if media is None else media
        messages = as_texts(self.messages, media=media)
        text = written_for(model, template, messages, options=self.template_options)
        if model.projector and require_written(text, messages):
            warn_left_out(__name__, model.path.name, template)
        return text


# A text to continue, its token ids, or the messages of a chat.
Prompt = str | Sequence[int] | Sequence[Message] | Chat
# A conversation as the chat template of another model words it; None where that has none for it.
Wording = Callable[[Model], str | None]
# A list of prompts. (A Sequence[str] would be any text, too.)
Prompts = list[str] | tuple[str, ...] | Sequence[Sequence[int]] | Sequence[Sequence[Message]]


def prompts_of(prompt: object) -> list[Prompt] | None:
    """The prompts of a list of prompts; None for a single prompt."""
    if isinstance(prompt, str | Mapping | Iterator) or not isinstance(prompt, Iterable):
        return None
    items = list(prompt)
    if not items:
        return [] if isinstance(prompt, list | tuple) else None
    first = items[0]
    is_prompt = isinstance(first, Iterable) and not isinstance(first, Mapping)
    return cast("list[Prompt]", items) if is_prompt else None


class TextPrompt:
    """The prompt of one text, which is tokenized once for a model.

    prompt: as the caller gave it; it is read when it is tokenized. template_options: further
    variables of the chat template, for messages. Raises InvalidValueError where there are some, and
    the prompt is no messages.
    """

    def __init__(self, prompt: object, template_options: Mapping[str, Any] | None = None) -> None:
        # What can be read only once is kept: after a switch it is tokenized for another model.
        self._prompt = list(prompt) if isinstance(prompt, Iterator) else prompt
        if template_options:
            self._prompt = _with_options(self._prompt, template_options)
        self._model: Model | None = None
        self._tokens: list[int] = []

    def tokens(self, model: Model, context: int) -> list[int]:
        """The token ids of the prompt.

        context: the context size in tokens. Raises InvalidValueError if the prompt is of another
        type, empty, or too long for the context.
        """
        if self._model is not model:
            self._tokens, self._model = _tokenized(self._prompt, model), model
        if not self._tokens:
            raise InvalidValueError("the prompt is empty; give some text")
        require_words_last(self._tokens)
        if len(self._tokens) >= context:
            raise InvalidValueError(
                f"the prompt has {len(self._tokens)} tokens and the context holds {context}; "
                f"shorten it or {larger_context(model, context)}"
            )
        return self._tokens

    def wording(self, model: Model) -> str | None:
        """The messages in the chat template of a drafter; None if it has none, or refuses them."""
        chat = _as_chat(self._prompt)
        if not model.chat_template or chat is None:
            return None
        try:
            return without_marks(chat.text(model, model.chat_template, media=True))
        except InvalidValueError:
            return None


def _with_options(prompt: object, options: Mapping[str, Any]) -> Chat:
    """The messages of a prompt with variables for the template; a Chat's own count more."""
    require_kind("template_options", options, Mapping, "a dict")
    if chat := _as_chat(prompt):
        return replace(chat, template_options={**options, **chat.template_options})
    raise InvalidValueError(
        f"template_options are for messages, and the prompt is {prompt!r:.40}; give it as "
        '[{"role": "user", "content": ...}], or leave them out'
    )


def require_words_last(tokens: Sequence[int]) -> None:
    """Raise InvalidValueError for a prompt that ends with an image: no text goes on from there."""
    if tokens and tokens[-1] < 0:
        raise InvalidValueError("the prompt ends with an image; put some text behind it")


def larger_context(model: Model, context: int) -> str:
    """What to do where a context of so many tokens is too small."""
    larger, another = f"raise {option('context')}", "take a model that was made for more"
    if context < model.n_ctx_train:
        return larger
    return f"{another}, or {larger} with {option('rope_scale')}" if model.rotates else another


def _as_chat(prompt: object) -> Chat | None:
    """The prompt if it is a chat; None for a text or token ids."""
    if isinstance(prompt, Chat):
        return prompt
    messages = [] if isinstance(prompt, str) or not isinstance(prompt, Iterable) else list(prompt)
    is_chat = messages and all(isinstance(each, Mapping) for each in messages)
    return Chat(messages) if is_chat else None


def _tokenized(prompt: object, model: Model) -> list[int]:
    if isinstance(prompt, str):
        return text_tokens(prompt, model.tokenize)
    if isinstance(prompt, bytes | bytearray | memoryview):  # else its bytes would be token ids
        raise InvalidValueError("the prompt is bytes; decode them to a text: prompt.decode()")
    if chat := _as_chat(prompt):
        return _chat_tokens(chat, model)
    items = list(prompt) if isinstance(prompt, Iterable) else [None]
    try:
        return checked_ids("prompt token", items, model)
    except TypeError as error:
        raise InvalidValueError(
            f"the prompt is {prompt!r:.60}; it must be a text, token ids, or chat messages"
            + (" (generate takes a list of prompts, too)" if prompts_of(prompt) else "")
        ) from error


def checked_ids(name: str, items: Iterable[object], model: Model) -> list[int]:
    """Token ids as ints. name: what an error calls one.

    Raises TypeError for what is none, InvalidValueError for ids that the model does not have.
    """
    if isinstance(items, bytes | bytearray | memoryview):  # each byte would be an id
        raise TypeError
    ids = [item if isinstance(item, MediaToken) else index(cast("int", item)) for item in items]
    for token in ids:
        if not isinstance(token, MediaToken):
            require(name, token, 0, model.n_vocab - 1)
    return ids


def text_tokens(text: str, tokenize: Callable[[str], list[int]]) -> list[int]:
    """The token ids of a text. Raises InvalidValueError if it is not valid Unicode."""
    try:
        return tokenize(text)
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            f"the prompt is no valid Unicode: character {error.start} is "
            f"{error.object[error.start]!r}"
        ) from error


def template_tokens(text: str, model: Model, *, after: bool = False) -> list[int]:
    """The token ids of a rendered chat template. after: whether it is the rest of one."""

    def rest(words: str) -> list[int]:
        return model.tokenize(words, add_special=False)

    first = model.tokenize_after if after else model.tokenize
    tokens = text_tokens(text, lambda text: media_tokens(text, model, first, rest))
    # Many templates write BOS themselves, and then the tokenizer adds a second one.
    return tokens[1:] if tokens[:2] == [model.bos] * 2 and not after else tokens


def written(model: Model, template: str, messages: Sequence[Message], **more: Any) -> str:
    """Messages as a chat template writes them for a model, with marks in place of images.

    more: as of `render`. Raises what that raises.
    """
    bos, eos = special_texts(model)
    with told_without_marks():
        text = render(template, messages, bos=bos, eos=eos, **more)
    return without_pieces(text, messages)


def written_for(
    model: Model,
    template: str,
    messages: Sequence[Message],
    *,
    options: Mapping[str, Any],
    **more: Any,
) -> str:
    """As `written`; where the template refuses a level of reasoning, the error names others."""

    def write(options: Mapping[str, Any]) -> str:
        return written(model, template, messages, options=options, **more)

    try:
        return write(options)
    except TemplateRefusedError as refusal:
        taken = list[str]()
        for level in EFFORTS if EFFORT in options else ():
            with suppress(TemplateRefusedError):
                write({**options, EFFORT: level})
                taken.append(level)
        if not taken:
            raise
        raise TemplateRefusedError(
            f"the chat template takes no {EFFORT} {options[EFFORT]}; it takes {', '.join(taken)}"
        ) from refusal


@lru_cache(maxsize=16)
def warn_left_out(logger: str, model: str, template: str) -> None:
    """Log, once, that a model's chat template leaves out images which nobody has just sent."""
    logging.getLogger(logger).warning(LEAVES_OUT.format(model))


def special_texts(model: Model) -> tuple[str, str]:
    """The texts of BOS and EOS, which templates use; empty if the model has none."""
    bos, eos = (model.piece_text(token) if token >= 0 else "" for token in (model.bos, model.eos))
    return bos, eos


def _chat_tokens(chat: Chat, model: Model) -> list[int]:
    if not model.chat_template:
        raise InvalidValueError(
            f"{model.path.name} has no chat template; give it one ({option('chat_template')}), "
            f"or {raw_prompt()}"
        )
    return template_tokens(chat.text(model, model.chat_template), model)
