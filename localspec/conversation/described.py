"""Described: which tokens of an answer that goes on are described by its grammar or schema."""

from localspec.conversation.edited_answer import beginning
from localspec.conversation.turns import Turn
from localspec.conversation.window import Window
from localspec.engine.begun import constraint_behind
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig


def described_from(turn: Turn, window: Window, settings: GenerationConfig) -> int:
    """How many tokens of an answer stand before those that its grammar or schema describes.

    It describes the whole answer, or what the user has written behind reasoning that was kept.
    Raises InvalidValueError where that is no beginning of what it describes.
    """
    if settings.is_free:
        return 0
    model, tokens = window.transcript.model, turn.written.tokens
    try:
        constraint_behind(settings, model, tokens)
        return 0
    except InvalidValueError:
        reasoning = turn.raw.removesuffix(turn.content)
        kept, spelled = beginning(reasoning, tokens, model, window.transcript.tags)
        if not turn.content or not kept or spelled != reasoning:
            raise
    constraint_behind(settings, model, tokens[len(kept) :])
    return len(kept)
