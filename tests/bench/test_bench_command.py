"""What `localspec bench` is made of: prompt sets, configurations, runs, figures, the page."""

import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.pycode import PYCODE

from localspec.bench.configurations import PLAIN, LoadedSweep, Sweep, tokenize_prompts
from localspec.bench.equality import require_same_texts
from localspec.bench.page import html_page
from localspec.bench.prompt_sets import (
    LONG,
    SETS,
    TERMINAL,
    Task,
    bundled_tasks,
    default_sets,
    load_tasks,
    read_tasks,
)
from localspec.bench.report import BenchmarkReport, Conditions, build_report
from localspec.bench.report_text import COLUMNS, cells, facts, prompt_lines
from localspec.bench.runner import Run, run_rounds
from localspec.bench.summary import accepted_lengths, summarise
from localspec.bench.svg import ticks
from localspec.bench.workload import Workload
from localspec.errors import DrafterMismatchError, ExactnessError, InvalidValueError
from localspec.forecast.confidence import ConfidenceInterval
from localspec.llama import extra_buffers
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.rope import RopeScaling
from localspec.loading.config import RuntimeConfig
from localspec.models import registry
from localspec.stats import Seconds, Stats

RUNTIME = RuntimeConfig(threads=1)


def sweep_of(
    tasks: Sequence[Task], *, drafts: Sequence[str] | None = None, depths: Any = (None,)
) -> Any:
    return Sweep(None, None, drafts, depths).load(RUNTIME, tasks, tokens=16)


def measured(
    sweep: LoadedSweep,
    tasks: Sequence[Task],
    *,
    rounds: int = 1,
    cancel: threading.Event | None = None,
) -> Iterator[Run]:
    options = {"max_tokens": 16, "ignore_eos": True, "temperature": 0.0}
    workload = Workload(tokenize_prompts(sweep.plain, tasks, 16), rounds, options, seed=1)
    return run_rounds(sweep.configurations, workload, cancel or threading.Event())


def run(
    configuration: str,
    *,
    seconds: float = 1.0,
    task: int = 0,
    ids: Sequence[int] = (1, 2, 3, 4),
    accepted: Sequence[int] = (),
) -> Run:
    """A run that was never made."""
    stats = Stats(
        generated_tokens=len(ids),
        steps=len(ids) - sum(accepted),
        drafted=2 * sum(accepted),
        accepted=sum(accepted),
        accepted_per_position=list(accepted),
        widths=[1 + len(accepted)] * (len(ids) - sum(accepted)),
        seconds=Seconds(generate=seconds, draft=0.2 * seconds, verify=0.7 * seconds),
    )
    return Run(configuration, task, 0, list(ids), stats)


# Prompt sets.


@pytest.mark.parametrize("name", SETS)
def test_a_shipped_set_holds_different_prompts(name: str) -> None:
    tasks = bundled_tasks(name)
    assert [task.number for task in tasks] == [1, 2, 3, 4, 5]
    assert len({str(task.content) for task in tasks}) == 5
    assert all(50 < task.bytes < 1500 for task in tasks)


def test_the_pair_that_comes_along_has_a_set_of_its_own(target_path: Path) -> None:
    assert default_sets(registry.bundled().target) == [TERMINAL]
    assert default_sets(target_path) == [name for name in SETS if name != TERMINAL]


def test_the_set_of_the_terminal_is_questions_edits_and_a_second_turn() -> None:
    tasks = [task.content for task in bundled_tasks(TERMINAL)]
    chats = [each for each in tasks if not isinstance(each, str)]
    assert len(chats) == len(tasks)
    assert sorted(len(chat) for chat in chats) == [1, 1, 1, 1, 3]
    assert all(chat[-1]["role"] == "user" for chat in chats)
    assert sum("```" in chat[-1]["content"] for chat in chats) == 2


def test_the_long_set_answers_behind_all_other_texts() -> None:
    tasks = bundled_tasks(LONG)
    assert [task.number for task in tasks] == [1, 2]
    for task, short in zip(tasks, bundled_tasks("code"), strict=False):
        assert task.bytes > 7000
        assert str(task.content).endswith(str(short.content))
        assert str(bundled_tasks("json")[4].content) in str(task.content)


def test_sets_take_turns() -> None:
    first = [(task.set, task.number) for task in load_tasks(["json", "edit", "json"], None)][:4]
    assert first == [("json", 1), ("edit", 1), ("json", 2), ("edit", 2)]


