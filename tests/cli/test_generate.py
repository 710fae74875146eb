"""`localspec generate` as people and programs run it, on the bundled pair."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, resources
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import jsonschema
import numpy as np
import psutil
import pytest

from localspec.cli.main import main
from localspec.cli.output import Output
from localspec.control.pass_costs import WIDEST
from localspec.errors import LocalspecError, ModelNotFoundError
from localspec.stats import Stats

PROMPT = "class Reader:\n    def read(self"
# Greedy, it repeats itself and never ends: a text that only -n or Ctrl-C ends.
ENDLESS = ("import os\n\n\nclass Path(", "--temperature", "0", "-n", "1500", "--threads", "1")
DRAFTER = "pycode-4m-q4_0"
BOTH = f"suffix or {DRAFTER}"
CODES = re.compile(r"\x1b\[[0-9;]*m")
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals, pipes and terminals")


class Done(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()

    @property
    def record(self) -> dict[str, Any]:
        """The one object on stdout."""
        assert self.out.endswith("}\n")
        assert self.out.count("\n") == 1
        return valid(json.loads(self.out))


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain terminal, whatever the tests are run in."""
    for name in ("NO_COLOR", "FORCE_COLOR", "LOCALSPEC_DEBUG", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("PYTHONUTF8", "1")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`localspec ARGS` within this process: what most tests need, and quick."""

    def run(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["localspec", *args])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def generate(cli: Run) -> Run:
    """`localspec generate ARGS`, where every bit of arithmetic is the same on every run."""
    return lambda *args, **kwargs: cli("generate", "--threads", "1", *args, **kwargs)


@contextmanager
def process(*args: str | bytes, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m localspec generate ARGS`; standard output and error are pipes."""
    command = [sys.executable, "-m", "localspec", "generate", *args]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **{**streams, **options}) as running:
        try:
            yield running
        finally:
            running.kill()


def real(*args: str | bytes, stdin: bytes = b"") -> Done:
    """One run in a process of its own, to the end."""
    with process(*args, stdin=subprocess.PIPE) as running:
        return rest_of(running, stdin)


def rest_of(running: subprocess.Popen[bytes], stdin: bytes | None = None) -> Done:
    out, err = running.communicate(stdin)
    return Done(running.returncode, out.decode(), err.decode())


# The JSON object.

