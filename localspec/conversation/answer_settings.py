"""Answer settings: the generation options of an answer, and of the parts it is written in."""

from dataclasses import replace

from localspec.conversation.reasoning import Tags
from localspec.conversation.turns import Turn
from localspec.engine.slot import Slot
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, GenerationOptions, concrete
from localspec.sampling.keyed_hash import derive_seed

_NO_LIMIT = 2**31 - 1


def config_of(options: GenerationOptions) -> GenerationConfig:
    """The checked settings; without `max_tokens`, the length is unlimited."""
    if options.get("prompt_logprobs"):
        raise InvalidValueError(
            "prompt_logprobs is True; a conversation has none: `Engine.generate` gives them"
        )
    longest = options.get("max_tokens")
    return GenerationConfig.of(
        **{**options, "max_tokens": _NO_LIMIT if longest is None else longest}
    )


def settings_of_question(slot: Slot, options: GenerationOptions) -> GenerationConfig:
    """The settings of the next answer on a slot; without `max_tokens`, it may fill the context."""
    given = concrete(options)
    n_ctx = slot.set_pass_width(config_of(given))
    if given.get("max_tokens") is None:
        given["max_tokens"] = n_ctx
    return config_of(given)


def reasons_first(settings: GenerationConfig, tags: Tags | None) -> bool:
    """Whether an answer whose prompt ends within the reasoning begins with reasoning.

    A schema describes the answer alone, and so does a grammar that does not end the reasoning.
    """
    return settings.is_free or (tags is not None and tags.closing in (settings.grammar or ""))


def settings_of(settings: GenerationConfig, turn: Turn) -> GenerationConfig:
    """The settings of an answer: its seed, and room behind what of it is not counted.

    Each time that `max_tokens` has cut it off, it has room for as many tokens again, also where it
    was stopped before they were all written.
    """
    most, counted = settings.max_tokens, len(turn.written.tokens) - turn.edited
    if turn.stop_reason != "length":
        counted = max(0, counted - 1) // most * most
    return replace(
        settings,
        seed=settings.seed if turn.seed is None else turn.seed,
        max_tokens=most + turn.edited + counted,
    )


def settings_behind(
    settings: GenerationConfig, *, written: int, prompt: int, dropped: int = 0
) -> GenerationConfig:
    """Settings for the next part of a text: the remaining token budget and an unused seed.

    written, prompt: the tokens of the text so far, and of the prompt before it. After turns were
    dropped, positions of the text repeat, and the noise of a position must not. The rules `token`
    and `block` start a new sequence of draws at each part.
    """
    left, seed = settings.max_tokens - written, settings.seed
    if dropped or not settings.verification.same_text:
        seed = derive_seed(seed, dropped, prompt + written)
    least = max(0, settings.min_tokens - written)
    return replace(settings, seed=seed, max_tokens=left, min_tokens=least)
