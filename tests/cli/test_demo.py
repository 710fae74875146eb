"""`localspec demo`: what it writes and when, what it shows, and what it claims."""

import io
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from fakes.command_line import Done, Run
from fakes.terminal import COLUMNS, on_terminal
from rich.console import Console

from localspec.cli import demo_output, demo_screen
from localspec.cli.chat import chat
from localspec.cli.demo_comparison import DemoComparison
from localspec.cli.demo_screen import Lines, Panes, legend, screen_for
from localspec.cli.demo_tasks import demo_tasks
from localspec.cli.output import Output
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError
from localspec.scaling import demo_size, scale
from localspec.scaling.demo_pair import DemoPair
from localspec.scaling.demo_size import DemoSize

PROMPT = "def f(x):"
# The least that can be written: 35 MB, in less than a second.
TINY = ("--size", "60M", "--type", "Q4_0", "--threads", "1", "-n", "24")
SMALL = (*TINY, "--prompt", "def fibonacci(n):")
IDENTICAL = re.compile(r"prompt +\d+\.\d +\d+\.\d +\d+\.\d\d x +yes, \d+ tokens")
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo writes: nothing is there yet."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path / "cache" / "demo"


@pytest.fixture
def demo(cli: Run) -> Run:
    """`localspec demo ARGS` within this process; standard input and output are no terminals."""
    return lambda *args: cli("demo", *args)


@pytest.fixture
def comparison(target_path: Path, drafter_path: Path) -> Iterator[DemoComparison]:
    """Of the bundled pair itself, run to the end."""
    with DemoComparison(target_path, drafter_path, threads=1) as comparison:
        for _ in comparison.run(PROMPT, threading.Event(), max_tokens=40, seed=3, ignore_eos=True):
            pass
        yield comparison


def shown_texts(out: str) -> list[str]:
    """What stands under each heading."""
    return [part.split("\n--- ")[0] for part in re.split(r"--- (?:plain|localspec)\n", out)[1:]]


# What it writes, and when.


@pytest.mark.slow
def test_into_a_pipe(demo: Run, folder: Path) -> None:
    done = demo(*SMALL)
    assert done.code == 0, done.err
    assert re.search(r"3\d\.\d MB, is written to", done.err)
    assert "`localspec demo --remove` deletes it" in done.err
    assert (
        "talk with this pair: localspec demo --size 60M --type Q4_0 --threads 1 --chat" in done.err
    )
    assert "\x1b" not in done.out + done.err
    plain, speculative = shown_texts(done.out)
    assert plain == speculative and plain.startswith("def fibonacci")
    assert IDENTICAL.search(done.out)
    (file,) = folder.iterdir()
    assert 30e6 < file.stat().st_size < 40e6
    again = demo(*SMALL)
    assert again.code == 0 and "written" not in again.err
    assert shown_texts(again.out) == [plain, speculative]


def test_a_large_pair_is_not_written_unasked(demo: Run, folder: Path) -> None:
    done = demo("--size", "0.6B")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert re.search(r"writes 1\.\d+ GB to", line) and "--yes" in line
    assert not folder.exists()


@pytest.mark.slow
def test_its_own_tasks_and_the_table(demo: Run, folder: Path) -> None:
    done = demo(*TINY)
    assert done.code == 0, done.err
    header, *rows = done.out.splitlines()[-4:]
    assert " ".join(header.split()) == "task plain tok/s localspec tok/s ratio identical text"
    assert [row.split()[0] for row in rows] == ["edit", "code", "sampled"]
    assert all(re.search(r"\d\.\d\d x +yes, \d+ tokens$", row) for row in rows)
    edit = "edit at temperature 0: Make this script stop at the first error: ... (12 more lines)\n"
    assert edit in done.err
    assert "sampled at temperature 0.8" in done.err


