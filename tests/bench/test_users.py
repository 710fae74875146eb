"""Several users at once: what is measured, what is compared, and what the report says."""

import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from fakes.company import hold_until_awaited
from fakes.pycode import PYCODE

from localspec.bench import users as measured
from localspec.bench.configurations import PLAIN, LoadedSweep, Sweep, tokenize_prompts
from localspec.bench.page import html_page
from localspec.bench.prompt_sets import Task
from localspec.bench.report import Conditions, build_report
from localspec.bench.users import UsersRun, UserText, open_slots, run_users
from localspec.bench.users_summary import summarise_users
from localspec.bench.users_text import USER_COLUMNS, user_cells
from localspec.bench.workload import Workload
from localspec.engine.slots import Slots
from localspec.errors import ModelLoadError
from localspec.forecast.confidence import ConfidenceInterval
from localspec.generation_config import GenerationConfig
from localspec.loading import config
from localspec.loading.config import RuntimeConfig
from localspec.stats import Stats

TASKS = [Task("mine", number, f"def {name}(a, b):\n") for number, name in enumerate("fgh", 1)]
TOKENS = 12


@pytest.fixture
def sweep() -> Iterator[LoadedSweep]:
    asked = Sweep(PYCODE.target, PYCODE.drafter, ["auto"], [None])
    with asked.load(RuntimeConfig(threads=1), TASKS, TOKENS) as loaded:
        yield loaded


def runs_of(sweep: LoadedSweep, *users: int, rounds: int = 2, **more: Any) -> list[UsersRun]:
    prompts = tokenize_prompts(sweep.plain, TASKS, TOKENS)
    options = {"max_tokens": TOKENS, "ignore_eos": True, "temperature": 0.8, "seed": None, **more}
    with open_slots(sweep, max(users)) as slots:
        workload = Workload(prompts, rounds, options, seed=5)
        running = run_users(sweep.configurations, slots, users, workload, threading.Event())
        return list(running)


def a_text(task: int = 0, *, first: float = 1.0, last: float = 4.0, tokens: int = 4) -> UserText:
    stats = Stats(generated_tokens=tokens, drafted=4, accepted=2)
    return UserText(task, list(range(tokens)), first, last, stats)


def a_run(name: str, users: int, *, together: float, in_turn: float, round: int = 0) -> UsersRun:
    """A run that was never made: how long all texts took together, and one after the other."""
    return UsersRun(
        name,
        users,
        round,
        [a_text(task, last=together) for task in range(users)],
        [a_text(task, first=1.0 + task, last=in_turn) for task in range(users)],
        compared=users,
        same=users - 1,
        near_ties=1,
    )


def test_both_ways_take_turns_and_texts_in_company_are_those_alone(sweep: LoadedSweep) -> None:
    found = runs_of(sweep, 1, 3)
    assert [(run.round, run.users, run.configuration) for run in found] == [
        (0, 1, PLAIN),
        (0, 1, "auto"),
        (0, 3, PLAIN),
        (0, 3, "auto"),
        (1, 1, "auto"),
        (1, 1, PLAIN),
        (1, 3, "auto"),
        (1, 3, PLAIN),
    ]
    for run in found:
        assert run.compared == run.users == len(run.together) == len(run.in_turn)
        assert run.same + run.near_ties == run.compared
        assert [text.task for text in run.together] == [
            (run.round + user) % 3 for user in range(run.users)
        ]
        for text in (*run.together, *run.in_turn):
            assert len(text.token_ids) == TOKENS
            assert 0 < text.first_token < text.last_token


