"""Forecast: expected speed-ups of every drafter, rule and depth, before any of them is used.

`replay` turns what both models make of the target's own texts into expected passes; `timing` says
what passes and drafts take; together they say what decoding the same texts would have taken.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.forecast.answers import Answer, Copies, copies, share_right, walk_copies, write
from localspec.forecast.replay import Estimate, Scored, ratio, score_laws, walk
from localspec.forecast.simulated_run import Course, course_of_copies, course_of_model, plain_course
from localspec.forecast.simulation import Rehearsal
from localspec.forecast.timing import DEEPEST, Costs, measure
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.llama.context import Context
from localspec.loading.drafter_loader import AUTO, MODEL_FREE, Drafting
from localspec.speculation.drafter import Drafter
from localspec.speculation.rules import RULES

PLAIN = "plain"
COUPLED = "coupled"
DEPTHS = range(1, DEEPEST + 1)
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Line:
    """One way of decoding. Intervals are over prompts; acceptance is None without drafts.

    rule, depth: None for plain decoding; depth is None for `auto` as well. speed_up: over plain.
    """

    drafter: str
    rule: str | None
    depth: int | None
    speed_up: Estimate
    tokens_per_step: Estimate
    acceptance: float | None
    seconds_per_step: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """lines: every way, the fastest first. rates: the share of each drafter's tokens that are
    right, by name. costs: what the lines were worked out from. answers, tokens: how many.
    """

    lines: list[Line]
    rates: dict[str, float]
    costs: Costs
    answers: int
    tokens: int

    @property
    def best(self) -> Line:
        """The fastest of all."""
        return self.lines[0]

    def shortened(self) -> list[Line]:
        """For each drafter and rule only the best depth."""
        kept: dict[tuple[str, str | None], Line] = {}
        for line in self.lines:
            kept.setdefault((line.drafter, line.rule), line)
        return list(kept.values())


@dataclass(slots=True)
class Evidence:
    """What is known of some answers. copies: by drafter. scored: by the drafter that is a model,
    one per answer, or none.
    """

    answers: list[Answer]
    copies: dict[str, list[Copies]] = field(default_factory=dict)
    scored: list[Scored] = field(default_factory=list)
    model: Drafter | None = None

    @property
    def rates(self) -> dict[str, float]:
        """The share of each drafter's tokens that are right, at any place, by name."""
        shares = {name: share_right(each) for name, each in self.copies.items()}
        if self.model:
            shares[self.model.name] = float(
                np.concatenate([each.coupled for each in self.scored]).mean()
            )
        return {name: share for name, share in shares.items() if share is not None}


def forecast(
    engine: Engine, prompts: Sequence[Prompt], options: GenerationOptions, progress: Progress
) -> Forecast:
    """Write an answer to each prompt, score it, measure costs, and work out every line.

    prompts: two at least. options: how answers are sampled; the first one's seed is `seed`, and
    each has the next. progress: told what is being done.
    """
    drafting = engine.drafting
    with engine.slot.new_context(GenerationConfig.of(**options)) as context:
        evidence = gather(engine, context, prompts, options, progress)
        progress("measuring what passes and drafts take")
        free = [drafter() for drafter in MODEL_FREE.values()]
        costs = measure(context, evidence.model, free, evidence.answers, _forgetting(drafting))
    found = [plain_line(evidence.answers, costs), *lines_of_copies(evidence, costs)]
    found += lines_of_model(evidence, costs)
    if drafting.drafters:
        progress("rehearsing auto")
        found.append(line_of_auto(drafting.drafters, evidence, costs))
    answers = evidence.answers
    tokens = sum(len(answer.tokens) for answer in answers)
    return Forecast(ranked(found), evidence.rates, costs, len(answers), tokens)


def _forgetting(drafting: Drafting) -> Callable[[], object]:
    cache = drafting.context
    return (lambda: cache.truncate(0)) if cache else lambda: None


