"""Mistakes in the use of `localspec generate`: each is one clear line."""

import re
import sys
from importlib import import_module
from pathlib import Path

import gguf
import numpy as np
import pytest
from fakes.command_line import Done, Run
from fakes.generate_runs import (
    PROMPT,
    real,
)
from fakes.rewritten import rewritten

from localspec.cli.main import main
from localspec.errors import LocalspecError, ModelNotFoundError

pytestmark = pytest.mark.usefixtures("bare_environment")


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
        (
            ["--draft", "{padded},pard=5:{other-bos}"],
            6,
            "other-bos.gguf cannot draft .*BOS differs",
        ),
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
            ["--draft", "pard=5:{other-token}"],
            6,
            "vocabulary differs at token 1,000: target '.+', drafter 'changed!'",
        ),
        (["--draft", "pard=5:{other-bos}"], 6, "BOS differs: target 0, drafter 1"),
        (
            ["--draft", "pard=5:{larger}"],
            6,
            "differs by more than 128: target 4,096, drafter 4,225",
        ),
        (["--top-p", "0"], 2, r"--top-p is 0\.0; it must be above 0"),
        (["--temperature", "-1"], 2, r"--temperature is -1\.0; it must be 0 or more"),
        (["--depth", "-1"], 2, "--depth is -1; it must be at least 0"),
        (["--depth", "two"], 2, "--depth is 'two'; it must be auto or a number$"),
        (["--depth", "1.5"], 2, r"--depth is '1\.5'; it must be auto or a number$"),
        (["--depth", "63"], 2, "--depth is 63; it must be at least 0 and at most 62$"),
        (["--seed", "two"], 2, r"'two' is not a valid integer.*localspec generate --help"),
        (["-n", "0"], 2, "--max-tokens is 0; it must be 1 or more, or -1 for the rest of the con"),
        (["-n", "-2"], 2, "--max-tokens is -2; it must be 1 or more, or -1"),
        (["-n", "all"], 2, "'-n' / '--max-tokens': 'all' is not a valid integer"),
        (["--rule", "guess"], 2, "--rule is 'guess'; choose from: .*coupled"),
        (["--stop", ""], 2, "a stop string is empty"),
        (["--seed", "-1"], 2, "--seed is -1"),
        (["--ctx", "1"], 2, "--ctx is 1; it must be at least 2"),
        (["--draft-kv-type", "f16/x"], 2, "--draft-kv-type is 'f16/x'; choose one of"),
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
        ([], b"caf\xe9", "standard input: it is not UTF-8, byte 3 is 0xe9; save it as UTF-8 first"),
        (["x"], b"%PDF-1.7\n\xe2", "standard input is a PDF; give its text: pdftotext FILE - | "),
        (["x"], b"\xff\xfea", "standard input: it is not UTF-16, byte 2 is 0x61"),
        ([b"caf\xe9"], b"", "the prompt: it is not UTF-8, byte 3 is 0xe9; retype it"),
        (["x", "--stop", b"caf\xe9"], b"", "--stop: it is not UTF-8, byte 3 is 0xe9; retype it"),
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
