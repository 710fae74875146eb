"""Draft trial: what a head drafts for its target's own texts, and what a drafted token takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.stats import sum_of

# Tokens of each text, and of each draft.
_TOKENS, _DEPTH, _SEED = 160, 4, 1


@dataclass(frozen=True, slots=True)
class DraftTrial:
    """What was measured.

    texts: the tokens of each text, which do not depend on the drafter. accepted: the share of
    drafted tokens that became text. tokens_per_step: of the target's passes. seconds: of a drafted
    token, the least of all texts: other programs only make it longer.
    """

    texts: tuple[tuple[int, ...], ...]
    accepted: float
    tokens_per_step: float
    seconds: float

    def speed(self, plain: float) -> float:
        """Tokens per second, about. plain: seconds of a step without drafts."""
        return self.tokens_per_step / (plain + _DEPTH * self.seconds)


def try_drafts(
    engine: Engine, prompts: Sequence[Prompt], watch: Callable[[], None] = lambda: None
) -> DraftTrial:
    """Let the target write texts with the drafts of the engine's only drafter.

    watch: called after each text. Raises InvalidValueError where nothing was drafted.
    """
    # What the first text takes is not what later ones take. Behind this one the cache has the same
    # text in every trial: what a prompt shares with it decides how many rows are computed together,
    # and with it the last digits.
    begin = engine.model.tokenize("a", add_special=False)[:1]
    engine.generate(begin, max_tokens=_DEPTH, seed=_SEED, depth=_DEPTH)
    found = []
    for prompt in prompts:
        found.append(engine.generate(prompt, max_tokens=_TOKENS, seed=_SEED, depth=_DEPTH))
        watch()
    stats = [each.stats for each in found if each.stats.drafted]
    if not stats:
        raise InvalidValueError("the head drafted nothing; name prompts with longer answers")
    total = sum_of(stats)
    return DraftTrial(
        tuple(tuple(each.token_ids) for each in found),
        total.accepted / total.drafted,
        total.generated_tokens / total.steps,
        min(each.seconds.draft / each.drafted for each in stats),
    )