SCHEMA = json.loads((resources.files("localspec.cli") / "generate.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TOKEN_VALIDATOR = jsonschema.Draft202012Validator(
    {"$ref": "#/$defs/token", "$defs": SCHEMA["$defs"]}
)


def valid(record: dict[str, Any]) -> dict[str, Any]:
    """The record, which follows the schema and does not contradict itself."""
    VALIDATOR.validate(record)
    stats, speculation = record["stats"], record["speculation"]
    count, origins = len(record["token_ids"]), record["origins"]
    drafted = [origin for origin in origins if origin in speculation["drafters"]]
    assert len(origins) == stats["generated_tokens"] == count
    assert {*origins} <= {*speculation["drafters"], "corrected", "bonus", "plain"}
    assert len(drafted) == stats["accepted"] <= stats["drafted"]
    by_position = stats["accepted_per_position"]
    assert sum(by_position) == stats["accepted"]
    assert by_position == sorted(by_position, reverse=True)
    # A step adds one token of the target's own; the last one may have been cut before it.
    assert stats["steps"] - (count - len(drafted)) in (0, 1)
    assert stats["acceptance_rate"] == _ratio(stats["accepted"], stats["drafted"])
    assert stats["tokens_per_step"] == _ratio(count, stats["steps"])
    assert 1 <= stats["prompt_evaluated"] <= stats["prompt_tokens"]
    seconds = stats["seconds"]
    parts = seconds["draft"] + seconds["verify"] + seconds["host"]
    assert seconds["generate"] == pytest.approx(parts)
    assert stats["tokens_per_second"] == _ratio(count, seconds["generate"])
    assert speculation["active"] is bool(speculation["drafters"])
    assert speculation["active"] or speculation["reason"]
    widths = record["recipe"]["widths"]
    assert len(widths) == stats["steps"]
    # Each pass held the pending token, what was drafted, and perhaps padding.
    assert sum(widths) >= stats["steps"] + stats["drafted"]
    return record


def _ratio(part: float, whole: float) -> float | None:
    return pytest.approx(part / whole) if whole else None


def streamed(out: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The objects of `--stream --json`: the tokens and the whole."""
    *tokens, whole = (json.loads(line) for line in out.splitlines())
    for token in tokens:
        TOKEN_VALIDATOR.validate(token)
    valid(whole)
    assert "".join(token["text"] for token in tokens) == whole["text"]
    assert [token["id"] for token in tokens] == whole["token_ids"]
    assert [token["origin"] for token in tokens] == whole["origins"]
    return tokens, whole


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_json_is_one_object(generate: Run) -> None:
    done = generate(PROMPT, "--json", "-n", "50", "--seed", "3")
    record = done.record
    assert done.code == 0
    assert (record["seed"], record["rule"]) == (3, "coupled")
    drafters = ["suffix", DRAFTER]
    assert record["speculation"] == {"active": True, "drafters": drafters, "reason": None}
    assert record["recipe"]["depth"] is None
    assert Path(record["model"]["drafter"]).stem == DRAFTER
    assert record["text"] + "\n" == generate(PROMPT, "-n", "50", "--seed", "3").out


def test_json_without_a_drafter(generate: Run) -> None:
    record = generate(PROMPT, "--json", "-n", "1", "--draft", "none").record
    assert record["model"]["drafter"] is None
    assert record["speculation"]["drafters"] == []
    assert record["speculation"]["reason"] == "drafting was turned off"
    assert record["recipe"]["widths"] == [1]
    assert record["stats"]["acceptance_rate"] is None
    assert record["origins"] == ["plain"]


def test_the_schema_allows_nothing_else(generate: Run) -> None:
    """Every key is required, and no other is allowed, at every depth."""
    record = generate(PROMPT, "--json", "-n", "3").record
    objects = [(), ("model",), ("speculation",), ("stats",), ("stats", "seconds"), ("recipe",)]
    for path in objects:
        for key in [*_at(record, path), "surprise"]:
            changed = json.loads(json.dumps(record))
            place = _at(changed, path)
            if place.pop(key, None) is None and key == "surprise":
                place[key] = 1
            with pytest.raises(jsonschema.ValidationError):
                VALIDATOR.validate(changed)


def _at(record: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        record = record[key]
    return record


def test_stream_json_is_an_object_per_line(generate: Run) -> None:
    done = generate(PROMPT, "--stream", "--json", "-n", "50", "--seed", "3", "--logprobs", "0")
    tokens, whole = streamed(done.out)
    assert len(tokens) == 50
    assert all(token["logprob"] <= 0 for token in tokens)
    again = generate(PROMPT, "--json", "-n", "50", "--seed", "3").record
    assert again["text"] == whole["text"]


# Text.


def test_stdout_is_the_text_and_nothing_else() -> None:
    done = real(PROMPT, "-n", "30", "--seed", "3", "--threads", "1")
    assert done.code == 0
    assert len(done.lines) == 1
    record = real(PROMPT, "-n", "30", "--seed", "3", "--threads", "1", "--json").record
    assert done.out == record["text"] + "\n"


def test_no_stream_gives_the_same_text(generate: Run) -> None:
    texts = [
        generate(PROMPT, "-n", "40", "--seed", "3", *option).out
        for option in ([], ["--stream"], ["--no-stream"])
    ]
    assert len(set(texts)) == 1


@pytest.mark.parametrize(
    ("stdin", "argument", "prompt"),
    [
        (b"def f(", None, "def f("),
        (b"def f(\n", None, "def f("),
        (b"def f(\r\n", None, "def f("),
        (b"def f(\n\n", None, "def f(\n"),
        (b"def f(:\n", "    return", "def f(:\n    return"),
        (b"", "def f(", "def f("),
        (b"\n", "def f(", "def f("),
        ("π = é".encode(), None, "π = é"),
    ],
)
def test_stdin_joins_the_prompt(
    generate: Run, stdin: bytes, argument: str | None, prompt: str
) -> None:
    arguments = ["--json", "-n", "15", "--seed", "3"]
    got = generate(*([argument] if argument else []), *arguments, stdin=stdin).record
    expected = generate(prompt, *arguments).record
    assert got["token_ids"] == expected["token_ids"]
    assert got["stats"]["prompt_tokens"] == expected["stats"]["prompt_tokens"]


def test_a_pipe_in_gives_text_and_newline() -> None:
    """`echo hi | localspec generate`."""
    done = real("-n", "20", stdin=b"hi\n")
    assert done.code == 0
    assert done.out.endswith("\n")
    assert "\x1b" not in done.out + done.err


def test_a_seed_reproduces_and_is_reported(generate: Run) -> None:
    first, second = (generate(PROMPT, "--json", "-n", "30") for _ in range(2))
    seed = first.record["seed"]
    assert seed != second.record["seed"]
    assert first.lines[0].endswith(f"seed {seed}")
    again = generate(PROMPT, "--json", "-n", "30", "--seed", str(seed)).record
    assert again["token_ids"] == first.record["token_ids"]


@pytest.mark.parametrize("temperature", ["0", "0.8", "1.3"])
def test_whatever_drafts_the_text_is_the_same(
    generate: Run, drafter_path: Path, temperature: str
) -> None:
    options = ["--json", "-n", "80", "--seed", "11", "--temperature", temperature]
    plain = generate(PROMPT, *options, "--draft", "none").record
    model = str(drafter_path)
    drafters = ("auto", "suffix", "lookup", "ngram", model, f"lookup,{model}")
    for draft, depth in [*((each, "3") for each in drafters), ("auto", "1"), ("auto", "12")]:
        got = generate(PROMPT, *options, "--draft", draft, "--depth", depth).record
        assert got["token_ids"] == plain["token_ids"]
        assert got["stats"]["drafted"] > 0
        if draft not in ("suffix", "lookup", "ngram"):
            assert got["stats"]["steps"] < plain["stats"]["steps"]
    for draft in ("auto", "suffix", f"suffix,{model}"):
        got = generate(PROMPT, *options, "--draft", draft, "--depth", "auto").record
        assert got["token_ids"] == plain["token_ids"]


def test_auto_is_the_depth_when_nothing_is_said(generate: Run) -> None:
    said = generate(PROMPT, "--json", "-n", "20", "--seed", "3", "--depth", "auto")
    unsaid = generate(PROMPT, "--json", "-n", "20", "--seed", "3")
    number = generate(PROMPT, "--json", "-n", "20", "--seed", "3", "--depth", "4")
    assert said.lines == unsaid.lines != number.lines
    assert said.record["token_ids"] == unsaid.record["token_ids"] == number.record["token_ids"]
    depths = [done.record["recipe"]["depth"] for done in (said, unsaid, number)]
    assert depths == [None, None, 4]


def test_stop_strings(generate: Run) -> None:
    options = ["-n", "40", "--seed", "3"]
    tokens, whole = streamed(generate(PROMPT, *options, "--stream", "--json").out)
    # The end of one token and the start of the next: no token shows it by itself.
    stop = next(
        a["text"][-1:] + b["text"][:2] for a, b in pairwise(tokens[10:]) if len(b["text"]) > 1
    )
    before = whole["text"][: whole["text"].index(stop)]
    for more in ([], ["--draft", "none"], ["--stop", "not there"], ["--no-stream"]):
        assert generate(PROMPT, *options, "--stop", stop, *more).out == before + "\n"
    record = generate(PROMPT, *options, "--stop", stop, "--json").record
    assert (record["text"], record["stop_reason"]) == (before, "stop")
    parts, last = streamed(generate(PROMPT, *options, "--stop", stop, "--stream", "--json").out)
    assert last["text"] == before
    assert len(parts) < len(tokens)


def test_chat_and_raw(generate: Run) -> None:
    options = ["--json", "-n", "10", "--seed", "3"]
    raw, chat, default = (
        generate("def f(", *options, *more).record for more in (["--raw"], ["--chat"], [])
    )
    assert raw["token_ids"] == default["token_ids"]
    assert chat["stats"]["prompt_tokens"] > raw["stats"]["prompt_tokens"]
    turns = "<|im_start|>user\ndef f(<|im_end|>\n<|im_start|>assistant\n"
    assert generate(turns, *options).record["token_ids"] == chat["token_ids"]


# Standard error.


def test_stats_are_the_numbers_of_the_record(generate: Run) -> None:
    done = generate(PROMPT, "--json", "--stats", "-n", "40", "--seed", "3", "--depth", "3")
    stats, line = done.record["stats"], done.lines[-1]
    seconds = stats["seconds"]
    assert len(done.lines) == 2
    assert f"{stats['generated_tokens']} tokens, {stats['tokens_per_second']:.1f} tok/s" in line
    assert f"accept {stats['acceptance_rate']:.0%}" in line
    assert f"{stats['tokens_per_step']:.1f} tok/step in {stats['steps']} steps" in line
    assert f"prompt {stats['prompt_tokens']} ({stats['prompt_evaluated']} evaluated)" in line
    assert f"load {seconds['load']:.2f} s, prompt {seconds['prompt']:.2f} s" in line
    assert f"generate {seconds['generate']:.2f} s = draft {seconds['draft']:.2f}" in line


def test_stats_without_a_drafter(generate: Run) -> None:
    done = generate(PROMPT, "--stats", "-n", "5", "--draft", "none")
    assert "accept -" in done.lines[-1]


PLAN = re.compile(
    r"localspec: (?:plain \(.+; \d+\.\d tok/s\)"
    rf"|(?:suffix|{DRAFTER}), depth \d+ \(.+: \d+\.\d tokens at \d+\.\d tok/s, plain \d+\.\d\))"
)


@pytest.mark.parametrize("form", [["--json"], ["--stream"], ["--stream", "--json"]])
def test_explain_gives_a_line_per_step(generate: Run, form: list[str]) -> None:
    """On standard error, between what runs and the account; standard output is as without it."""
    options = ["-n", "40", "--seed", "3", "--stats"]
    done = generate(PROMPT, *options, "--explain", *form)
    first, *steps, last = done.lines
    assert first.endswith("seed 3")
    assert f"in {len(steps)} steps" in last
    for line in steps:
        assert PLAN.fullmatch(line), line
    if form == ["--stream"]:
        assert done.out == generate(PROMPT, *options).out
    elif form == ["--json"]:
        assert done.record["stats"]["steps"] == len(steps)
    else:
        streamed(done.out)


@pytest.mark.parametrize("options", [["--depth", "3"], ["--draft", "none"]])
def test_where_nothing_is_decided_nothing_is_explained(generate: Run, options: list[str]) -> None:
    assert len(generate(PROMPT, "-n", "10", "--explain", *options).lines) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], f"no model named, so the bundled pycode-7m-q8_0 · draft: {BOTH}, as deep as pays · "),
        (["--depth", "3"], f"the bundled pycode-7m-q8_0 · draft: {BOTH}, depth 3 · "),
        (["--draft", "none"], "pycode-7m-q8_0 · draft: off (drafting was turned off)"),
        (["--draft", "lookup", "--depth", "5"], "pycode-7m-q8_0 · draft: lookup, depth 5"),
        (["-m", "{target}"], f"localspec: pycode-7m-q8_0 · draft: {BOTH}, as deep as pays · "),
        (["--draft", "{drafter}"], f"pycode-7m-q8_0 · draft: {DRAFTER}, as deep as pays · "),
        (
            ["--draft", "ngram,{drafter},suffix", "--depth", "2"],
            f"pycode-7m-q8_0 · draft: ngram or {BOTH}, depth 2 · ",
        ),
        (
            ["-m", "{copy}"],
            "localspec: copy · draft: suffix, as deep as pays "
            "(no drafter is known for copy.gguf) · ",
        ),
        (["--ctx", "2500"], "context 2500 is beyond the model's 2048"),
    ],
)
def test_one_line_says_what_runs(  # noqa: PLR0917
    generate: Run,
    tmp_path: Path,
    target_path: Path,
    drafter_path: Path,
    options: list[str],
    said: str,
) -> None:
    copy = tmp_path / "copy.gguf"
    shutil.copyfile(drafter_path, copy)
    paths = {"{target}": str(target_path), "{drafter}": str(drafter_path), "{copy}": str(copy)}
    for name, path in paths.items():
        options = [each.replace(name, path) for each in options]
    done = generate(PROMPT, "-n", "3", "--seed", "42", *options)
    (line,) = done.lines
    assert said in line
    assert line.endswith(" · seed 42")
    assert done.code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a file name that is not UTF-8")
def test_json_of_a_file_name_that_is_not_utf8(tmp_path: Path, drafter_path: Path) -> None:
    copy = tmp_path / os.fsdecode(b"\xff.gguf")
    shutil.copyfile(drafter_path, copy)
    done = real(PROMPT, "--json", "-n", "3", "-m", str(copy))
    assert done.out.isascii()
    assert done.record["model"]["target"] == str(copy)


# Colour.


def test_forced_colours_are_the_plain_text_and_codes(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = generate(PROMPT, "-n", "60", "--seed", "3").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    for more in ([], ["--no-stream"]):
        done = generate(PROMPT, "-n", "60", "--seed", "3", "--color", "--depth", "3", *more)
        assert CODES.sub("", done.out) == plain
        assert len(CODES.findall(done.out)) > 20
        # Styles end before each line does.
        assert all(line.count("\x1b") % 2 == 0 for line in done.out.split("\n"))
        assert f"{BOTH}: green, underlined" in done.err
    assert "\x1b" not in generate(PROMPT, "-n", "60", "--seed", "3").out


@pytest.mark.parametrize(
    "environment",
    [{}, {"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}],
)
def test_no_colours_into_a_pipe_or_where_they_are_unwanted(
    generate: Run, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    plain = generate(PROMPT, "-n", "30", "--seed", "3").out
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = generate(PROMPT, "-n", "30", "--seed", "3", "--color")
    assert done.out == plain
    assert "colours are off" in done.lines[-1]


def test_json_is_never_coloured(generate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = generate(PROMPT, "--json", "--color", "-n", "30")
    assert "\x1b" not in done.out
    assert done.record


@posix
@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [
        (["--color"], {}, True),
        ([], {}, False),
        (["--color"], {"NO_COLOR": "1"}, False),
        (["--color"], {"TERM": "dumb"}, False),
    ],
)
def test_in_a_terminal(
    generate: Run, options: list[str], environment: dict[str, str], coloured: bool
) -> None:
    # At a fixed depth, so that something is drafted whatever pays.
    arguments = [PROMPT, "-n", "30", "--seed", "3", "--threads", "1", "--depth", "3"]
    code, out, err = in_terminal(*arguments, *options, **environment)
    assert code == 0
    assert ("\x1b" in out) is coloured
    assert CODES.sub("", out) == generate(*arguments).out
    assert "seed 3" in err


@posix
def test_in_a_terminal_nothing_is_waited_for() -> None:
    code, out, err = in_terminal()
    assert (code, out) == (2, "")
    assert "no prompt" in err


def in_terminal(*args: str, **environment: str) -> Done:
    """A run whose standard input and output are a terminal."""
    import pty

    screen, inside = pty.openpty()
    try:
        with process(*args, stdin=inside, stdout=inside, env={**os.environ, **environment}) as run:
            os.close(inside)
            shown = b""
            while part := _read_terminal(screen):
                shown += part
            assert run.stderr is not None
            err = run.stderr.read().decode()
            return Done(run.wait(), shown.decode().replace("\r\n", "\n"), err)
    finally:
        os.close(screen)


def _read_terminal(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # Linux says it like this that nobody is left inside
        return b""


# Ctrl-C.


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


# Readers and writers that are gone.


@posix
@pytest.mark.parametrize("options", [(), ("--stream", "--json")])
def test_a_reader_that_has_enough_ends_it_quietly(options: tuple[str, ...]) -> None:
    """`| head -c 10`."""
    with process(*ENDLESS, *options) as running:
        assert running.stdout is not None
        assert len(os.read(running.stdout.fileno(), 10)) > 0
        running.stdout.close()
        assert running.stderr is not None
        err = running.stderr.read().decode()
        assert running.wait() == 0
    assert len(err.splitlines()) == 1
    assert "seed" in err


def shell(redirection: str, *args: str) -> Done:
    """`localspec generate ARGS` with a redirection of the shell's."""
    command = [sys.executable, "-m", "localspec", "generate", *args]
    script = f'exec "$@" {redirection}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@posix
def test_standard_output_closed() -> None:
    done = shell(">&-", "def f(", "-n", "5")
    assert done.code == 1
    assert done.lines == [
        "localspec: error: standard output is closed; open it, or send it to a file"
    ]


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk() -> None:
    done = shell(">/dev/full", "def f(", "-n", "5")
    assert done.code == 1
    assert done.lines[-1].startswith("localspec: error: standard output cannot be written: ")
    assert len(done.lines) == 2


@posix
def test_standard_error_closed() -> None:
    done = shell("2>&-", "def f(", "-n", "5", "--seed", "3", "--stats", "--threads", "1")
    assert done.code == 0
    assert done.out == real("def f(", "-n", "5", "--seed", "3", "--threads", "1").out


@posix
def test_standard_error_that_nobody_reads(generate: Run) -> None:
    arguments = ["def f(", "-n", "5", "--seed", "3", "--stats", "--threads", "1"]
    reading, writing = os.pipe()
    os.close(reading)
    with process(*arguments, stderr=writing) as running:
        os.close(writing)
        assert running.stdout is not None
        out = running.stdout.read().decode()
        running.wait()
    assert out == generate(*arguments).out


@posix
def test_standard_input_closed(generate: Run) -> None:
    done = shell("<&-", "def f(", "-n", "5", "--seed", "3", "--threads", "1")
    assert done.code == 0
    assert done.out == generate("def f(", "-n", "5", "--seed", "3").out


def test_an_output_that_knows_no_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", newline="\n"))
    output = Output()
    output.data("é\n")
    output.record({"text": "é"})
    assert written.getvalue() == b'?\n{"text": "\\u00e9"}\n'


# What can go wrong.


def build(path: Path, arch: str, *, tokens: bool = True, weights: bool = False) -> Path:
    """A tiny GGUF."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(64)
    writer.add_block_count(1)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "c", "d", "e"])
    if weights:
        writer.add_tensor("token_embd.weight", np.zeros((5, 32), np.float32))
    return _written(writer, path)


def rewritten(source: Path, path: Path, *, padding: int = 0, **changes: Any) -> Path:
    """A model's GGUF with `changes` to its tokenizer and `padding` more tokens."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        short = name.removeprefix("tokenizer.ggml.")
        value = changes[short](value) if short in changes else value
        if padding and short == "tokens":
            value = [*value, *(f"<padding {i}>" for i in range(padding))]
        if padding and short == "token_type":
            value = [*value, *[gguf.TokenType.UNUSED] * padding]
        if padding and name == "llama.vocab_size":
            value += padding
        sub_type = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, value, field.types[0], sub_type)
    for tensor in reader.tensors:
        rows = np.asarray(tensor.data)
        if tensor.name in ("token_embd.weight", "output.weight"):
            rows = np.concatenate([rows, np.repeat(rows[:1], padding, axis=0)])
        writer.add_tensor(tensor.name, rows, raw_dtype=tensor.tensor_type)
    return _written(writer, path)


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, drafter_path: Path) -> dict[str, str]:
    """Everything somebody may name by mistake."""
    folder = tmp_path_factory.mktemp("files")
    model = drafter_path.read_bytes()
    (folder / "empty.gguf").touch()
    (folder / "cut.gguf").write_bytes(model[: len(model) // 2])
    (folder / "header.gguf").write_bytes(model[:10_000])
    noise = np.random.default_rng(0).integers(0, 256, 50_000, np.uint8).tobytes()
    (folder / "noise.gguf").write_bytes(noise)
    (folder / "magic.gguf").write_bytes(b"GGUF\x03\0\0\0" + noise)
    build(folder / "vocabulary.gguf", "llama")
    build(folder / "embedding.gguf", "bert", weights=True)
    rewritten(
        drafter_path,
        folder / "other-token.gguf",
        tokens=lambda tokens: [*tokens[:1000], "changed!", *tokens[1001:]],
    )
    rewritten(drafter_path, folder / "other-bos.gguf", bos_token_id=lambda _bos: 1)
    rewritten(drafter_path, folder / "larger.gguf", padding=129)
    rewritten(drafter_path, folder / "padded.gguf", padding=128)
    names = {path.stem: str(path) for path in folder.iterdir()}
    return {**names, "missing": str(folder / "missing.gguf"), "folder": str(folder)}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-m", "{missing}"], 3, r"there is no model file .*/missing\.gguf; check the path"),
        (
            ["--draft", "{missing}"],
            3,
            r"there is no model file .*/missing\.gguf; check the path",
        ),
        (["--draft", "suffix,nothing"], 3, "there is no model 'nothing'; choose auto"),
        (["--draft", "none,suffix"], 2, "names none and something else; choose one"),
        (["--draft", "{padded},{other-bos}"], 6, "other-bos.gguf cannot draft .*BOS differs"),
        (["-m", "{folder}"], 5, "is a directory; name the .gguf file inside it"),
        (["-m", "{empty}"], 5, "empty.gguf is empty"),
        (["-m", "{cut}"], 5, "cut.gguf is truncated"),
        (["-m", "{header}"], 5, "header.gguf is truncated"),
        (["--draft", "{cut}"], 5, "cut.gguf is truncated"),
        (["-m", "{noise}"], 5, "noise.gguf is not a GGUF file"),
        (["-m", "{magic}"], 5, "magic.gguf is damaged"),
        (["-m", "{vocabulary}"], 5, "vocabulary.gguf holds a vocabulary only"),
        (["-m", "{embedding}"], 5, "embedding.gguf is an embedding model and cannot generate"),
        (["--draft", "{embedding}"], 5, "embedding.gguf is an embedding model"),
        (
            ["--draft", "{other-token}"],
            6,
            "vocabulary differs at token 1,000: target '.+', drafter 'changed!'",
        ),
        (["--draft", "{other-bos}"], 6, "BOS differs: target 0, drafter 1"),
        (["--draft", "{larger}"], 6, "differs by more than 128: target 4,096, drafter 4,225"),
        (["--top-p", "0"], 2, r"--top-p is 0\.0; it must be above 0"),
        (["--temperature", "-1"], 2, r"--temperature is -1\.0; it must be 0 or more"),
        (["--depth", "-1"], 2, "--depth is -1; it must be at least 0"),
        (["--depth", "two"], 2, "--depth is 'two'; it must be auto or a number$"),
        (["--depth", "1.5"], 2, r"--depth is '1\.5'; it must be auto or a number$"),
        (["--depth", "63"], 2, "--depth is 63; it must be at least 0 and at most 62$"),
        (["--seed", "two"], 2, r"'two' is not a valid integer.*localspec generate --help"),
        (["--max-tokens", "0"], 2, "--max-tokens is 0"),
        (["--rule", "guess"], 2, "--rule is 'guess'; choose from: .*coupled"),
        (["--stop", ""], 2, "a stop string is empty"),
        (["--seed", "-1"], 2, "--seed is -1"),
        (["--ctx", "1"], 2, "--ctx is 1; it must be at least 2"),
        (["--ctx", "2000000000"], 5, "context of 2000000000 tokens .*--ctx"),
        (["--ctx", "5"], 2, r"the prompt has \d+ tokens and the context holds 5; .* --ctx"),
        (["--no-such-option"], 2, "No such option"),
        (["one", "too", "many"], 2, "unexpected extra argument"),
    ],
)
def test_a_mistake_is_one_clear_line(
    files: dict[str, str], options: list[str], code: int, message: str
) -> None:
    done = real("def f(x, y):\n    return", *(option.format(**files) for option in options))
    assert_one_error(done, code, message)


