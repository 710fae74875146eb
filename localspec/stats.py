"""Stats: the counts and times of a generation, for the command line, the API and benchmarks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

# Fewer steps, or less time, tell nothing about how much faster a text was.
ENOUGH_STEPS = 8
ENOUGH_SECONDS = 0.1

Phase = Literal["load", "prompt", "generate", "draft", "verify"]


@dataclass(slots=True)
class Seconds:
    """The seconds of each phase of a generation.

    load: loading the models. prompt: evaluating the prompt in the target. generate: everything
    after the prompt. draft, verify: the drafters' and the target's parts of `generate`. Of a decode
    that several texts share, each text has its part. steps: the part of `generate` that steps took
    without drafting. waited: the other parts of decodes, and decodes of other texts that this text
    waited for.
    plain: what plain steps would have taken, instead of `generate`, for the `plain_tokens` of the
    text; None until plain steps were measured.
    first_token: from the start of the prompt to the first token; None before the first token.
    """

    load: float = 0.0
    prompt: float = 0.0
    generate: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    steps: float = 0.0
    waited: float = 0.0
    first_token: float | None = None
    plain: float | None = None

    @property
    def host(self) -> float:
        """The part of `generate` outside the models: rules, filters, text."""
        return max(0.0, self.generate - self.draft - self.verify)

    @property
    def between_steps(self) -> float:
        """The part of `generate` outside steps and drafting, such as to make text of tokens."""
        return self.generate - self.draft - self.steps


class Timing:
    """Adds the time of a `with` block to a phase. Several are made in every step."""

    __slots__ = ("_began", "_clock", "_phase", "_seconds")

    def __init__(self, seconds: Seconds, phase: Phase, clock: Callable[[], float]) -> None:
        self._seconds, self._phase, self._clock = seconds, phase, clock

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_exc: object) -> None:
        spent = self._clock() - self._began
        setattr(self._seconds, self._phase, getattr(self._seconds, self._phase) + spent)


class StepRecord(NamedTuple):
    """One step of a text.

    drafter: the name of the drafter that was asked; None in a plain step. proposed, verified,
    accepted: drafted tokens. tokens: committed ones. rows: of the pass, padding included. seconds:
    of the whole step; of these draft_seconds for deciding and drafting, and reading for heads that
    read hidden rows.
    """

    drafter: str | None
    proposed: int
    verified: int
    accepted: int
    tokens: int
    rows: int
    seconds: float
    draft_seconds: float
    reading: float


@dataclass(slots=True, repr=False)
class Stats:
    """Counts and times of one generation.

    prompt_evaluated: prompt tokens that the target evaluated; the others were in its KV cache.
    prompt_again: evaluated prompt tokens that had been in the KV cache, but had to be removed with
    later ones because the cache could not be cut there, or were first evaluated for their logits.
    generated_tokens: those that the model wrote. inserted_tokens: those that were written in its
    place, such as a closing tag; they count for `max_tokens`, and in no rate.
    steps: target passes. drafting_steps: those with a draft. drafted: drafted tokens.
    accepted: drafted tokens that became text.
    predicted: drafted tokens that a prediction of the text gave. predicted_accepted: those of them
    that became text.
    widths: the number of rows of each pass, padding included.
    accepted_per_position: how often the 1st, 2nd, ... drafted token of a step became text.
    shared_steps: target passes that shared a decode with other texts. decode_rows: the number of
    rows of each decode, those of other texts included. trees_cut: drafted trees of which only one
    branch was verified. plain_tokens: how many tokens `seconds.plain` is for. records: one of
    each step.
    drafted_ahead: tokens that a drafter drew while the target computed. used_ahead: drafted tokens
    that were drawn before their step: such ones, and the unverified end of an earlier draft.
    """

    prompt_tokens: int = 0
    prompt_evaluated: int = 0
    prompt_again: int = 0
    generated_tokens: int = 0
    inserted_tokens: int = 0
    steps: int = 0
    drafting_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    predicted: int = 0
    predicted_accepted: int = 0
    widths: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    shared_steps: int = 0
    decode_rows: list[int] = field(default_factory=list)
    trees_cut: int = 0
    drafted_ahead: int = 0
    used_ahead: int = 0
    seconds: Seconds = field(default_factory=Seconds)
    plain_tokens: int = 0
    records: list[StepRecord] = field(default_factory=list)
    # Whether the draft of the last step is of a prediction.
    _is_predicted: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<Stats {self.line}, {self.steps} steps, {self.prompt_tokens} tokens of prompt>"

    @property
    def prompt_cached(self) -> int:
        """How many prompt tokens were in the target's KV cache."""
        return self.prompt_tokens - self.prompt_evaluated

    @property
    def text_tokens(self) -> int:
        """How many tokens the text has, as `max_tokens` counts them."""
        return self.generated_tokens + self.inserted_tokens

    @property
    def line(self) -> str:
        """Tokens, acceptance rate and speed, as far as they are known."""
        rate, speed = self.acceptance_rate, self.tokens_per_second
        facts = [
            f"{self.generated_tokens} tokens",
            None if rate is None else f"accept {rate:.0%}",
            None if speed is None else f"{speed:.1f} tok/s",
        ]
        return ", ".join(fact for fact in facts if fact)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted; None if no token was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_step(self) -> float | None:
        """Generated tokens per target pass; None before the first pass."""
        return self.generated_tokens / self.steps if self.steps else None

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens per second, without prompt and loading.

        Beside other texts it counts the time that this text waited for them.
        """
        took = self.seconds.generate + self.seconds.waited
        return self.generated_tokens / took if took else None

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """Evaluated prompt tokens per second; None where none was evaluated."""
        took = self.seconds.prompt
        return self.prompt_evaluated / took if self.prompt_evaluated and took else None

    @property
    def gain(self) -> float | None:
        """How many times faster than plain steps the tokens came; None if that is not known."""
        plain, took = self.plain_step, self.seconds.generate
        return self.generated_tokens * plain / took if plain and took else None

    def of_whole_text(self, first: "Stats | None", inserted: int) -> "Stats":
        """Return those of a text whose last part these are of.

        first: of its first part, which counts its prompt; None: there is one part. inserted: how
        many tokens were written in the model's place.
        """
        if first is None and not inserted:
            return self
        prompt = first or self
        return replace(
            self,
            prompt_tokens=prompt.prompt_tokens,
            prompt_evaluated=prompt.prompt_evaluated,
            prompt_again=prompt.prompt_again,
            inserted_tokens=inserted,
        )

    @property
    def x_plain(self) -> float | None:
        """The gain; None for a text of too few steps, or of too little time, to tell it."""
        enough = self.steps >= ENOUGH_STEPS and self.seconds.generate >= ENOUGH_SECONDS
        return self.gain if enough else None

    @property
    def plain_step(self) -> float | None:
        """Seconds of a plain step, on average over the text; None if that is not known."""
        plain = self.seconds.plain
        return plain / self.plain_tokens if plain and self.plain_tokens else None

    @property
    def plain_tokens_per_second(self) -> float | None:
        """The speed of plain steps; None if that is not known."""
        return 1 / self.plain_step if self.plain_step else None

    def timing(self, phase: Phase, clock: Callable[[], float]) -> Timing:
        """Add the time of the `with` block to a phase. clock: returns the time in seconds."""
        return Timing(self.seconds, phase, clock)

    def count_step(
        self, drafted: int, width: int, others: Sequence[int] = (), *, predicted: bool = False
    ) -> None:
        """Count a target pass.

        drafted: its drafted tokens. width: its rows, padding included. others: the rows of each
        other text in the same decode. predicted: whether the draft is of a prediction.
        """
        self.steps += 1
        self.drafting_steps += bool(drafted)
        self.widths.append(width)
        self.shared_steps += bool(others)
        self.decode_rows.append(width + sum(others))
        self.drafted += drafted
        self._is_predicted = predicted
        self.predicted += drafted if predicted else 0

    def add_plain(self, tokens: int, plain: float | None) -> None:
        """Add the seconds that plain steps would have taken for the tokens; None: not known."""
        if plain is not None:
            self.seconds.plain = (self.seconds.plain or 0.0) + plain
            self.plain_tokens += tokens

    def add_between_steps(self, seconds: float) -> None:
        """Add seconds outside steps: plain steps would have taken them too, if these are known."""
        if self.seconds.plain is not None:
            self.seconds.plain += seconds

    def count_token(self, drafted_at: int | None) -> None:
        """Count a generated token. drafted_at: its position in the draft, from 0, or None."""
        self.generated_tokens += 1
        if drafted_at is None:
            return
        missing = drafted_at + 1 - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        self.accepted_per_position[drafted_at] += 1
        self.accepted += 1
        self.predicted_accepted += self._is_predicted

    def as_dict(self) -> dict[str, Any]:
        """The counts, the rates and the times, for JSON."""
        took = self.seconds
        return {
            "prompt_tokens": self.prompt_tokens,
            "prompt_evaluated": self.prompt_evaluated,
            "prompt_again": self.prompt_again,
            "generated_tokens": self.generated_tokens,
            "inserted_tokens": self.inserted_tokens,
            "steps": self.steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "predicted": self.predicted,
            "predicted_accepted": self.predicted_accepted,
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_step": self.tokens_per_step,
            "accepted_per_position": list(self.accepted_per_position),
            "seconds": {
                "load": took.load,
                "prompt": took.prompt,
                "generate": took.generate,
                "draft": took.draft,
                "verify": took.verify,
                "host": took.host,
                "waited": took.waited,
                "first_token": took.first_token,
            },
            "shared_steps": self.shared_steps,
            "trees_cut": self.trees_cut,
            "drafted_ahead": self.drafted_ahead,
            "used_ahead": self.used_ahead,
            "tokens_per_second": self.tokens_per_second,
            "x_plain": self.x_plain,
            "plain_tokens_per_second": self.plain_tokens_per_second,
        }


def sum_of(texts: Iterable[Stats]) -> Stats:
    """The counts of several texts and the times of their phases, without what each step was."""
    texts = list(texts)
    found = Stats(**{name: sum(getattr(each, name) for each in texts) for name in _COUNTS})
    places = zip_longest(*(each.accepted_per_position for each in texts), fillvalue=0)
    found.accepted_per_position = [sum(place) for place in places]
    for phase in _PHASES:
        setattr(found.seconds, phase, sum(getattr(each.seconds, phase) for each in texts))
    return found


_COUNTS = tuple(each.name for each in fields(Stats) if each.type is int)
_PHASES = tuple(each.name for each in fields(Seconds) if each.type is float)
