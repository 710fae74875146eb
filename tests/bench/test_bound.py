"""The bound beside a benchmark: which drafts were right, the least time, and where `auto` loses."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes.pycode import PYCODE

from localspec.bench import (
    LoadedSweep,
    Run,
    Sweep,
    Task,
    Workload,
    bounds,
    run_rounds,
    tokenize_prompts,
)
from localspec.bench.bound import Bound
from localspec.bench.configurations import PLAIN
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.drafters.spec import AUTO
from localspec.drafters.suffix import Suffix
from localspec.forecast.against_clairvoyant import AgainstClairvoyant
from localspec.forecast.clairvoyant import (
    DECIDING,
    MISSED,
    UNEXPECTED,
    WRONG,
    Clairvoyant,
    KnownDrafts,
    Losses,
)
from localspec.forecast.confidence import ConfidenceInterval
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig
from localspec.loading.config import RuntimeConfig
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, proposal
from localspec.speculation.passes import run as computed
from localspec.stats import StepRecord
from localspec.utils.tokens import common_prefix

TASKS = [Task("code", 1, "import os\nimport sys\nimport"), Task("code", 2, "def add(a, b):\n    ")]
COUNT, SEED, ROUNDS = 24, 5, 2
OPTIONS: dict[str, Any] = {"max_tokens": COUNT, "ignore_eos": True, "temperature": 0.8}
MODEL = PYCODE.drafter.stem


@pytest.fixture(scope="module")
def sweep() -> Iterator[LoadedSweep]:
    runtime = RuntimeConfig(threads=1, flash_attention=True)
    asked = Sweep(PYCODE.target, PYCODE.drafter, [AUTO], [None])
    with asked.load(runtime, TASKS, tokens=COUNT) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def workload(sweep: LoadedSweep) -> Workload:
    return Workload(tokenize_prompts(sweep.plain, TASKS, COUNT), ROUNDS, OPTIONS, SEED)


@pytest.fixture(scope="module")
def runs(sweep: LoadedSweep, workload: Workload) -> list[Run]:
    return list(run_rounds(sweep.configurations, workload, threading.Event()))


@pytest.fixture
def known_costs(sweep: LoadedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further row takes a tenth of a plain pass, a drafted token a twentieth, a copy nothing."""
    drafters = {"suffix": DrafterCost(), MODEL: DrafterCost(0.15, 0.15, 0.0)}
    costs = CostModel(PassCosts({1: 3.0, 32: 12.3}), drafters)
    monkeypatch.setattr(sweep.configurations[1].engine.slots.own.loaded.policies, "costs", costs)


def found(sweep: LoadedSweep, workload: Workload, runs: Sequence[Run], **more: Any) -> Any:
    return bounds(sweep.configurations, TASKS, workload, runs, **more)


def test_what_was_measured_adds_up(sweep: LoadedSweep, workload: Workload, runs: list[Run]) -> None:
    [bound] = found(sweep, workload, runs)
    # At this temperature each round has other texts.
    assert (bound.set, bound.texts) == ("code", 2)
    losses, speed = bound.clairvoyant.losses, bound.clairvoyant.speed_up
    assert sum(losses.by_reason.values()) == pytest.approx(losses.seconds - losses.least)
    assert speed.low <= speed.value <= speed.high and speed.value >= 1
    assert losses.share == pytest.approx(bound.auto / speed.value)
    record = bound.as_dict()
    assert 1 - sum(record["lost"].values()) == pytest.approx(record["auto_share"])
    told = "who knew which of auto's" if record["reliable"] else "what the right drafts would"
    assert f"over all tokens (the table has the mean of the prompts); {told}" in bound.lines[0]


@pytest.mark.parametrize(
    ("unexpected", "least", "said"),
    [(0.05, 0.9, ""), (-0.329, 1.18, "(-32.9%)"), (0.12, 0.8, "(+12.0%)"), (0.0, 1.1, "(+0.0%)")],
)
def test_a_bound_that_does_not_hold_is_said(unexpected: float, least: float, said: str) -> None:
    speed = ConfidenceInterval(1.5, 1.4, 1.6)
    losses = Losses(least, 1.0, {UNEXPECTED: unexpected, WRONG: 1 - least - unexpected})
    bound = Bound("code", 2, 1.2, AgainstClairvoyant(speed, losses))
    assert bound.as_dict()["reliable"] is not bool(said)
    first, *others = bound.lines
    assert ("cannot be told" in first) is bool(said) and said in first
    # Figures that do not hold are not told.
    assert ("1.50 x" in first) is not bool(said)
    assert [line.partition(" of its time")[0] for line in others] == (
        [] if said else ["  what auto loses"]
    )


def with_steps(runs: Sequence[Run], steps: Any) -> list[Run]:
    """The runs, as if plain steps took 2 seconds, and `auto` took these steps after each prompt."""

    def changed(run: Run) -> Run:
        plain = [StepRecord(None, 0, 0, 0, 1, 1, 2.0, 0.0, 0.0)] * len(run.token_ids)
        records = plain if run.configuration == PLAIN else steps(run)
        return replace(run, stats=replace(run.stats, records=records))

    return [changed(run) for run in runs]


def right(
    sweep: LoadedSweep, prompt: Sequence[int], tokens: Sequence[int], task: int, depth: int = 4
) -> list[int]:
    """How many tokens of the draft model's own draft at each place are right, up to `depth`."""
    engine = sweep.configurations[1].engine
    model = engine.drafter_set.drafters[1]
    settings = GenerationConfig.of(**{**OPTIONS, "seed": SEED + task})
    sampler, lengths = engine.slots.own.sampler(settings, len(prompt)), []
    for place in range(len(tokens)):
        text = [*prompt, *tokens[:place]]
        model.begin(text)
        drafted = computed(proposal(model, Limit(depth, sampler.prefix(text), sampler))).tokens
        agree = [mine == its for mine, its in zip(drafted, tokens[place:], strict=False)]
        lengths.append(next((n for n, same in enumerate(agree) if not same), len(agree)))
    return lengths


