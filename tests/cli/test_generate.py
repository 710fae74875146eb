"""`localspec generate` on the bundled pair: its text, its lines on stderr, its constraints."""

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from fakes.ahead import give_each_model_a_device
from fakes.busy_machine import busy_policy
from fakes.command_line import Run
from fakes.generate_runs import (
    BOTH,
    CUT_OFF,
    DRAFTER,
    PROMPT,
    posix,
    process,
    real,
    rest_of,
    streamed,
    with_model,
)
from fakes.terminal import on_terminal

from localspec.control.quick_target import too_quick_text
from localspec.engine.engine import Engine
from localspec.llama import wait_policy
from localspec.llama.wait_policy import WaitPolicy
from localspec.models.registry import bundled

pytestmark = pytest.mark.usefixtures("bare_environment")


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
        (b"\xef\xbb\xbfdef f(:\r\n    x\r\n", None, "def f(:\n    x"),
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


def test_what_stands_before_the_prompt_is_said(generate: Run) -> None:
    done = generate("(", "-n", "2", stdin="def π\r\n".encode())
    assert "localspec: 6 bytes of standard input are put before the prompt" in done.lines
    for stdin, argument in ((b"\n", ["def f("]), (b"def f(", [])):
        assert "standard input" not in generate(*argument, "-n", "2", stdin=stdin).err


@pytest.mark.slow
@posix
def test_a_pipe_that_stays_open_is_said() -> None:
    for argument, way_out in (([], ""), (["def f("], "; `< /dev/null` if nothing comes")):
        with process(*argument, "-n", "2", stdin=subprocess.PIPE) as running:
            assert running.stderr
            line = running.stderr.readline().decode()
            assert line == f"localspec: waiting for standard input to end{way_out}\n"
            assert rest_of(running, b"def f(").code == 0


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
    speed = stats["prompt_evaluated"] / seconds["prompt"]
    assert (
        f"evaluated) at {speed:.1f} tok/s, first token after {seconds['first_token']:.2f} s" in line
    )
    assert f"load {seconds['load']:.2f} s, prompt {seconds['prompt']:.2f} s" in line
    assert f"generate {seconds['generate']:.2f} s = draft {seconds['draft']:.2f}" in line


def test_stats_without_a_drafter(generate: Run) -> None:
    done = generate(PROMPT, "--stats", "-n", "5", "--draft", "none")
    assert "accept -" in done.lines[-1]


def test_stats_say_why_nothing_was_drawn_ahead(
    generate: Run, monkeypatch: pytest.MonkeyPatch, drafter_path: Path
) -> None:
    arguments = PROMPT, "--stats", "-n", "24", "--seed", "3", "--draft", str(drafter_path)
    for has_own_device in (True, False):
        with monkeypatch.context() as patch:
            if has_own_device:
                give_each_model_a_device(patch)
            for rule in ("coupled", "token"):
                line = generate(*arguments, "--depth", "3", "--rule", rule).lines[-1]
                why = "· nothing drawn ahead: under rule token the target draws the token after"
                assert (why in line) == (has_own_device and rule == "token")
                assert ("used ·" in line) == (has_own_device and rule == "coupled")