def assert_one_error(done: Done, code: int, message: str) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    (line,) = done.lines
    assert line.startswith("localspec: error: ")
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        ([], b"", "no prompt; give one as an argument or on standard input"),
        ([""], b"\n", "no prompt"),
        ([], b"caf\xe9", "standard input is not UTF-8: byte 3 is 0xe9"),
        (["x"], b"\xff\xfea\x00", "standard input is not UTF-8: byte 0 is 0xff"),
        ([b"caf\xe9"], b"", "the prompt is not UTF-8: character 3 is the byte 0xe9"),
        (["x = 1\n" * 1000], b"", r"the prompt has \d{4} tokens and the context holds 2048"),
    ],
)
def test_prompts_that_cannot_be(arguments: list[str], stdin: bytes, message: str) -> None:
    assert_one_error(real(*arguments, stdin=stdin), 2, message)


def test_padding_of_the_vocabulary_is_no_mistake(generate: Run, files: dict[str, str]) -> None:
    options = ["--json", "-n", "40", "--seed", "3"]
    plain = generate(PROMPT, *options, "--draft", "none").record
    padded = generate(PROMPT, *options, "--draft", files["padded"], "--depth", "3").record
    assert padded["token_ids"] == plain["token_ids"]
    assert padded["stats"]["accepted"] > 0


