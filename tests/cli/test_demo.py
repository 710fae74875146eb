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

import pytest
from fakes.command_line import Done, Run
from fakes.terminal import COLUMNS, on_terminal
from rich.console import Console

from localspec.bench import Comparison
from localspec.cli import demo_output, demo_screen
from localspec.cli.demo_screen import Lines, Panes, legend, screen_for
from localspec.cli.output import Output
from localspec.scaling import scale
from localspec.scaling.demo_pair import DemoPair

PROMPT = "def f(x):"
# The least that can be written: 35 MB, in less than a second.
SMALL = ("--size", "60M", "--type", "Q4_0", "--threads", "1", "-n", "24")
IDENTICAL = re.compile(
    r"plain \d+\.\d tok/s · localspec \d+\.\d tok/s · \d+\.\d\d x · "
    r"the two texts are identical \(24 tokens\)\n"
)
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
def comparison(target_path: Path, drafter_path: Path) -> Iterator[Comparison]:
    """Of the bundled pair itself, run to the end."""
    with Comparison(target_path, drafter_path, threads=1) as comparison:
        for _ in comparison.run(PROMPT, threading.Event(), max_tokens=40, seed=3, ignore_eos=True):
            pass
        yield comparison


def shown_texts(out: str) -> list[str]:
    """What stands under each heading."""
    return [part.split("\n--- ")[0] for part in re.split(r"--- (?:plain|localspec)\n", out)[1:]]


# What it writes, and when.


def test_into_a_pipe(demo: Run, folder: Path) -> None:
    done = demo("--yes", *SMALL)
    assert done.code == 0, done.err
    assert "\x1b" not in done.out + done.err
    plain, speculative = shown_texts(done.out)
    assert plain == speculative and plain.startswith("def fibonacci")
    assert IDENTICAL.search(done.out)
    (file,) = folder.iterdir()
    assert 30e6 < file.stat().st_size < 40e6
    again = demo(*SMALL)
    assert again.code == 0 and "written" not in again.err
    assert shown_texts(again.out) == [plain, speculative]


def test_without_a_terminal_it_writes_nothing_unasked(demo: Run, folder: Path) -> None:
    done = demo(*SMALL)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert "writes 35.3 MB to" in line and "--yes" in line
    assert not folder.exists()


def test_what_does_not_fit_is_refused_before_asking(
    demo: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(scale.shutil, "disk_usage", lambda _path: usage(2**30, 2**30, 2**20))
    for args in (SMALL, (*SMALL, "--yes")):
        done = demo(*args)
        assert done.code == 2
        assert "60M in Q4_0 needs 0.0 GiB on the disk of" in done.err
        assert "--yes" not in done.err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--size", "big"], "no number of parameters"),
        (["--size", "5M"], "can only be scaled up"),
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
    for size, drafter in {"0.3B": "35M", "0.5B": "41M", "0.9B": "72M"}.items():
        pair = DemoPair(size, "F16")
        assert f"-{drafter}-" in pair.drafter.name
        assert not pair.target.exists()


# What it shows.


def test_both_panes_show_the_whole_text(comparison: Comparison) -> None:
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


def test_origins_can_be_told_apart(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
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
    comparison: Comparison,
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
    assert demo_screen.safe_text("a\x1b[2J\r\n\tb\x07") == "a\ufffd[2J\ufffd\n\tb\ufffd"


def test_long_prompts_are_cut() -> None:
    assert demo_screen._end_of("\n".join("abcdef")) == "...\nc\nd\ne\nf"


# What it claims.


def test_identity_is_claimed_only_when_it_holds(comparison: Comparison) -> None:
    assert comparison.first_difference is None
    assert demo_output.verdict_line(comparison).endswith("the two texts are identical (40 tokens)")
    assert comparison.speculative.generation is not None
    tokens = comparison.speculative.generation.tokens
    kept = tokens[7]
    tokens[7] = replace(kept, id=kept.id + 1)
    assert comparison.first_difference == 7
    assert demo_output.verdict_line(comparison).endswith(
        "the two texts differ from token 8 of 40 on"
    )
    said = " ".join(demo_output.remark_lines(comparison))
    pieces = [comparison.plain.engine.model.piece_text(token) for token in (kept.id, kept.id + 1)]
    assert f"token 8 is {pieces[0]!r} plainly and {pieces[1]!r} with drafts" in said
    assert "--reproducible" in said
    tokens[7:] = []
    assert comparison.first_difference == 7
    assert "and missing with drafts" in " ".join(demo_output.remark_lines(comparison))


def test_a_loss_is_said(comparison: Comparison) -> None:
    assert comparison.plain.generation is not None
    comparison.plain.generation.stats.seconds.generate = 1e-6
    assert comparison.speed_up is not None and comparison.speed_up < 1
    assert any("did not pay" in each for each in demo_output.remark_lines(comparison))


def test_a_busy_machine_is_said() -> None:
    assert demo_output.busy_warning(3) is None
    assert "55 % of the processor" in (demo_output.busy_warning(55.2) or "")


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


def demo_on_terminal(*args: str, answer: bytes, columns: int = COLUMNS) -> tuple[int, str]:
    """`localspec demo ARGS` in a terminal of its own; the exit code and the text it wrote."""
    code, shown = on_terminal("demo", *args, answer=answer, columns=columns)
    return code, CODES.sub("", shown).replace("\r\n", "\n")


@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
def test_on_a_terminal_it_asks_and_draws(folder: Path) -> None:
    code, shown = demo_on_terminal(*SMALL, answer=b"n\n")
    assert code == 0
    assert "write 35.3 MB? [y/N]" in shown and "nothing was written" in shown
    assert not folder.exists()
    code, shown = demo_on_terminal(*SMALL, answer=b"y\n")
    assert code == 0
    assert "╭─ plain ─" in shown and "╭─ localspec ─" in shown
    assert IDENTICAL.search(shown)
    code, shown = demo_on_terminal(*SMALL, answer=b"", columns=40)
    assert code == 0
    assert "╭" not in shown and "--- localspec" in shown


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
