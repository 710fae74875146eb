"""Comparison: generates an answer again without drafts."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, cast

from localspec.conversation.answer import Answer
from localspec.conversation.events import Ended
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.utils.tokens import common_prefix
from localspec_tui.engine_events import Comparison

# An answer is generated again so often, but not once more after so many seconds.
_MOST_RUNS, _ENOUGH_SECONDS = 4, 4.0


def compare(session: Session, answer: Answer, on_start: Callable[[Answer], None]) -> Comparison:
    """Generate the last answer again, with the same options and seed but without drafts.

    A short answer is generated several times, as other programs slow a machine down for moments.
    on_start: called with each new answer before its first token. The conversation does not change;
    the stats of the answer have the measured plain time afterwards, if the speeds agree.
    Raises InvalidValueError if the rule of the answer does not promise the same text or drafting is
    off, and LocalspecError if a new answer is stopped.
    """
    if not answer.settings.verification.same_text:
        raise InvalidValueError(
            f"rule {answer.settings.rule} gives another text without drafts; "
            "only answers of rule coupled can be compared"
        )
    if not (answer.stats.drafted or session.engine.drafter_set.drafters):
        raise InvalidValueError(
            "this answer was written without drafts, so there is nothing to compare; "
            "/draft auto turns drafting on"
        )
    runs: list[Answer] = []
    while len(runs) < _MOST_RUNS and sum(map(_seconds, runs)) < _ENOUGH_SECONDS:
        plain = _regenerate(session, answer.settings)
        on_start(plain)
        _generate(plain, session.conversation, len(answer.origins))
        runs.append(plain)
    expected = answer.stats.plain_step
    comparison = Comparison(
        plain_rates=tuple(rate for each in runs if (rate := each.stats.tokens_per_second)),
        expected_rate=1 / expected if expected else None,
        rate=answer.stats.tokens_per_second or 0.0,
        first_difference=_first_difference(answer, runs),
        digits=str(digits) if (digits := session.engine.equal_digits) else None,
    )
    if comparison.is_steady and comparison.plain_rate:
        # From now on the gain of the answer is this measurement.
        answer.stats.plain_tokens = answer.stats.generated_tokens
        answer.stats.seconds.plain = answer.stats.plain_tokens / comparison.plain_rate
    return comparison


def _seconds(answer: Answer) -> float:
    return answer.stats.seconds.generate


def _first_difference(answer: Answer, runs: Sequence[Answer]) -> int | None:
    """Index of the first token in which a run differs from the answer; None if none does."""
    tokens = _tokens(answer.turn)
    others = (_tokens(each.turn) for each in runs)
    return min((common_prefix(tokens, each) for each in others if each != tokens), default=None)


def _regenerate(session: Session, config: GenerationConfig) -> Answer:
    """Start another answer to the last question, but leave the active branch as it is."""
    conversation = session.conversation
    last = conversation.last
    variants = len(conversation.variants(last)) if last else 0
    try:
        return session.regenerate(**_plain_options(config, variants))
    finally:
        conversation.back_to(last)


def _plain_options(config: GenerationConfig, variants: int) -> GenerationOptions:
    """The options of a config, without drafts."""
    named: dict[str, Any] = {each.name: getattr(config, each.name) for each in fields(config)}
    sampling = named.pop("sampling")
    # The session adds the number of variants to the seed.
    changed = {"depth": 0, "seed": (config.seed - variants) % 2**64}
    unset = dict.fromkeys(GenerationOptions.__annotations__)
    return cast("GenerationOptions", {**unset, **named, **sampling, **changed})


def _generate(plain: Answer, conversation: Conversation, count: int) -> None:
    """Generate up to `count` tokens, and remove the turn of the answer from the conversation."""
    last = conversation.last
    with plain:
        for event in plain:
            _remove_turn(plain.turn, conversation, last)
            if len(plain.origins) >= count:
                return
            if isinstance(event, Ended) and event.stop_reason == "cancelled":
                raise LocalspecError("the comparison was stopped")


def _remove_turn(turn: Turn | None, conversation: Conversation, last: Turn | None) -> None:
    if turn and turn is conversation.last:
        conversation.remove(turn)
        conversation.back_to(last)


def _tokens(turn: Turn | None) -> tuple[int, ...]:
    return turn.written.tokens if turn else ()