@pytest.mark.slow
def test_short_waits_change_no_text_and_are_said(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = PROMPT, "--stats", "-n", "60", "--seed", "3", "--threads", "2", "--depth", "3"
    policy = WaitPolicy(None)
    monkeypatch.setattr(wait_policy, "of_process", lambda: policy)
    expected = generate(*arguments)
    assert "short waits" not in expected.err
    with busy_policy() as busy:
        monkeypatch.setattr(wait_policy, "of_process", lambda: busy)
        done = generate(*arguments)
    assert done.out == expected.out
    assert busy.short_passes > 10
    said = f"· {busy.short_passes} passes so far with short waits beside busy programs ·"
    assert said in done.lines[-1]


@pytest.mark.parametrize(
    ("seconds", "ratio", "said"),
    [
        (0.0005, 0.9, "target 0.5 ms/token: too quick for drafts to pay"),
        (0.0005, 1.4, ""),
        (0.02, 0.9, ""),
        (0, 0, ""),
    ],
)
def test_a_target_that_is_too_quick_is_named(seconds: float, ratio: float, said: str) -> None:
    assert too_quick_text(seconds, ratio) == said


def test_stats_name_a_target_that_is_too_quick(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "plain_seconds", 1e-6)
    done = generate(PROMPT, "--stats", "-n", "5")
    assert done.lines[-1].endswith("ms/token: too quick for drafts to pay")


def test_stats_say_whether_drafts_paid(generate: Run) -> None:
    done = generate(PROMPT, "--stats", "--json", "-n", "200", "--seed", "3", "--ignore-eos")
    stats = done.record["stats"]
    gain, plain = stats["x_plain"], stats["plain_tokens_per_second"]
    assert gain and plain and stats["steps"] >= 8
    said = f"· {gain:.2f} x plain ({plain:.1f} tok/s by the measured time of a plain step) ·"
    assert said in done.lines[-1]
    short = generate(PROMPT, "--stats", "--json", "-n", "5")
    assert short.record["stats"]["x_plain"] is None and "x plain" not in short.err
    alone = generate(PROMPT, "--stats", "--json", "-n", "20", "--draft", "none", "--ignore-eos")
    assert alone.record["stats"]["x_plain"] is None and "x plain" not in alone.err


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


@posix
def test_on_a_terminal_decisions_follow_the_text(generate: Run) -> None:
    options = (PROMPT, "-n", "20", "--seed", "3", "--threads", "1")
    text = generate(*options).out.strip()
    code, shown = on_terminal("generate", *with_model(options), "--explain")
    assert code == 0
    before, whole, after = shown.replace("\r\n", "\n").partition(text)
    assert whole and "tok/s" not in before
    *decisions, cut = after.strip().splitlines()
    assert len(decisions) > 5 and cut.startswith(CUT_OFF)
    for line in decisions:
        assert PLAN.fullmatch(line), line


def test_decisions_follow_the_text_where_both_go_into_one_file(generate: Run) -> None:
    options = (PROMPT, "-n", "20", "--seed", "3", "--threads", "1")
    text = generate(*options).out.strip()
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "generate", *with_model(options), "--explain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=True,
    )
    before, whole, after = done.stdout.partition(text)
    assert whole and "tok/s" not in before and after.count("tok/s") > 5


def test_a_context_beyond_the_model_is_its_own_and_said(generate: Run) -> None:
    """It is not allocated either, which would take minutes."""
    own = generate(PROMPT, "-n", "5", "--seed", "3", "--ctx", "2048")
    # A hint only where scaling its rotations would do.
    for size, hint in (
        ("2500", "; --rope-scaling yarn --rope-scale 2 reads more, less well"),
        ("2000000000", ""),
    ):
        done = generate(PROMPT, "-n", "5", "--seed", "3", "--ctx", size)
        assert done.out == own.out
        said = f"localspec: context 2048: {size} is more than pycode-7m-q8_0.gguf was made for"
        assert said + hint in done.lines


def test_where_nothing_is_decided_nothing_is_explained(generate: Run) -> None:
    explained = PROMPT, "-n", "10", "--explain"
    _, useless = generate(*explained, "--draft", "none").lines
    assert useless == "localspec: --explain has no effect: nothing drafts"
    _, why = generate(*explained, "--depth", "3").lines
    assert "--explain has nothing to say at a fixed depth" in why


def test_with_no_model_named_the_bundled_pair_answers(cli: Run) -> None:
    done = cli("generate", "How do I list files by size?", "-n", "60", "--temperature", "0")
    assert done.code == 0 and "```sh" in done.out
    assert (
        "no model named, so the bundled terminal-9m-q8_0 · draft: suffix or terminal-" in done.err
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], f"localspec: pycode-7m-q8_0 · draft: {BOTH}, as deep as pays · "),
        (["--depth", "3"], f"pycode-7m-q8_0 · draft: {BOTH}, depth 3 · "),
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
        done = generate(PROMPT, "--schema", value)
        assert done.out in ("1\n", "2\n") and "cut off" not in done.err


