"""Timing: what passes and drafts take in the midst of a text, beside what plain decoding took."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from localspec.control.cost_model import DrafterCost
from localspec.forecast.answers import Answer
from localspec.llama.context import Context
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome

# The deepest draft whose cost is measured for itself, and some deeper ones for what lies between.
DEEPEST = 16
_WIDTHS = (*range(1, DEEPEST + 2), 24, 32)
# So many rounds of all widths, and more, up to the second, as long as there is time.
_ROUNDS = (2, 9)
_SECONDS = 3.0
_FEW, _MANY = 1, 5


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds.

    passes: of the target, by rows, after a pass of as many. switch: more, if the pass before had
    another number: then the library sets up its computation anew. host: of everything else, per
    token of text (rules and filters work row by row, so a step's share grows with its tokens).
    drafters: by name.
    """

    passes: dict[int, float]
    switch: float
    host: float
    drafters: dict[str, DrafterCost]

    @property
    def plain(self) -> float:
        """Of a token of plain decoding."""
        return self.passes[1] + self.host

    def pass_of(self, rows: int) -> float:
        """Of a pass of so many rows; where the context is too small to try, of the widest."""
        return self.passes.get(rows) or self.passes[max(self.passes)]


@dataclass(slots=True)
class _Seen:
    """Seconds as measured. passes: after a pass of as many rows; switched: of another number."""

    plain: list[float] = field(default_factory=list)
    passes: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    switched: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    free: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    reading: list[float] = field(default_factory=list)


def measure(
    context: Context,
    model: Drafter | None,
    free: Sequence[Drafter],
    answers: Sequence[Answer],
    forget: Callable[[], object] = lambda: None,
) -> Costs:
    """Costs around the middle of an answer, in proportion to what writing the answers took.

    context: of the target; it is changed. model: a drafter that is one, and `forget` empties its
    cache. free: new ones, which are not.
    """
    plain = median(each.stats.seconds.verify / each.stats.steps for each in answers)
    token = median(each.stats.seconds.generate / each.stats.steps for each in answers)
    answer = max(answers, key=lambda each: len(each.tokens))
    seen = _Round(context, model, free, answer, forget).seen()
    # What slows the machine, or a longer text, slows all alike.
    scale = plain / _usual(seen.plain)
    passes = {rows: scale * _usual(each) for rows, each in seen.passes.items()}
    drafters = {name: DrafterCost(first=scale * _usual(each)) for name, each in seen.free.items()}
    if model:
        first, many = scale * _usual(seen.few), scale * _usual(seen.many)
        reading = max(0.0, scale * _usual(seen.reading) - first) / len(answer.prompt)
        further = max(0.0, (many - first) / (_MANY - _FEW))
        drafters[model.name] = DrafterCost(first, further, reading)
    more = [scale * _usual(each) - passes[rows] for rows, each in seen.switched.items()]
    switch = max(0.0, median(more))
    return Costs({**passes, 1: plain}, switch, max(0.0, token - plain), drafters)


def _usual(seconds: Sequence[float]) -> float:
    """The upper end of the quickest quarter: what others do on the machine only adds time."""
    return sorted(seconds)[len(seconds) // 4]


class _Round:
    """Widths in turn, and before each pass every drafter once, as when they decode together."""

    def __init__(
        self,
        context: Context,
        model: Drafter | None,
        free: Sequence[Drafter],
        answer: Answer,
        forget: Callable[[], object],
    ) -> None:
        self._context = context
        self._model = model
        self._free = free
        self._answer = answer
        self._forget = forget
        self._place = len(answer.prompt) + len(answer.tokens) // 2
        self._count = 0

    def seen(self) -> _Seen:
        """As many rounds as there is time for."""
        context, place = self._context, self._place
        context.hold(self._answer.text[:place])
        seen = _Seen()
        widths = [width for width in _WIDTHS if place + width <= context.n_ctx]
        began = perf_counter()
        for number in range(_ROUNDS[1]):
            if number >= _ROUNDS[0] and perf_counter() - began > _SECONDS:
                break
            for width in widths:
                self._see(width, seen)
            if self._model:
                self._forget()
                seen.reading.append(self._drafting(len(self._answer.prompt), _FEW))
        return seen

    def _see(self, width: int, seen: _Seen) -> None:
        self._pass(1)
        seen.plain.append(self._pass(1))
        for name, seconds in self._copying().items():
            seen.free[name].append(seconds)
        seen.few.append(self._drafting(self._place + self._count % 8, _FEW))
        seen.many.append(self._drafting(self._place + self._count % 8, _MANY))
        seen.switched[width].append(self._pass(width))
        self._drafting(self._place, _FEW)
        seen.passes[width].append(self._pass(width))
        self._count += 1

    def _pass(self, rows: int) -> float:
        """Over tokens of the text itself: experts are chosen by what is there."""
        text = self._answer.text
        tokens = [*text[self._place :], *text][:rows]
        began = perf_counter()
        self._context.score(tokens[0], Draft(tokens[1:]))
        self._context.commit(())
        seconds = perf_counter() - began
        self._context.truncate(self._place)
        return seconds

    def _drafting(self, place: int, depth: int) -> float:
        if not self._model:
            return 0.0
        text = self._answer.text[:place]
        self._model.begin(text)
        began = perf_counter()
        self._model.propose(Limit(depth, self._answer.sampler.prefix(text), self._answer.sampler))
        return perf_counter() - began

    def _copying(self) -> dict[str, float]:
        """Of one proposal of each free drafter, and of taking in a token."""
        answer, seconds = self._answer, dict[str, float]()
        limit = Limit(DEEPEST, answer.sampler.prefix(answer.prompt), answer.sampler)
        place = self._count % len(answer.tokens)
        for drafter in self._free:
            if place == 0:
                drafter.begin(answer.prompt)
            began = perf_counter()
            drafter.propose(limit)
            drafter.observe(Outcome([answer.tokens[place]], 0))
            seconds[drafter.name] = perf_counter() - began
        return seconds