def test_a_text_file_is_split_at_its_lines_of_dashes(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_bytes("\ufeff\nfirst\r\n  two lines\r\n---\r\n\n---\nsecond --- one \n".encode())
    contents = [(task.set, task.number, task.content) for task in read_tasks(file)]
    assert contents == [("mine", 1, "first\n  two lines"), ("mine", 2, "second --- one")]


def test_json_lines_are_texts_or_chats(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    message = {"role": "user", "content": "Hi"}
    file.write_text(
        '{"prompt": "a\\n---\\nb"}\n\n{"messages": [{"role": "user", "content": "Hi"}]}\n'
    )
    assert [task.content for task in read_tasks(file)] == ["a\n---\nb", (message,)]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.txt", b"", "holds no prompt"),
        ("blank.txt", b"\n---\n \n---\n", "holds no prompt"),
        ("empty.jsonl", b"\n", "holds no prompt; write one, a JSON object on each line"),
        ("latin.txt", b"caf\xe9", "not UTF-8, byte 3 is 0xe9"),
        ("a.jsonl", b'{"prompt": "x"}\nplain', "line 2 is 'plain'"),
        ("a.jsonl", b'{"prompt": ""}', "line 1"),
        ("a.jsonl", b'{"prompt": "\\ud800"}', "line 1"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', "line 1"),
        ("a.jsonl", b'{"messages": []}', "line 1"),
        ("a.jsonl", b"[1]", "line 1"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(InvalidValueError) as raised:
        read_tasks(file)
    assert said in str(raised.value) and name in str(raised.value)


@pytest.mark.parametrize("name", ["no-such-file.txt", "."])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"--prompts .*; name a text file"):
        read_tasks(tmp_path / name)


def test_a_set_there_is_not() -> None:
    with pytest.raises(InvalidValueError, match=r"--set verse: .* code, edit, prose, json, chat"):
        load_tasks(["verse"], None)


# Contenders and runs.


def test_by_default_everything_that_can_draft_takes_part() -> None:
    tasks = bundled_tasks("chat")
    with sweep_of(tasks) as sweep:
        names = [loaded.name for loaded in sweep.configurations]
        assert names == [PLAIN, "suffix", "lookup", "ngram", "terminal-5m-q4_0", "auto"]
        assert sweep.left_out == []


def test_a_model_that_is_not_made_for_chats_gets_them_as_a_transcript() -> None:
    tasks = bundled_tasks("chat")
    with Sweep(PYCODE.target, None, None, ["none"]).load(RUNTIME, tasks, 16) as sweep:
        prompt = sweep.plain.model.tokenize(str(tasks[4].prompt_for(sweep.plain)))
        assert tokenize_prompts(sweep.plain, tasks, 16)[4] == prompt


def test_a_scaled_target_has_room_for_longer_prompts() -> None:
    tasks = [Task("mine", 1, "x " * 3000)]
    scaled = replace(RUNTIME, rope=RopeScaling("yarn", 4))
    with Sweep(None, None, ["none"], (None,)).load(scaled, tasks, tokens=16) as sweep:
        assert 3000 < sweep.plain.context <= 8192
        assert len(tokenize_prompts(sweep.plain, tasks, 16)) == 1


def test_a_prompt_must_leave_room_for_its_text() -> None:
    tasks = [Task("mine", 1, "x " * 3000)]
    with sweep_of(tasks, drafts=["none"]) as sweep, pytest.raises(InvalidValueError) as raised:
        tokenize_prompts(sweep.plain, tasks, 16)
    assert "shorten it" in str(raised.value)


def test_a_note_of_one_draft_has_its_name() -> None:
    class Noted:
        def __init__(self, notes: Sequence[str], *models: Path) -> None:
            self.notes, self.drafter_set = notes, SimpleNamespace(model_paths=[*models])

    def at(name: str, *notes: str, models: Sequence[Path] = ()) -> Any:
        return SimpleNamespace(name=name, engine=Noted(notes, *models))

    suffix = at("suffix, depth 2", "of all", "--draft-device has no effect without a draft model")
    notes = "of all", "its cache is smaller"
    model = at("model, depth 2", *notes, models=[Path("model.gguf")])
    again = SimpleNamespace(name="model", engine=model.engine)
    sweep = LoadedSweep([at(PLAIN), suffix, model, again], ["lookup is left out"])
    assert [note for note in sweep.notes if note not in extra_buffers.warnings()] == [
        "of all",
        "model, depth 2: its cache is smaller",
        "lookup is left out",
    ]


def test_without_a_drafter_model_it_is_left_out_unless_asked_for(
    tmp_path: Path, target_path: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(target_path.read_bytes())
    tasks = bundled_tasks("code")
    with Sweep(copy, None, None, [None]).load(RUNTIME, tasks, 16) as sweep:
        assert [loaded.name for loaded in sweep.configurations] == [
            PLAIN,
            "suffix",
            "lookup",
            "ngram",
            "auto",
        ]
        assert sweep.left_out == [
            "model is left out: no drafter is known for copy.gguf; name one with --draft"
        ]
    with (
        pytest.raises(DrafterMismatchError),
        Sweep(copy, None, ["model"], [None]).load(RUNTIME, tasks, 16),
    ):
        pass


@pytest.mark.parametrize(
    ("drafts", "told"),
    [(["suffix"], True), (["suffix", "lookup"], True), (["suffix", "auto"], False)],
)
def test_a_place_for_drafters_is_useless_only_where_it_is_for_each(
    drafts: list[str], told: bool
) -> None:
    there = replace(RUNTIME, drafter_placement=ON_PROCESSOR)
    with Sweep(None, None, drafts, [None]).load(there, bundled_tasks("code"), 16) as sweep:
        assert sum("no effect" in note for note in sweep.notes) == told


def test_rounds_turn_around_and_texts_are_equal() -> None:
    tasks = bundled_tasks("edit")[:2]
    with sweep_of(tasks, drafts=["suffix", "none"], depths=[2, 4]) as sweep:
        found = list(measured(sweep, tasks, rounds=2))
    names = [PLAIN, "suffix, depth 2", "suffix, depth 4"]
    assert [each.configuration for each in found] == names * 2 + names[::-1] * 2
    assert {len(each.token_ids) for each in found} == {16}
    assert require_same_texts(found, tasks) == 8
    assert max(width for each in found for width in each.stats.widths) <= 5


def test_nothing_is_copied_from_the_round_before() -> None:
    tasks = bundled_tasks("prose")[:1]
    with sweep_of(tasks, drafts=["suffix", "lookup", "ngram"], depths=[3]) as sweep:
        found = list(measured(sweep, tasks, rounds=2))
    for loaded in sweep.configurations:
        first, second = (each for each in found if each.configuration == loaded.name)
        # Greedy, so the texts of both rounds are one; a drafter that knew it would be right.
        assert first.token_ids == second.token_ids
        assert first.stats.drafted == second.stats.drafted
        assert first.stats.accepted == second.stats.accepted


def test_cancelling_ends_it_and_gives_no_half_text() -> None:
    tasks, cancel = bundled_tasks("code"), threading.Event()
    with sweep_of(tasks, drafts=["lookup"]) as sweep:
        going = measured(sweep, tasks, cancel=cancel)
        assert len(next(going).token_ids) == 16
        cancel.set()
        assert list(going) == []


def test_a_difference_is_named() -> None:
    tasks = [Task("mine", 1, "x")]
    found = [run(PLAIN), run("liar", ids=(1, 2, 9, 4))]
    with pytest.raises(ExactnessError) as raised:
        require_same_texts(found, tasks)
    assert "liar does not give" in str(raised.value)
    assert "prompt 1 of mine, round 1, place 2 has token 9" in str(raised.value)
    with pytest.raises(ExactnessError, match="place 3 has no token and plain decoding token 4"):
        require_same_texts([run(PLAIN), run("liar", ids=(1, 2, 3))], tasks)


# Figures.


def test_accepted_lengths_count_every_step() -> None:
    # Three steps: two of them accepted one token or more, one accepted two.
    assert accepted_lengths([Stats(steps=3, accepted_per_position=[2, 1])]) == [1, 1, 1]
    assert accepted_lengths([Stats(steps=4), Stats(steps=3, accepted_per_position=[1])]) == [6, 1]


def test_a_summary_of_two_sets() -> None:
    tasks = [Task("one", 1, "x"), Task("two", 1, "y")]
    found = [
        *(run(PLAIN, task=task) for task in (0, 1)),
        run("fast", seconds=0.5, accepted=(1,)),
        run("fast", seconds=0.25, task=1, accepted=(1, 1)),
    ]
    rows = {(row.set, row.configuration): row for row in summarise(found, tasks)}
    assert list(rows) == [
        (set_, name) for set_ in ("one", "two", "all") for name in (PLAIN, "fast")
    ]
    fast = rows["all", "fast"]
    assert fast.ratio is not None
    assert rows["one", "fast"].ratio == ConfidenceInterval(2.0)
    assert fast.ratio.value == pytest.approx((2 * 4) ** 0.5)
    assert (fast.runs, fast.tokens, fast.steps) == (2, 8, 5)
    assert fast.acceptance_rate == 0.5
    assert fast.accepted_lengths == [3, 1, 1]
    assert fast.share("verify") == pytest.approx(0.7)
    assert (fast.same, fast.compared) == (2, 2)
    assert rows["all", PLAIN].acceptance_rate is None
    assert len(cells(fast)) == len(COLUMNS)


def test_a_configuration_without_its_plain_partner_has_no_ratio() -> None:
    [row] = summarise([run("alone")], [Task("one", 1, "x")])
    assert row.ratio is None and row.compared == 0
    assert cells(row)[3] == "-"


def test_what_reading_the_prompts_took_is_a_line() -> None:
    """Of all prompts, where there are several sets."""
    found = [run(name, task=task) for task in (0, 1) for name in (PLAIN, "fast")]
    for number, each in enumerate(found):
        each.stats.prompt_evaluated = 100
        each.stats.seconds.prompt = 1.0 + number % 2
        each.stats.seconds.first_token = 1.5 + number
    rows = summarise(found, [Task("one", 1, "x"), Task("two", 1, "y")])
    read = "prompts are read at 100 tok/s · first token after: "
    assert [*prompt_lines(rows)] == [f"{read}plain 2.50 s, fast 3.50 s"]
    assert [*prompt_lines(rows[:1])] == [f"{read}plain 1.50 s"]
    assert [*prompt_lines(summarise([run("alone")], [Task("one", 1, "x")]))] == []


# The page.


def small_report() -> BenchmarkReport:
    tasks = [*bundled_tasks("edit")[:1], *bundled_tasks("code")[:1]]
    with sweep_of(tasks, drafts=["suffix", "auto"]) as sweep:
        found = list(measured(sweep, tasks))
        conditions = Conditions(
            tokens=16,
            rounds=1,
            seed=1,
            rule="coupled",
            temperature=0.0,
            context=sweep.plain.context,
            threads=1,
            gpu_layers=None,
            placement="all layers on GPUs",
            reproducible=False,
            prompts={"edit": 1, "code": 1, "<script>": 0},
            prompts_hash="",
        )
        return build_report(sweep, tasks, found, conditions, interrupted=True)


def test_the_page_is_one_well_formed_file_with_every_plot() -> None:
    found = small_report()
    written = html_page(found)
    first, _, rest = written.partition("\n")
    assert first == "<!DOCTYPE html>"
    root = ET.fromstring(rest)
    labels = [svg.get("aria-label") for svg in root.iter("{http://www.w3.org/2000/svg}svg")]
    assert labels == [
        "Speed against plain decoding, edit",
        "Speed against plain decoding, code",
        "Speed against plain decoding, all",
        "What passes cost, and how wide they were",
        "Accepted tokens per step, suffix",
        "Accepted tokens per step, auto",
    ]
    assert len(root.findall(".//tbody/tr")) == len(found.rows)
    assert "Stopped before all was measured." in written
    assert "<script" not in written


def test_figures_and_the_bound_stand_behind_the_plots_that_they_are_about() -> None:
    bound: Any = SimpleNamespace(lines=["code: auto 1.20 x plain", "  the bound"])
    root = ET.fromstring(html_page(replace(small_report(), bounds=[bound])).partition("\n")[2])
    order = [
        each.text or ""
        for each in root.iter()
        if each.tag in ("h2", "table") or (each.tag == "p" and each.get("class") == "fact")
    ]
    at = order.index("Figures")
    assert order[at - 1] == "Speed" and order[at + 2].startswith("prompts are read at ")
    assert order[at + 3 : at + 5] == bound.lines
    assert order[at + 5 :] == ["What passes cost", "Accepted tokens per step"]


@pytest.mark.parametrize(("busy", "said"), [(None, 0), (0.2, 0), (1.26, 1)])
def test_a_busy_machine_is_told_with_the_figures(busy: float | None, said: int) -> None:
    found = replace(small_report(), busy_cores=busy)
    assert found.as_dict()["busy_cores"] == busy
    for text in (html_page(found), "\n".join(facts(found))):
        assert text.count("other programs kept 1.3 of ") == said == text.count("cores busy")


def test_the_page_needs_nothing_else() -> None:
    written = html_page(small_report()).replace('xmlns="http://www.w3.org/2000/svg"', "")
    for outside in ("http", "src=", "href=", "url(", "@import"):
        assert outside not in written


@pytest.mark.parametrize(
    ("most", "expected"), [(1.05, [0, 0.5, 1.0]), (7, [0, 2, 4, 6]), (40, [0, 10, 20, 30, 40])]
)
def test_ticks_are_round_numbers(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(expected)
