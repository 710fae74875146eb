"""Timing: the seconds that passes and drafts take in the middle of a text."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from time import perf_counter

from localspec.control.drafter_cost import DrafterCost
from localspec.control.width_changes import UNSETTLED
from localspec.forecast.answers import RecordedAnswer
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, proposal
from localspec.speculation.passes import run

# The deepest draft that is forecast.
DEEPEST = 16
# `auto` may draft deeper: two wider passes are measured, the others interpolated.
_WIDTHS = (*range(1, DEEPEST + 2), 24, 32)
# The fewest and the most rounds over all widths, and the seconds after which no further one begins.
_ROUNDS = (2, 9)
_SECONDS = 3.0
# How many texts may share a decode of their drafter; other numbers are interpolated.
_TEXTS = (1, 2, 3, 4, 6, 8, 12, 16)
# Tokens in the two drafts whose difference is the cost of a further token.
_FEW, _MANY = 1, 5


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The seconds that the parts of a step take.

    passes: of a pass of the target, by its rows, after a pass of as many rows. switch: what a pass
    takes longer after one of other rows, because llama.cpp then builds its graph anew. host: all
    else, per token of text (rules and filters work row by row). drafters: by name. unsettled: how
    many passes behind a change take longer, which `switch` is the sum of: one, on a GPU more (see
    WidthChanges).
    """

    passes: dict[int, float]
    switch: float
    host: float
    drafters: dict[str, DrafterCost]
    unsettled: int = 1

    @property
    def plain(self) -> float:
        """The seconds of one token in plain decoding."""
        return self.passes[1] + self.host

    def pass_of(self, rows: int) -> float:
        """The seconds of a pass of so many rows, or else of the widest that was measured."""
        return self.passes.get(rows) or self.passes[max(self.passes)]


@dataclass(slots=True)
class _Samples:
    """Measured seconds. passes: after passes of as many rows; switched: after one of others, of
    all passes until then.

    few, many: of drafts of _FEW and of _MANY tokens. reading: of a first draft behind the prompt.
    """

    plain: list[float] = field(default_factory=list)
    passes: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    switched: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    model_free: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    reading: list[float] = field(default_factory=list)


def measure_costs(
    context: KVSequence,
    model: Drafter | None,
    model_free: Sequence[Drafter],
    answers: Sequence[RecordedAnswer],
    forget: Callable[[], object] = lambda: None,
) -> StepCosts:
    """Measure the costs in the middle of the longest answer.

    They are scaled to what generating the answers took. All figures are means: where other programs
    run, a wide pass waits for them each time and a plain one now and then, so that quartiles or
    medians would leave out the waiting of plain passes alone.

    context: of the target; its text changes. model: the drafter that is a model, and `forget`
    empties its cache. model_free: new ones.
    """
    plain = median(each.stats.seconds.verify / each.stats.steps for each in answers)
    token = median(each.stats.seconds.generate / each.stats.steps for each in answers)
    answer = max(answers, key=lambda each: len(each.tokens))
    measurement = _Measurement(context, model, model_free, answer, forget)
    samples, unsettled = measurement.samples(), measurement.unsettled
    # A busier machine, or a longer text, slows all parts alike.
    scale = plain / mean(samples.plain)
    passes = {rows: scale * mean(each) for rows, each in samples.passes.items()}
    drafters = {
        name: DrafterCost(first=scale * mean(each)) for name, each in samples.model_free.items()
    }
    if model:
        first, many = scale * mean(samples.few), scale * mean(samples.many)
        reading = max(0.0, scale * mean(samples.reading) - first) / len(answer.prompt)
        further = max(0.0, (many - first) / (_MANY - _FEW))
        drafters[model.name] = DrafterCost(first, further, reading)
    more = [
        scale * mean(each) - unsettled * passes[rows] for rows, each in samples.switched.items()
    ]
    switch = max(0.0, median(more))
    return StepCosts({**passes, 1: plain}, switch, max(0.0, token - plain), drafters, unsettled)


