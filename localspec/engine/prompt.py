"""Prompt: a text, token ids or chat messages, turned into the target's token ids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import cast

from localspec.errors import InvalidValueError
from localspec.generation_config import require
from localspec.llama.chat_template import Message, render
from localspec.llama.model import Model

# A text to continue, its token ids, or the messages of a chat.
Prompt = str | Sequence[int] | Sequence[Message]


def prompt_tokens(prompt: Prompt, model: Model, context: int) -> list[int]:
    """The token ids of a prompt.

    context: the context size in tokens. Raises InvalidValueError if the prompt is of another type,
    empty, or too long for the context.
    """
    tokens = _tokenized(prompt, model)
    if not tokens:
        raise InvalidValueError("the prompt is empty; give some text to go on from")
    if len(tokens) >= context:
        raise InvalidValueError(
            f"the prompt has {len(tokens)} tokens and the context holds {context}; "
            "shorten it or raise --ctx"
        )
    return tokens


def _tokenized(prompt: Prompt, model: Model) -> list[int]:
    if isinstance(prompt, str):
        return text_tokens(prompt, model.tokenize)
    items = list(prompt) if isinstance(prompt, Iterable) else [None]
    if items and all(isinstance(item, Mapping) for item in items):
        return _chat_tokens(cast("list[Message]", items), model)
    try:
        ids = [index(cast("int", item)) for item in items]
    except TypeError as error:
        raise InvalidValueError(
            f"the prompt is {prompt!r:.60}; it must be a text, token ids, or chat messages"
        ) from error
    for token in ids:
        require("prompt token", token, 0, model.n_vocab - 1)
    return ids


def text_tokens(text: str, tokenize: Callable[[str], list[int]]) -> list[int]:
    """The token ids of a text. Raises InvalidValueError if it is not valid Unicode."""
    try:
        return tokenize(text)
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            f"the prompt is no valid Unicode: character {error.start} is {text[error.start]!r}"
        ) from error


def template_tokens(text: str, model: Model) -> list[int]:
    """The token ids of a rendered chat template."""
    tokens = text_tokens(text, model.tokenize)
    # Many templates write BOS themselves, and then the tokenizer adds a second one.
    return tokens[1:] if tokens[:2] == [model.bos] * 2 else tokens


def special_texts(model: Model) -> tuple[str, str]:
    """The texts of BOS and EOS, which templates use; empty if the model has none."""
    bos, eos = (model.piece_text(token) if token >= 0 else "" for token in (model.bos, model.eos))
    return bos, eos


def _chat_tokens(messages: Sequence[Message], model: Model) -> list[int]:
    if not model.chat_template:
        raise InvalidValueError(
            f"{model.path.name} has no chat template; give it a raw prompt (--raw)"
        )
    bos, eos = special_texts(model)
    return template_tokens(render(model.chat_template, messages, bos=bos, eos=eos), model)