def test_a_text_that_is_cut_off_before_its_form_is_whole(generate: Run, tmp_path: Path) -> None:
    grammar = tmp_path / "long.gbnf"
    grammar.write_text("root ::= [a-z]{50}")
    schema, enum = '{"type": "string", "minLength": 50}', '{"const": "eighteen letters or so"}'
    before = "perhaps before the text satisfies the grammar; -n allows more"
    lacks = "its JSON is not complete"
    bound = "the schema allows strings without maxLength; bound them, or raise -n"
    for form, value, said in (
        ("grammar", str(grammar), f", {before}"),
        ("schema", schema, f"; {lacks}: {bound}"),
        ("schema", enum, f"; {lacks}; raise -n"),
    ):
        done = generate(PROMPT, f"--{form}", value, "-n", "2")
        assert done.code == 0
        assert f"cut off after 2 tokens{said}\n" in done.err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "--grammar",
            "nowhere.gbnf",
            "--grammar nowhere.gbnf: No such file or directory; name",
        ),
        (
            "--schema",
            "nowhere.json",
            "--schema nowhere.json: No such file or directory; name a file",
        ),
        ("--schema", '{"not": {}}', "schema: not is {}, and no text can be held to it"),
        ("--schema", "{", "schema, line 1, column 2"),
    ],
)
def test_a_wrong_grammar_is_said_before_anything_is_loaded(
    generate: Run, option: str, value: str, message: str
) -> None:
    done = generate(PROMPT, "-m", "nowhere.gguf", option, value)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--grammar", 'root ::= "a', "grammar, line 1, column 12: unexpected end of input"),
        ("--grammar", "%llguidance\nstart: x", "grammar"),
        ("--schema", '{"type": "strin"}', "schema: Invalid type: strin"),
        ("--schema", "nothing", "schema, line 1, column 1: Expecting value"),
    ],
)
def test_a_wrong_file_of_a_grammar_is_named(
    generate: Run, tmp_path: Path, option: str, text: str, message: str
) -> None:
    file = tmp_path / "wrong"
    file.write_text(text)
    done = generate(PROMPT, "-m", "nowhere.gguf", option, str(file))
    assert (done.code, done.out) == (2, "")
    (line,) = done.lines
    assert line.startswith(f"localspec: error: {file}: {message}")


def test_minus_one_is_the_rest_of_the_context(generate: Run) -> None:
    done = generate(PROMPT, "-n", "-1", "--ctx", "64", "--ignore-eos", "--seed", "1", "--json")
    assert done.code == 0, done.err
    assert done.record["stop_reason"] in ("context", "length")
    assert len(done.record["token_ids"]) > 32
    assert "of 64 tokens is full" in done.err


def test_an_option_without_effect_is_said_and_is_no_error(generate: Run) -> None:
    done = generate(
        PROMPT, "-n", "2", "--cpu-moe", "2", "--draft", "none", "--draft-device", "none"
    )
    assert done.code == 0
    said = [line for line in done.lines if "no effect" in line]
    assert said == [
        "localspec: --cpu-moe 2 has no effect: pycode-7m-q8_0.gguf has no experts",
        "localspec: --draft-device has no effect: nothing drafts",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--draft", "none"], []),
        (["--draft", "none", "--depth", "0", "--rule", "coupled"], []),
        (["--draft", "none", "--depth", "4"], ["--depth has no effect: nothing drafts"]),
        (
            ["--draft", "none", "--depth", "4", "--rule", "block"],
            ["--depth and --rule have no effect: nothing drafts"],
        ),
        (["--draft", "suffix", "--depth", "4", "--rule", "block"], []),
        (["--logprobs", "2", "--draft", "suffix"], ["--logprobs has no effect without --json"]),
        (["--logprobs", "2", "--draft", "suffix", "--json"], []),
        (
            ["--remember", "--draft", "none"],
            [
                "nothing is copied from earlier texts: only suffix copies from them; "
                "add it to --draft; this text is not stored, as nothing drafts"
            ],
        ),
    ],
    ids=str,
)
def test_an_option_without_effect_is_named(
    generate: Run, options: list[str], said: list[str]
) -> None:
    _, *lines = generate(PROMPT, "-n", "2", "--ignore-eos", *options).lines
    assert [line for line in lines if "cut off" not in line] == [
        f"localspec: {each}" for each in said
    ]


def test_the_line_names_no_depth_that_a_drafter_never_reaches(generate: Run) -> None:
    head = Path(__file__).parents[1] / "trained" / "medusa-terminal-9m-q8_0.gguf"
    options = "-n", "2", "--draft", str(head), "--depth"
    target = "--model", str(bundled().target)
    assert "depth 5, the most for this drafter" in generate("ls", *target, *options, "30").lines[0]
    assert "depth 4 ·" in generate("ls", *target, *options, "4").lines[0]