def shared_decodes(
    drafter: KVSequence, answers: Sequence[RecordedAnswer], most: int
) -> dict[int, float]:
    """Seconds of a drafter's decode by the texts that share it, each with a row; most: of them.

    A row costs the same, whether it belongs to the same text or to another one.
    """
    answer = max(answers, key=lambda each: len(each.tokens))
    text, place = answer.text, len(answer.prompt) + len(answer.tokens) // 2
    drafter.set_tokens(text[:place])
    widths = sorted({*(each for each in _TEXTS if each < most), most})
    samples: dict[int, list[float]] = {width: [] for width in widths}
    began = perf_counter()
    for number in range(_ROUNDS[1]):
        if number >= _ROUNDS[0] and perf_counter() - began > _SECONDS:
            break
        for width, seconds in samples.items():
            _pass_seconds(drafter, text, place, width)
            seconds.append(_pass_seconds(drafter, text, place, width))
    return {width: mean(seconds) for width, seconds in samples.items()}


def _pass_seconds(sequence: KVSequence, text: Sequence[int], place: int, rows: int) -> float:
    """The seconds of a pass over tokens of the text: which experts run depends on them."""
    tokens = [*text[place:], *text][:rows]
    began = perf_counter()
    sequence.score(tokens[0], Draft(tokens[1:]))
    sequence.commit(())
    seconds = perf_counter() - began
    sequence.truncate(place)
    return seconds


class _Measurement:
    """Measures the widths in turn, with every drafter once before each, as when they decode.

    unsettled: as in StepCosts.
    """

    def __init__(
        self,
        context: KVSequence,
        model: Drafter | None,
        model_free: Sequence[Drafter],
        answer: RecordedAnswer,
        forget: Callable[[], object],
    ) -> None:
        self._context = context
        self._model = model
        self._model_free = model_free
        self._answer = answer
        self._forget = forget
        self.unsettled = UNSETTLED if context.model.is_offloaded else 1
        self._place = len(answer.prompt) + len(answer.tokens) // 2
        self._count = 0

    def samples(self) -> _Samples:
        """Measure as many rounds as there is time for."""
        context, place = self._context, self._place
        context.set_tokens(self._answer.text[:place])
        samples = _Samples()
        widths = [width for width in _WIDTHS if place + width <= context.n_ctx]
        began = perf_counter()
        for number in range(_ROUNDS[1]):
            if number >= _ROUNDS[0] and perf_counter() - began > _SECONDS:
                break
            for width in widths:
                self._measure(width, samples)
            if self._model:
                self._forget()
                samples.reading.append(self._draft_seconds(len(self._answer.prompt), _FEW))
        return samples

    def _measure(self, width: int, samples: _Samples) -> None:
        for _ in range(self.unsettled):
            self._pass_seconds(1)
        samples.plain.append(self._pass_seconds(1))
        for name, seconds in self._model_free_seconds().items():
            samples.model_free[name].append(seconds)
        samples.few.append(self._draft_seconds(self._place + self._count % 8, _FEW))
        samples.many.append(self._draft_seconds(self._place + self._count % 8, _MANY))
        switched = 0.0
        for _ in range(self.unsettled):
            switched += self._pass_seconds(width)
            self._draft_seconds(self._place, _FEW)
        samples.switched[width].append(switched)
        samples.passes[width].append(self._pass_seconds(width))
        self._count += 1

    def _pass_seconds(self, rows: int) -> float:
        return _pass_seconds(self._context, self._answer.text, self._place, rows)

    def _draft_seconds(self, place: int, depth: int) -> float:
        if not self._model:
            return 0.0
        text = self._answer.text[:place]
        self._model.begin(text)
        began = perf_counter()
        limit = Limit(depth, self._answer.sampler.prefix(text), self._answer.sampler)
        run(proposal(self._model, limit))
        return perf_counter() - began

    def _model_free_seconds(self) -> dict[str, float]:
        """The seconds of one proposal and one committed token, by model-free drafter."""
        answer, seconds = self._answer, dict[str, float]()
        limit = Limit(DEEPEST, answer.sampler.prefix(answer.prompt), answer.sampler)
        place = self._count % len(answer.tokens)
        for drafter in self._model_free:
            if place == 0:
                drafter.begin(answer.prompt)
            began = perf_counter()
            run(proposal(drafter, limit))
            drafter.observe(answer.outcome(place))
            seconds[drafter.name] = perf_counter() - began
        return seconds
