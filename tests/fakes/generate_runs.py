"""Runs of `localspec generate`: in processes of their own, and what their JSON must hold."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any

import jsonschema
import pytest
from fakes.command_line import Done

PROMPT = "class Reader:\n    def read(self"
# Greedy, it repeats itself and never ends: a text that only -n or Ctrl-C ends.
ENDLESS = ("import os\n\n\nclass Path(", "--temperature", "0", "-n", "1500", "--threads", "1")
DRAFTER = "pycode-4m-q4_0"
BOTH = f"suffix or {DRAFTER}"
# How the line begins that tells of a text with as many tokens as it may have.
CUT_OFF = "localspec: cut off after"
CODES = re.compile(r"\x1b\[[0-9;]*m")
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals, pipes and terminals")

SCHEMA = json.loads((resources.files("localspec.cli") / "generate.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TOKEN_VALIDATOR = jsonschema.Draft202012Validator(
    {"$ref": "#/$defs/token", "$defs": SCHEMA["$defs"]}
)


class Generated(Done):
    """How a run of `localspec generate` ended."""

    @property
    def lines(self) -> list[str]:
        """The lines on standard error, but for the one that a text was cut off by -n."""
        return [line for line in super().lines if not line.startswith(CUT_OFF)]

    @property
    def record(self) -> dict[str, Any]:
        """The one object on standard output, which is valid."""
        return valid(super().record)


def with_model(args: Sequence[str | bytes]) -> list[str | bytes]:
    """The arguments, with pycode where they name no model."""
    return [*args] if "-m" in args else ["-m", "pycode", *args]


@contextmanager
def process(*args: str | bytes, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m localspec generate ARGS`, with pycode; standard output and error are pipes."""
    command = [sys.executable, "-m", "localspec", "generate", *with_model(args)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **{**streams, **options}) as running:
        try:
            yield running
        finally:
            running.kill()


def real(*args: str | bytes, stdin: bytes = b"") -> Generated:
    """One run in a process of its own, to the end."""
    with process(*args, stdin=subprocess.PIPE) as running:
        return rest_of(running, stdin)


def rest_of(running: subprocess.Popen[bytes], stdin: bytes | None = None) -> Generated:
    """What a process writes until it ends."""
    out, err = running.communicate(stdin)
    return Generated(running.returncode, out.decode(), err.decode())


def valid(record: dict[str, Any]) -> dict[str, Any]:
    """The record, which follows the schema and does not contradict itself."""
    VALIDATOR.validate(record)
    stats, speculation = record["stats"], record["speculation"]
    count, origins = len(record["token_ids"]), record["origins"]
    drafted = [origin for origin in origins if origin in speculation["drafters"]]
    assert len(origins) == count
    assert stats["inserted_tokens"] == origins.count("inserted")
    count -= origins.count("inserted")
    assert stats["generated_tokens"] == count
    assert {*origins} <= {*speculation["drafters"], "corrected", "bonus", "plain", "inserted"}
    assert len(drafted) == stats["accepted"] <= stats["drafted"]
    by_position = stats["accepted_per_position"]
    assert sum(by_position) == stats["accepted"]
    assert by_position == sorted(by_position, reverse=True)
    # A step adds one token of the target's own; the last one of a part may have been cut before it.
    assert 0 <= stats["steps"] - (count - len(drafted)) <= 1 + ("inserted" in origins)
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