def test_what_nobody_expected_is_one_line_too(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_args: object, **_options: object) -> None:
        raise RuntimeError("several\nlines")

    monkeypatch.setattr(import_module("localspec.cli.generate"), "load", load)
    done = generate(PROMPT)
    assert_one_error(done, LocalspecError.exit_code, "unexpected RuntimeError: several lines")
    assert "LOCALSPEC_DEBUG=1" in done.err


def test_debugging_shows_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["localspec", "generate", "hi", "-m", "missing.gguf"])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ModelNotFoundError):
        main()
    assert capsys.readouterr().out == ""


# Grammars and schemas.


def test_grammar_and_schema_come_from_files(generate: Run, tmp_path: Path) -> None:
    grammar = tmp_path / "words.gbnf"
    grammar.write_text('root ::= ("yes" | "no"){3} "é"', encoding="utf-8")
    record = generate(PROMPT, "--json", "--grammar", str(grammar)).record
    assert re.fullmatch("(yes|no){3}é", record["text"])
    assert record["recipe"]["grammar"] == grammar.read_text(encoding="utf-8")
    assert "llguidance" in record["recipe"]["versions"]
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": [1, 2]}')
    for value in (str(schema), schema.read_text()):
        assert generate(PROMPT, "--schema", value).out in ("1\n", "2\n")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--grammar", "nowhere.gbnf", "--grammar nowhere.gbnf: No such file"),
        ("--schema", "nowhere.json", "--schema nowhere.json: No such file"),
        ("--schema", '{"not": {}}', 'Unimplemented keys: ["not"]'),
        ("--schema", "{", "schema, line 1, column 2"),
    ],
)
def test_a_wrong_grammar_is_said_before_anything_is_loaded(
    generate: Run, option: str, value: str, message: str
) -> None:
    done = generate(PROMPT, "-m", "nowhere.gguf", option, value)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