@pytest.mark.parametrize("prefers_chat", [True, False])
def test_a_prompt_is_a_question_where_the_model_answers(prefers_chat: bool) -> None:
    engine = cast(Engine, SimpleNamespace(prefers_chat=prefers_chat))
    (task,) = demo_tasks("What is a pipe?\nIn a line.", None, 0.3)
    question = [{"role": "user", "content": "What is a pipe?\nIn a line."}]
    assert task.prompt_for(engine) == (question if prefers_chat else question[0]["content"])
    assert task.heading == "prompt at temperature 0.3: What is a pipe? ... (1 more line)"
    # Raw texts of a set are continued by every model.
    (task,) = demo_tasks(None, "code", None)
    assert isinstance(task.prompt_for(engine), str) and task.temperature == 0


# The size.


@pytest.fixture
def speed_ups(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, float]:
    """Predicted for targets by their size: nothing is written and nothing measured."""
    by_size: dict[str, float] = {}

    def write(pair: DemoPair) -> None:
        pair.folder.mkdir(parents=True, exist_ok=True)
        pair.target.write_text(pair.parameters)

    monkeypatch.setattr(DemoPair, "write", write)
    monkeypatch.setattr(
        demo_size, "_speed_up", lambda target, _threads: by_size[target.read_text()]
    )
    return by_size


def find(tried: list[tuple[str, DemoSize | None]]) -> DemoSize:
    def write(pair: DemoPair, before: DemoSize | None) -> None:
        tried.append((pair.parameters, before))
        pair.write()

    return demo_size.find_size("F16", None, write)


def test_the_smallest_size_that_pays(speed_ups: dict[str, float], folder: Path) -> None:
    speed_ups |= {"0.1B": 1.2, "0.2B": 1.6}
    tried: list[tuple[str, DemoSize | None]] = []
    assert demo_size.remembered("F16", None) is None
    found = find(tried)
    assert found == DemoSize("0.2B", 1.6) and found.pays
    assert tried == [("0.1B", None), ("0.2B", DemoSize("0.1B", 1.2))]
    # Only the pair that is used stays on the disk.
    assert [file.read_text() for file in folder.glob("*.gguf")] == ["0.2B"]
    assert demo_size.remembered("F16", None) == found
    assert demo_size.remembered("F16", 1) is None
    assert demo_size.remembered("Q8_0", None) is None


def test_where_nothing_pays_it_is_the_best(speed_ups: dict[str, float], folder: Path) -> None:
    speed_ups |= {"0.1B": 1.1, "0.2B": 1.3, "0.3B": 1.2, "0.5B": 1.0}
    found = find([])
    assert found == DemoSize("0.2B", 1.3) and not found.pays
    assert list(folder.iterdir()) == []
    here, on_gpu = (demo_output.nothing_pays_line(found, on_gpu=each) for each in (False, True))
    assert "1.30 x at 0.2B" in here and "or a GPU" in here
    assert "GPU" not in on_gpu and "--threads" not in on_gpu


def test_a_size_that_does_not_fit_ends_the_search(
    speed_ups: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed_ups |= {"0.1B": 1.1}
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(scale.shutil, "disk_usage", lambda _path: usage(2**30, 0, 3 * 10**8))
    assert find([]) == DemoSize("0.1B", 1.1)
    monkeypatch.setattr(scale.shutil, "disk_usage", lambda _path: usage(2**30, 0, 10**6))
    with pytest.raises(InvalidValueError, match="on the disk"):
        find([])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"parameters": "9B", "speed_up": 2}', "{}"])
def test_a_damaged_memory_is_none(folder: Path, content: str) -> None:
    file = demo_size._file("F16", None)
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert demo_size.remembered("F16", None) is None


def test_the_prediction_weighs_passes_by_what_they_give() -> None:
    assert demo_size.predicted_speed_up({1: 1.0, 4: 4.0, 16: 16.0}) == 1
    # A pass of four tokens at the price of one.
    assert demo_size.predicted_speed_up({1: 1.0, 4: 1.0}) == pytest.approx(1 + 0.8 + 0.64 + 0.512)