def test_texts_share_decodes_and_begin_with_empty_caches(
    sweep: LoadedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = measured.side_by_side

    def begun_together(work: Sequence[Any], *how: Any) -> Any:
        hold_until_awaited(work[0].slot.lock, len(work))
        return usual(work, *how)

    monkeypatch.setattr(measured, "side_by_side", begun_together)
    [plain, _auto] = runs_of(sweep, 3, rounds=1)
    for text in (*plain.together, *plain.in_turn):
        assert text.stats.prompt_evaluated == text.stats.prompt_tokens
    assert all(text.stats.shared_steps for text in plain.together)
    assert not any(text.stats.shared_steps for text in plain.in_turn)


def test_a_text_in_turn_waits_for_the_texts_before(sweep: LoadedSweep) -> None:
    [plain, _auto] = runs_of(sweep, 3, rounds=1)
    first, second, third = plain.in_turn
    assert first.last_token < second.first_token < second.last_token < third.first_token


def test_nothing_is_copied_from_an_earlier_text() -> None:
    # With one prompt all texts are the same greedy one, which a drafter that knew it would copy.
    asked = Sweep(PYCODE.target, None, ["suffix"], [3])
    with asked.load(RuntimeConfig(threads=1), TASKS[:1], TOKENS) as loaded:
        prompts = tokenize_prompts(loaded.plain, TASKS[:1], TOKENS)
        with open_slots(loaded, 2) as slots:
            options = {"max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
            workload = Workload(prompts, 2, options, seed=1)
            running = run_users(loaded.configurations, slots, [2], workload, threading.Event())
            suffix = [run for run in running if run.configuration != PLAIN]
    # In company a near tie may come out another way.
    texts = [text for run in suffix for text in run.in_turn]
    assert len(texts) == 4
    assert len({(each.stats.drafted, each.stats.accepted) for each in texts}) == 1


def test_a_text_that_differs_is_audited(
    sweep: LoadedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = measured._together

    def lying(*args: Any) -> Any:
        written = honest(*args)
        if len(written) == 2:
            ids = written[1].result.token_ids
            ids[5] = (ids[5] + 1) % 100
        return written

    monkeypatch.setattr(measured, "_together", lying)
    for run in runs_of(sweep, 2, rounds=1):
        assert (run.compared, run.near_ties) == (2, 0)
        assert run.same == 1


def test_texts_of_other_rules_are_not_compared(sweep: LoadedSweep) -> None:
    runs = runs_of(sweep, 2, rounds=1, rule="token")
    assert [run.compared for run in runs] == [0, 0]
    assert user_cells(summarise_users(runs)[0])[-1] == "-"


def test_users_that_memory_has_no_room_for_are_left_out(
    sweep: LoadedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, opened = Slots.open, list[Slots]()

    def scarce(slots: Slots) -> Any:
        if slots is sweep.plain.slots and opened.count(slots) == 2:
            raise ModelLoadError("there is no room for another text")
        opened.append(slots)
        return honest(slots)

    monkeypatch.setattr(Slots, "open", scarce)
    with open_slots(sweep, 4) as slots:
        assert {name: len(own) for name, own in slots.items()} == {PLAIN: 2, "auto": 2}
    assert sweep.left_out == ["more than 2 users are left out: there is no room for another text"]


def test_a_cancelled_run_is_not_yielded(sweep: LoadedSweep) -> None:
    cancel = threading.Event()
    prompts = tokenize_prompts(sweep.plain, TASKS, TOKENS)
    with open_slots(sweep, 2) as slots:
        workload = Workload(prompts, 3, {"max_tokens": TOKENS}, seed=1)
        running = run_users(sweep.configurations, slots, [2], workload, cancel)
        assert next(running).users == 2
        cancel.set()
        assert list(running) == []


# Figures.


def test_figures_of_users() -> None:
    runs = [
        a_run(PLAIN, 2, together=4.0, in_turn=8.0),
        a_run("auto", 2, together=2.0, in_turn=6.0),
        a_run("auto", 2, together=2.0, in_turn=6.0, round=1),
        a_run(PLAIN, 1, together=4.0, in_turn=4.0),
    ]
    plain, auto, alone = summarise_users(runs)
    assert [(row.users, row.configuration) for row in (plain, auto, alone)] == [
        (2, PLAIN),
        (2, "auto"),
        (1, PLAIN),
    ]
    figures = (plain.total, plain.total_in_turn, plain.ratio)
    assert figures == (ConfidenceInterval(2.0), ConfidenceInterval(1.0), ConfidenceInterval(2.0))
    assert auto.plain_ratio == ConfidenceInterval(2.0)
    assert (auto.runs, auto.tokens, auto.ratio.value) == (2, 16, 3.0)
    assert auto.each.value == 3.0
    assert auto.first_token.value == 1.0
    assert auto.first_token_in_turn.value == pytest.approx(2**0.5)  # of 1 and 2
    assert auto.acceptance_rate == 0.5
    assert (auto.compared, auto.same, auto.near_ties) == (4, 2, 2)
    assert user_cells(auto)[-1] == "2 of 4, 2 ties"
    assert len(user_cells(alone)) == len(USER_COLUMNS)
    in_turn = USER_COLUMNS.index("x in turn")
    assert (user_cells(auto)[in_turn], user_cells(alone)[in_turn]) == ("3.00", "-")


def test_the_report_has_the_threads_that_a_busy_machine_left(
    sweep: LoadedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "threads_for", lambda _size: 4)
    asked, settings = RuntimeConfig(), GenerationConfig.of(max_tokens=TOKENS)
    assert asked.threads_of(sweep.plain.model) == 4
    assert Conditions.of(sweep, asked, settings, 1, TASKS).threads == sweep.plain.threads == 1


def test_the_page_has_the_chart_and_the_table(sweep: LoadedSweep) -> None:
    runs = runs_of(sweep, 1, 2, rounds=1)
    conditions = Conditions(
        tokens=TOKENS,
        rounds=1,
        seed=5,
        rule="coupled",
        temperature=0.8,
        context=sweep.plain.context,
        threads=1,
        gpu_layers=None,
        placement="all layers on GPUs",
        reproducible=False,
        prompts={"mine": 3},
        prompts_hash="",
    )
    report = build_report(sweep, TASKS, [], conditions, interrupted=False, users=runs)
    root = ET.fromstring(html_page(report).partition("\n")[2])
    labels = [svg.get("aria-label") for svg in root.iter("{http://www.w3.org/2000/svg}svg")]
    assert labels == ["Speed of several users together"]
    assert len(root.findall(".//tbody/tr")) == 4
    record = report.as_dict()
    assert [(row["users"], row["contender"]) for row in record["users"]] == [
        (1, PLAIN),
        (1, "auto"),
        (2, PLAIN),
        (2, "auto"),
    ]
    assert record["rows"] == []
