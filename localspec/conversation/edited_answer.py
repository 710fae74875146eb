"""Edited answer: the user's own text in place of an answer, from which the model goes on."""

from collections.abc import Iterable
from dataclasses import replace

from localspec.conversation.reasoning import Splitter, Tags
from localspec.conversation.turns import EMPTY, TokenizedText, Turn
from localspec.conversation.unfinished import EDITED
from localspec.conversation.window import Window
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.prompt import text_tokens
from localspec.errors import InvalidValueError
from localspec.llama.model import Model
from localspec.utils.option_types import require_kind


def edited_answer(
    old: Turn, text: str, window: Window, *, seed: int, thinking_budget: int | None
) -> Turn:
    """A new answer with the text of a user, behind the reasoning of an old one.

    window: what the model sees before it. seed, thinking_budget: as of `Window.new_answer`. Raises
    InvalidValueError if the text is empty, would open reasoning or is not valid Unicode.
    """
    require_kind("the answer", text, str, "a text")
    if not text.strip():
        raise InvalidValueError("the answer is empty; write some text, or regenerate it")
    model, tags, thinking = window.transcript.model, window.transcript.tags, window.thinking
    fits = old.vocabulary == model.vocabulary_fingerprint and old.thinking == thinking
    reasoning = _reasoning(old, tags, thinking=thinking, is_known=fits and bool(old.raw))
    tokens = _reasoning_tokens(reasoning, old.written if fits else EMPTY, model, tags)
    # What the user writes is text, whatever control tokens are called.
    tokens += text_tokens(text, lambda plain: model.spell_after(plain, parse_special=False))
    splitter = Splitter(tags, thinking=thinking)
    thought = splitter.push(reasoning).thought
    if splitter.push(text).thought or splitter.flush().thought:
        raise InvalidValueError(
            f"the answer begins with {tags.opening!r}, and would be read as reasoning; "
            "begin it with another word"
        )
    return replace(
        window.new_answer(seed, thinking_budget),
        content=text,
        thought=thought,
        raw=reasoning + text,
        written=TokenizedText(reasoning + text, tuple(tokens)),
        stop_reason=EDITED,
        edited=len(tokens),
    )


def _reasoning(turn: Turn, tags: Tags, *, thinking: bool, is_known: bool) -> str:
    """What stands before the answer in the text of a turn: ended reasoning, or nothing.

    thinking: whether the prompt opens it. is_known: whether `raw` is the text behind such a prompt.
    """
    if is_known:
        splitter = Splitter(tags, thinking=thinking)
        splitter.push(turn.raw)
        if splitter.thinking:
            return turn.raw + tags.ending
        if turn.raw.endswith(turn.content):
            return turn.raw.removesuffix(turn.content)
    if not (turn.thought or thinking):
        return ""
    opening = "" if thinking else f"{tags.opening}\n"
    return f"{opening}{turn.thought}{tags.ending}"


def _reasoning_tokens(
    reasoning: str, written: TokenizedText, model: Model, tags: Tags
) -> list[int]:
    """The tokens of reasoning: those that it was generated with, as far as whole ones spell it."""
    kept, text = beginning(reasoning, written.tokens, model, tags)
    return [*kept, *text_tokens(reasoning.removeprefix(text), model.spell_after)]


def beginning(text: str, tokens: Iterable[int], model: Model, tags: Tags) -> tuple[list[int], str]:
    """The first of these tokens that spell a text as far as whole ones do, and what they spell.

    None, and nothing, where they spell another text.
    """
    detokenizer, kept, spelled = Detokenizer(), list[int](), ""
    for token in tokens:
        if spelled == text:
            break
        # A tag may be a control token.
        tag = model.piece_text(token)
        spelled += detokenizer.push(model.piece(token)) or (tag if tag in tags else "")
        kept.append(token)
    spelled += detokenizer.flush()
    return (kept, spelled) if text.startswith(spelled) else ([], "")
