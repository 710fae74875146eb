"""Ctrl-C in `localspec generate`, whatever it is doing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from time import monotonic

import psutil
import pytest
from fakes.command_line import Run
from fakes.generate_runs import (
    ENDLESS,
    PROMPT,
    posix,
    process,
    rest_of,
    streamed,
)

from localspec.control.base_costs import WIDEST
from localspec.stats import Stats

pytestmark = pytest.mark.usefixtures("bare_environment")


@posix
def test_ctrl_c_keeps_the_text_so_far(generate: Run) -> None:
    fcntl = pytest.importorskip("fcntl")
    with process(*ENDLESS) as running:
        assert running.stdout is not None
        size = fcntl.fcntl(running.stdout, getattr(fcntl, "F_SETPIPE_SZ", 0), 4096)
        if size != 4096:
            pytest.skip("pipes here hold the whole text, so it may be over before the signal")
        start = os.read(running.stdout.fileno(), 1)
        # The text is longer than the pipe, so the program is still writing.
        running.send_signal(signal.SIGINT)
        done = rest_of(running)
    text = start.decode() + done.out
    assert done.code == 130
    assert text.endswith("\n")
    # No token of this text is empty.
    assert generate(*ENDLESS, "-n", str(min(len(text), 1500))).out.startswith(text[:-1])
    assert len(done.lines) == 1
    assert "seed" in done.err


@posix
def test_ctrl_c_in_the_stream_of_objects() -> None:
    with process(*ENDLESS, "--stream", "--json") as running:
        assert running.stdout is not None
        start = os.read(running.stdout.fileno(), 10)
        # All of it is more than any pipe holds, so the program is still writing.
        running.send_signal(signal.SIGINT)
        done = rest_of(running)
    tokens, whole = streamed(start.decode() + done.out)
    assert done.code == 130
    assert whole["stop_reason"] == "cancelled"
    assert 1 <= len(tokens) < 1500
    assert len(done.lines) == 1


@pytest.fixture
def press_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Raise SIGINT when the text has so many tokens, each time a number is given."""

    def at(*counts: int) -> None:
        count_token = Stats.count_token

        def count(stats: Stats, drafted_at: int | None) -> None:
            count_token(stats, drafted_at)
            for _ in range(counts.count(stats.generated_tokens)):
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(Stats, "count_token", count)

    return at


@pytest.mark.parametrize("depth", ["3", "auto"])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 10])
def test_ctrl_c_gives_the_object_of_the_part(
    generate: Run, press_ctrl_c: Callable[..., None], tokens: int, depth: str
) -> None:
    """Up to the end of the step: what that has brought is in the caches, and given."""
    whole = generate(*ENDLESS, "-n", "60", "--json").record
    press_ctrl_c(tokens)
    done = generate(*ENDLESS, "--json", "--stats", "--depth", depth)
    assert done.code == 130
    record = done.record
    assert record["stop_reason"] == "cancelled"
    count = len(record["token_ids"])
    assert tokens <= count <= tokens + (WIDEST if depth == "auto" else int(depth))
    assert record["token_ids"] == whole["token_ids"][:count]
    assert whole["text"].startswith(record["text"])
    assert f"{count} tokens" in done.lines[-1]


def test_ctrl_c_without_streaming_gives_the_part(
    generate: Run, press_ctrl_c: Callable[..., None]
) -> None:
    whole = generate(*ENDLESS, "-n", "30").out
    press_ctrl_c(20)
    done = generate(*ENDLESS, "--no-stream")
    assert done.code == 130
    assert len(done.out) > 20
    assert whole.startswith(done.out[:-1])


def test_a_second_ctrl_c_ends_at_once(generate: Run, press_ctrl_c: Callable[..., None]) -> None:
    press_ctrl_c(20, 20)
    done = generate(*ENDLESS, "--json")
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err


def test_ctrl_c_is_the_caller_s_again_afterwards(generate: Run) -> None:
    before = signal.getsignal(signal.SIGINT)
    generate(PROMPT, "-n", "3")
    generate(PROMPT, "-m", "nowhere.gguf")
    assert signal.getsignal(signal.SIGINT) is before


@posix
def test_ctrl_c_while_standard_input_is_read() -> None:
    with process(stdin=subprocess.PIPE) as running:
        assert running.stdin is not None
        # More than a pipe holds: when it is written, the program is reading.
        running.stdin.write(b"x = 1\n" * 100_000)
        running.stdin.flush()
        _until_it_waits_for_more(running)
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.read() == b""
        assert running.stderr.read().strip() == b""


def _until_it_waits_for_more(running: subprocess.Popen[bytes]) -> None:
    """Until what was written is read, and the program sleeps.

    A signal between two reads would be seen only after the second, which waits for ever.
    """
    import fcntl
    import termios

    unread = b"...."
    while any(unread) or psutil.Process(running.pid).status() != psutil.STATUS_SLEEPING:
        unread = fcntl.ioctl(running.stdin, termios.FIONREAD, b"....")


@posix
def test_ctrl_c_while_models_load() -> None:
    """Where an exception would be lost in one of the library's callbacks."""
    code = """
import signal, sys
from localspec.llama import library

class Pressing(type(library._lines)):
    def append(self, line):
        signal.raise_signal(signal.SIGINT)

library._lines = Pressing()
from localspec.cli.main import main
sys.argv = ["localspec", "generate", "hi"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@posix
@pytest.mark.slow
def test_the_time_in_which_it_was_stopped_counts_in_no_figure() -> None:
    """As by Ctrl-Z in a shell, and `fg` after 4 seconds."""
    code = """
import os, signal, subprocess, sys
from localspec.cli.main import main
from localspec.stats import Stats

count_token = Stats.count_token

def stopping(stats, drafted_at):
    count_token(stats, drafted_at)
    if stats.generated_tokens == 10:
        subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)

Stats.count_token = stopping
sys.exit(main())
"""
    args = ["generate", "-m", "pycode", PROMPT, "-n", "20", "--json"]
    began = monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert monotonic() - began > 4
    took = json.loads(done.stdout)["stats"]["seconds"]
    assert took["generate"] < 3, took
