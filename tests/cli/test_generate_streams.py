"""`localspec generate` with standard streams that are closed, full or not read."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.command_line import Done, Run, lines_of
from fakes.generate_runs import (
    ENDLESS,
    posix,
    process,
    real,
    with_model,
)

from localspec.cli.output import Output, write_note, write_utf8_to_files
from localspec.cli.prompt import read_prompt

pytestmark = pytest.mark.usefixtures("bare_environment")


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
    assert len(lines_of(err)) == 1
    assert "seed" in err


def shell(redirection: str, *args: str) -> Done:
    """`localspec generate ARGS` with a redirection of the shell's."""
    command = [sys.executable, "-m", "localspec", "generate", *with_model(args)]
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


@posix
def test_texts_are_utf_8_where_the_locale_is_c(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("# caf\xe9", "-n", "5", "--seed", "3", "--threads", "1", "--stop", "\xe9")
    expected = real(*asked).out
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    done = shell("", *asked)
    assert (done.code, done.out) == (0, expected)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_prompt_from_powershell(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """With a byte order mark, and CR LF."""
    piped = io.BytesIO("\ufeffone\r\ntwo\r\n".encode(encoding))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
    assert read_prompt("three") == "one\ntwo\nthree"


def test_an_output_that_knows_no_unicode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", newline="\n"))
    output = Output()
    output.record({"text": "é"})
    assert capsys.readouterr().err == ""
    output.data("é\n")
    output.data("ü\n")
    assert written.getvalue() == b'{"text": "\\u00e9"}\n?\n?\n'
    (line,) = capsys.readouterr().err.splitlines()
    said = "letters that ascii does not have are written as ?; PYTHONIOENCODING=utf-8 keeps them"
    assert line == f"localspec: {said}"


def test_dots_between_facts_where_stderr_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, expected in (("ascii", "a * b \\xe9"), ("latin-1", "a · b é")):
        written = io.BytesIO()
        stream = io.TextIOWrapper(written, encoding, errors="backslashreplace", newline="\n")
        monkeypatch.setattr(sys, "stderr", stream)
        write_note("a · b é")
        assert written.getvalue().decode(encoding) == f"localspec: {expected}\n"


@pytest.mark.parametrize(("asked_for", "expected"), [("", "中\n".encode()), ("cp1252", b"?\r\n")])
def test_files_are_utf_8_on_windows_too(
    monkeypatch: pytest.MonkeyPatch, asked_for: str, expected: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "cp1252", newline="\r\n"))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("PYTHONIOENCODING", asked_for)
    write_utf8_to_files()
    Output().data("中\n")
    assert written.getvalue() == expected