def gather(
    engine: Engine,
    context: Context,
    prompts: Sequence[Prompt],
    options: GenerationOptions,
    progress: Progress = lambda _: None,
) -> Evidence:
    """The answers, and what the drafters make of them."""
    small = engine.drafting.context
    evidence = Evidence([], model=engine.drafting.drafters[-1] if small else None)
    first = GenerationConfig.of(**options).seed
    for number, prompt in enumerate(prompts):
        progress(f"writing answer {number + 1} of {len(prompts)}")
        seeded: GenerationOptions = {**options, "seed": (first + number) % 2**64}
        answer, laws = write(engine, context, prompt, **seeded)
        evidence.answers.append(answer)
        if small:
            scored = score_laws(
                small,
                answer.prompt,
                answer.tokens,
                laws,
                answer.sampler,
                n_vocab=engine.model.n_vocab,
                limit=answer.limit,
            )
            evidence.scored.append(scored)
    for name, drafter in MODEL_FREE.items():
        # A new one for each: what it remembers of earlier answers is luck not to be counted on.
        evidence.copies[name] = [copies(drafter(), each, DEEPEST) for each in evidence.answers]
    return evidence


def plain_line(answers: Sequence[Answer], costs: Costs) -> Line:
    """Plain decoding, which all others are compared with."""
    return line(PLAIN, None, None, [plain_course(answer, costs) for answer in answers], costs)


def lines_of_copies(evidence: Evidence, costs: Costs) -> Iterable[Line]:
    """Every depth of every free drafter; their tokens are certain, so all rules are alike."""
    for name, each in evidence.copies.items():
        for depth in DEPTHS:
            courses = [
                course_of_copies(answer, walk_copies(copy, depth), costs, costs.drafters[name])
                for answer, copy in zip(evidence.answers, each, strict=True)
            ]
            yield line(name, COUPLED, depth, courses, costs)


def lines_of_model(evidence: Evidence, costs: Costs) -> Iterable[Line]:
    """Every rule and depth of the drafter that is a model; greedily, all rules are alike."""
    if not evidence.model:
        return
    name = evidence.model.name
    greedy = evidence.answers[0].sampler.params.temperature == 0
    for rule in [COUPLED] if greedy else RULES:
        for depth in DEPTHS:
            walks = [walk(scored, rule, depth, hurried=True) for scored in evidence.scored]
            courses = [
                course_of_model(answer, each, costs, costs.drafters[name])
                for answer, each in zip(evidence.answers, walks, strict=True)
            ]
            yield line(name, rule, depth, courses, costs)


def line_of_auto(drafters: Sequence[Drafter], evidence: Evidence, costs: Costs) -> Line:
    """The controller with these drafters, knowing beforehand what is known now."""
    # Nothing of the answers themselves may be in a drafter's memory.
    fresh = [Suffix(spare=0) if isinstance(each, Suffix) else each for each in drafters]
    rehearsal = Rehearsal(fresh, costs, evidence.rates)
    return line(
        AUTO, COUPLED, None, [rehearsal.course(answer) for answer in evidence.answers], costs
    )


def line(
    drafter: str, rule: str | None, depth: int | None, courses: Sequence[Course], costs: Costs
) -> Line:
    """From a course per answer."""
    tokens = [course.tokens for course in courses]
    calls = [course.calls for course in courses]
    seconds = [course.seconds for course in courses]
    drafted = sum(course.drafted for course in courses)
    return Line(
        drafter,
        rule,
        depth,
        ratio([costs.plain * count for count in tokens], seconds),
        ratio(tokens, calls),
        sum(course.accepted for course in courses) / drafted if drafted else None,
        sum(seconds) / sum(calls),
    )


def ranked(lines: Sequence[Line]) -> list[Line]:
    """The fastest first; what is no faster than a simpler one comes after it."""
    return sorted(lines, key=lambda line: -line.speed_up.value)