@pytest.mark.slow
def test_the_size_is_found_once(demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --size: by really writing and timing pairs, here of sizes that are quick."""
    monkeypatch.setattr(demo_size, "SIZES", ("60M", "80M"))
    monkeypatch.setattr(demo_size, "PAYS", 1e-9)
    args = ("--type", "Q4_0", "-n", "8", "--prompt", PROMPT, "--threads", "1")
    first, again = demo(*args), demo(*args)
    assert first.code == again.code == 0, first.err
    assert "is written to" in first.err and "is written to" not in again.err
    assert len(list(folder.glob("*.gguf"))) == 1


@pytest.mark.slow
def test_the_next_size_replaces_one_that_is_too_small(
    demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_size, "SIZES", ("60M", "80M"))
    monkeypatch.setattr(demo_size, "PAYS", 1e9)
    done = demo("--type", "Q4_0", "-n", "8", "--prompt", PROMPT, "--threads", "1")
    assert done.code == 0, done.err
    assert "60M is too small" in done.err and "drafts gain little at every size" in done.err
    assert len(list(folder.glob("*.gguf"))) == 1


def test_what_does_not_fit_is_refused_before_asking(
    demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(scale.shutil, "disk_usage", lambda _path: usage(2**30, 2**30, 2**20))
    for args in (SMALL, (*SMALL, "--yes")):
        done = demo(*args)
        assert done.code == 2
        assert "63M in Q4_0 needs 0.0 GiB on the disk of" in done.err
        assert "--yes" not in done.err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--size", "big"], "no number of parameters"),
        (["--size", "5M"], "the least for this model is 5"),
        (["--size", "900B"], "are free"),
        (["--type", "Q2_K"], "is not one of"),
        (["--prompt", "a", "--set", "code"], "choose one"),
        (["--set", "poems"], "there is no such set"),
        (["-n", "0"], "must be at least 1"),
        (["--temperature", "-1"], "temperature"),
    ],
)
def test_bad_input(demo: Run, folder: Path, args: list[str], message: str) -> None:
    done = demo("--yes", *args)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert message in line
    assert not folder.exists()


def test_ctrl_c_while_writing_leaves_nothing(
    demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, *_rest: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(scale, "write_gguf", interrupted)
    done = demo("--yes", *SMALL)
    assert done.code == 130
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("while_writing", [True, False])
def test_ctrl_c_while_the_size_is_found_leaves_nothing(
    demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, while_writing: bool
) -> None:
    left: list[list[Path]] = []

    def end(_code: int) -> None:
        left.append([*folder.iterdir()])
        raise KeyboardInterrupt

    def interrupted(path: Path, *_rest: object) -> None:
        path.write_bytes(b"half")
        if while_writing:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(scale, "write_gguf", interrupted)
    monkeypatch.setattr(demo_size, "_speed_up", lambda *_: signal.raise_signal(signal.SIGINT))
    assert demo("--type", "Q4_0").code == 130
    assert left == ([] if while_writing else [[]])
    assert [*folder.iterdir()] == []


def test_a_full_disk_is_one_line(demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_rest: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scale, "write_gguf", full)
    done = demo("--yes", *SMALL)
    assert done.code == 1
    assert done.err.endswith("set LOCALSPEC_HOME to a folder elsewhere\n")
    assert list(folder.iterdir()) == []


def test_remove(demo: Run, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "a.gguf").write_bytes(bytes(3_000_000))
    (folder / ".b.gguf.123.part").write_bytes(bytes(1_000_000))
    assert demo("--remove") == Done(0, "", "localspec: 4.0 MB deleted\n")
    assert not folder.exists()
    assert demo("--remove") == Done(0, "", "localspec: 0 bytes deleted\n")


def test_a_drafter_is_a_twelfth_of_its_target(folder: Path) -> None:
    for size, drafter in {"0.3B": "31M", "0.5B": "44M", "0.9B": "75M"}.items():
        pair = DemoPair(size, "F16")
        assert f"-{drafter}-" in pair.drafter.name
        assert not pair.target.exists()


# What it shows.


def test_both_panes_show_the_whole_text(comparison: DemoComparison) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=90, height=30, record=True)
    with Panes(console, comparison, PROMPT) as panes:
        for decoding in comparison.decodings:
            for token in decoding.tokens:
                panes.show(decoding, token)
    shown = console.export_text()
    assert "╭─ plain ─" in shown and "╭─ localspec ─" in shown
    assert demo_output.speed_text(comparison.plain, comparison) in shown
    assert f"{comparison.speed_up:.2f} x" in demo_output.speed_text(
        comparison.speculative, comparison
    )
    last = shown.rpartition("╭─ plain ─")[2]
    rows = [line for line in last.splitlines() if line.startswith("│")]
    assert all(row[:45] == row[45:] for row in rows[1:])
    left = "".join(row[2:43] for row in rows)
    text = PROMPT + "".join(token.text for token in comparison.plain.tokens)
    assert "".join(left.split()) == "".join(text.split())


def test_origins_can_be_told_apart(
    comparison: DemoComparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which there are depends on what paid; here there is one of each, by turns."""
    origins = itertools.cycle(["suffix", "corrected", "bonus", "plain"])
    tokens = [replace(token, origin=next(origins)) for token in comparison.speculative.tokens]
    monkeypatch.setattr(comparison.speculative.generation, "tokens", tokens)
    console = Console(file=io.StringIO(), force_terminal=True, width=90, height=30)
    console.print(Panes(console, comparison, PROMPT)._frame())
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    for code in ("4;32m", "1;31m", "3;36m"):
        assert drawn.count(code) > 1  # the legend, and the text
    assert all(name in legend().plain for name in ("drafted", "corrected", "bonus", "plain"))


@pytest.mark.parametrize(
    ("width", "environment", "panes"),
    [
        (100, {}, True),
        (40, {}, False),
        (100, {"NO_COLOR": "1"}, False),
        (100, {"TERM": "dumb"}, False),
    ],
)
def test_small_and_colourless_screens_get_lines(
    monkeypatch: pytest.MonkeyPatch,
    comparison: DemoComparison,
    width: int,
    environment: dict[str, str],
    panes: bool,
) -> None:
    for name, value in {"COLUMNS": str(width), "LINES": "40", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    screen = screen_for(Output(color=True), comparison, PROMPT)
    assert isinstance(screen, Panes if panes else Lines)


def test_control_characters_do_not_reach_the_screen() -> None:
    assert demo_screen.safe_text("a\x1b[2J\r\n\tb\x07") == "a\ufffd[2J\n\tb\ufffd"


def test_long_prompts_are_cut() -> None:
    assert demo_screen._end_of("\n".join("abcdef")) == "...\nc\nd\ne\nf"


# What it claims.


def table(comparison: DemoComparison) -> str:
    return demo_output.results_text([demo_output.result_of("edit", comparison)])


def remarks(comparison: DemoComparison) -> str:
    return " ".join(demo_output.remark_lines([demo_output.result_of("edit", comparison)]))


def test_identity_is_claimed_only_when_it_holds(comparison: DemoComparison) -> None:
    assert comparison.first_difference is None
    assert "yes, 40 tokens" in table(comparison)
    assert comparison.speculative.generation is not None
    tokens = comparison.speculative.generation.tokens
    kept = tokens[7]
    tokens[7] = replace(kept, id=kept.id + 1)
    assert comparison.first_difference == 7
    assert "no, from token 8 of 40 on" in table(comparison)
    said = remarks(comparison)
    pieces = [comparison.plain.engine.model.piece_text(token) for token in (kept.id, kept.id + 1)]
    assert f"edit: token 8 is {pieces[0]!r} plainly and {pieces[1]!r} with drafts" in said
    assert "--reproducible" in said
    tokens[7:] = []
    assert comparison.first_difference == 7
    assert "and missing with drafts" in remarks(comparison)


def test_a_loss_is_said(comparison: DemoComparison) -> None:
    assert comparison.plain.generation is not None
    comparison.plain.generation.stats.seconds.generate = 1e-6
    assert comparison.speed_up is not None and comparison.speed_up < 1
    assert "did not pay" in remarks(comparison)


def test_a_busy_machine_is_said() -> None:
    assert demo_output.busy_warning(3) is None
    assert "55 % of the processor" in (demo_output.busy_warning(55.2) or "")


@pytest.mark.slow
def test_ctrl_c_while_running_claims_nothing(demo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    show = Lines.show
    seen = []

    def interrupting(self: Lines, *what: object) -> None:
        show(self, *what)  # type: ignore[arg-type]
        seen.append(what)
        if len(seen) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Lines, "show", interrupting)
    done = demo("--yes", *SMALL)
    assert done.code == 130
    assert "--- plain" in done.out and "identical" not in done.out
    assert "Traceback" not in done.err


# On a real terminal.


def demo_on_terminal(*args: str, columns: int = COLUMNS, **typed: bytes) -> tuple[int, str]:
    """`localspec demo ARGS` in a terminal of its own; the exit code and the text it wrote."""
    code, shown = on_terminal("demo", *args, columns=columns, **typed)
    return code, CODES.sub("", shown).replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
def test_on_a_terminal_it_draws_and_offers_the_chat(folder: Path) -> None:
    code, shown = demo_on_terminal(*SMALL, answer=b"q\n", after=b"or Ctrl-C to end")
    assert code == 0
    assert "[y/N]" not in shown
    assert "╭─ plain ─" in shown and "╭─ localspec ─" in shown
    assert IDENTICAL.search(shown)
    # Keys that were typed before the offer are no answer to it.
    code, shown = demo_on_terminal(
        *SMALL, typed=b"\r\r", answer=b"\x04", after=b"or Ctrl-C to end", columns=40
    )
    assert code == 0
    assert "╭" not in shown and "--- localspec" in shown


@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
def test_on_a_terminal_a_large_pair_is_asked_for(folder: Path) -> None:
    code, shown = demo_on_terminal("--size", "0.6B", answer=b"n\n")
    assert code == 0
    assert re.search(r"write 1\.\d+ GB\? \[y/N\]", shown) and "nothing was written" in shown
    assert not folder.exists()


@pytest.mark.slow
def test_the_chat_opens_on_the_pair(
    demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parents[1].joinpath("config.toml").write_text('ctx = 512\nkv_type = "q8_0"\n')
    opened: list[dict[str, object]] = []
    monkeypatch.setattr(chat, "callback", lambda **given: opened.append(given) or 0)
    done = demo(*SMALL, "--chat")
    assert done.code == 0, done.err
    assert done.out == ""
    (given,) = opened
    (target,) = folder.glob("*.gguf")
    assert given["model"] == str(target)
    assert str(given["draft"]).startswith("suffix,") and given["threads"] == 1
    assert given["temperature"] is None and given["latest"] is False
    # The user's settings count as they do for `localspec chat`.
    assert (given["context"], given["kv_type"]) == (512, "q8_0")
    # As on the command line, where `auto` is read as None.
    assert given["depth"] is None
    # Enter, at the end of a demo on a terminal, does the same.
    monkeypatch.setattr("localspec.cli.demo._chat_wanted", lambda *_what: True)
    assert demo(*SMALL).code == 0
    assert opened[1] == given


def test_help_of_all_loads_nothing_of_it() -> None:
    code = """
import sys
sys.argv = ["localspec", "--help"]
try:
    from localspec.cli.main import main; main()
finally:
    print([name for name in ("rich", "gguf", "psutil") if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "demo " in done.stdout