@pytest.mark.usefixtures("known_costs")
def test_the_bound_is_that_of_drafts_that_are_tried_one_by_one(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    [bound] = found(sweep, workload, runs)
    passes = {rows: 1 + 0.1 * (rows - 1) for rows in range(1, 33)}
    model = DrafterCost(0.05, 0.05)
    costs = StepCosts(passes, 0.0, 0.0, {"suffix": DrafterCost(), MODEL: model})
    least = 0.0
    for task, prompt in enumerate(workload.prompts):
        [text] = [
            run.token_ids
            for run in runs
            if (run.configuration, run.task, run.round) == (PLAIN, task, 0)
        ]
        copies = [len(common(Suffix(), prompt, text, place)) for place in range(COUNT)]
        own = right(sweep, prompt, text, task, depth=COUNT)
        drafts = {
            "suffix": KnownDrafts(DrafterCost(), True, np.array(copies)),
            MODEL: KnownDrafts(model, False, np.array(own)),
        }
        least += Clairvoyant(COUNT, COUNT, costs, drafts).seconds
    assert bound.clairvoyant.losses.least == pytest.approx(least)


def common(drafter: Suffix, prompt: Sequence[int], text: Sequence[int], place: int) -> list[int]:
    """The right tokens that a copier proposes at one place."""
    drafter.begin([*prompt, *text[:place]])
    settings = GenerationConfig.of(**OPTIONS)
    sampler = Sampler(SamplingParams(), settings.verification.randomness(1))
    copied = drafter.propose(Limit(31, sampler.prefix(prompt), sampler)).tokens
    return list(text[place : place + common_prefix(copied, text[place:])])


@pytest.mark.usefixtures("known_costs")
def test_the_time_to_decide_is_told_apart(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    def slowly(run: Run) -> list[StepRecord]:
        return [StepRecord(None, 0, 0, 0, 1, 1, 2.2, 0.2, 0.0)] * len(run.token_ids)

    [bound] = found(sweep, workload, with_steps(runs, slowly))
    lost = bound.clairvoyant.losses.by_reason
    assert lost[DECIDING] == pytest.approx(0.1 * 2 * COUNT)
    assert lost.get(UNEXPECTED, 0.0) == pytest.approx(0, abs=1e-9)


@pytest.mark.usefixtures("known_costs")
def test_only_plain_steps_miss_what_was_right(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    def plainly(run: Run) -> list[StepRecord]:
        return [StepRecord(None, 0, 0, 0, 1, 1, 2.0, 0.0, 0.0)] * len(run.token_ids)

    [bound] = found(sweep, workload, with_steps(runs, plainly))
    assert bound.auto == pytest.approx(1)
    assert bound.clairvoyant.losses.by_reason.keys() == {MISSED}
    assert bound.clairvoyant.speed_up.value > 1.3


@pytest.mark.usefixtures("known_costs")
def test_drafts_that_are_right_lose_nothing_but_what_they_take_longer(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    """Steps with the draft model's right tokens, in twice the time of a plain step more."""

    def drafting(run: Run) -> list[StepRecord]:
        lengths, place, steps = (
            right(sweep, workload.prompts[run.task], run.token_ids, run.task),
            0,
            [],
        )
        while place < COUNT:
            depth = min(lengths[place], COUNT - place - 1)
            seconds = 2 * (1 + 0.1 * depth + 0.05 * depth) + 0.3
            name = MODEL if depth else None
            drafted = 2 * 0.05 * depth
            steps.append(
                StepRecord(name, depth, depth, depth, depth + 1, depth + 1, seconds, drafted, 0.0)
            )
            place += depth + 1
        return steps

    first = [run for run in runs if run.round == 0]
    [bound] = found(sweep, workload, with_steps(first, drafting))
    lost, steps = (
        bound.clairvoyant.losses.by_reason,
        sum(len(drafting(run)) for run in first if run.configuration == AUTO),
    )
    assert lost[UNEXPECTED] == pytest.approx(0.15 * steps)
    assert WRONG not in lost or abs(lost[WRONG]) < 1e-9


@pytest.mark.usefixtures("known_costs")
def test_a_wrong_draft_loses_its_rows_and_its_time(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    def wrong(run: Run) -> list[StepRecord]:
        return [StepRecord(MODEL, 2, 2, 0, 1, 3, 2 * 1.3, 2 * 0.1, 0.0)] * len(run.token_ids)

    [bound] = found(sweep, workload, with_steps(runs, wrong))
    losses = bound.clairvoyant.losses
    assert losses.by_reason[WRONG] == pytest.approx(0.3 * 2 * COUNT)
    assert losses.by_reason.get(UNEXPECTED, 0.0) == pytest.approx(0, abs=1e-9)


def test_without_auto_and_when_stopped_there_is_none(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    assert found(sweep, workload, runs, cancelled=lambda: True) == []
    plain = sweep.configurations[:1]
    assert bounds(plain, TASKS, workload, runs) == []


def test_texts_that_differ_from_the_plain_one_are_not_compared(
    sweep: LoadedSweep, workload: Workload, runs: list[Run]
) -> None:
    others = [
        replace(run, token_ids=run.token_ids[::-1]) if run.configuration == AUTO else run
        for run in runs
    ]
    assert found(sweep, workload, others) == []
