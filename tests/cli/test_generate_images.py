"""`localspec generate --image`, and the file that reads images for a model (--mmproj)."""

import json
import shutil
from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.projectors import picture, sound, tiny_projector
from fakes.tiny import TURNS, tiny_model, write_tiny

from localspec import Session
from localspec.engine.engine import load

pytestmark = pytest.mark.usefixtures("bare_environment")
OPTIONS = ("-n", "4", "--seed", "1", "--ctx", "512", "--draft", "suffix")
WAV = sound(0.1)
REFUSED = {
    ("--image", "-"): "--image -: standard input is for the prompt; name a file",
    ("--image", "none.png"): "none.png cannot be read: No such file or directory; name a file in",
    ("--image", "."): "--image . cannot be read: Is a directory",
    ("--image", "text.png"): "text.png: a file was given that is no JPEG, PNG, GIF or BMP; convert",
    ("--image", "cat.webp"): "--image cat.webp: a WebP image was given; convert it to JPEG or PNG",
    ("--image", "empty.png"): "empty.png: a file was given that is no JPEG, PNG, GIF or BMP",
    ("--image", "a.wav"): "--image a.wav is a sound; name it with --audio",
    ("--audio", "cat.png"): "--audio cat.png is no WAV, MP3 or FLAC; convert it",
    ("--audio", "a.wav"): "--audio: mmproj-llama.gguf, which is for llama.gguf, reads images only",
    ("--image", "cat.png", "--raw"): "--image is for chats, and --raw continues a text",
    ("--image", "cat.png", "--mmproj", "none"): "--image is given beside --mmproj none",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its projector and an image."""
    shutil.copy(tiny_model("llama"), tmp_path)
    shutil.copy(tiny_projector("llama"), tmp_path)
    (tmp_path / "cat.png").write_bytes(picture())
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.png").touch()
    (tmp_path / "cat.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    (tmp_path / "a.wav").write_bytes(WAV)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_image_stands_before_the_question(generate: Run, folder: Path) -> None:
    record = generate(
        "-m", str(folder / "llama.gguf"), *OPTIONS, "hi", "--image", "cat.png", "--json"
    ).record
    # The message as a script writes it has the same tokens, so the same text.
    parts = [{"type": "image", "image": picture()}, {"type": "text", "text": "hi"}]
    with load(folder / "llama.gguf", "suffix", context=512, threads=1) as engine:
        written = engine.generate([{"role": "user", "content": parts}], max_tokens=4, seed=1)
    assert record["token_ids"] == written.token_ids
    prompt = record["recipe"]["prompt_token_ids"]
    rows = sum(token < 0 for token in prompt)
    assert rows == 16 and record["stats"]["prompt_tokens"] == len(prompt)
    twice = generate(
        *("-m", str(folder / "llama.gguf"), *OPTIONS, "hi", "--json"),
        *("--image", "cat.png", "--image", "cat.png", "--system", "short"),
    ).record["recipe"]["prompt_token_ids"]
    assert sum(token < 0 for token in twice) == 2 * rows


def test_its_rows_are_counted_and_its_record_is_not_audited(
    generate: Run, cli: Run, folder: Path
) -> None:
    done = generate(
        "-m", str(folder / "llama.gguf"), *OPTIONS, "hi", "--image", "cat.png", "--json", "--stats"
    )
    count = done.record["stats"]["prompt_tokens"]
    assert f"prompt {count} ({count} evaluated)" in done.err
    (folder / "record.json").write_text(json.dumps(done.record))
    audited = cli("audit", "record.json")
    assert audited.code == 2 and "the prompt of this text has images or sounds" in audited.err


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_what_is_refused_before_a_model_is_loaded(
    generate: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr("localspec.cli.generate.load", None)
    done = generate("-m", str(folder / "llama.gguf"), "hi", *options)
    assert (done.code, done.out) == (2, "")
    assert REFUSED[options] in done.err and len(done.lines) == 1


def test_a_model_without_a_projector_says_so(
    generate: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.cli.generate.load", None)
    (folder / "mmproj-llama.gguf").unlink()
    done = generate("-m", str(folder / "llama.gguf"), "hi", "--image", "cat.png")
    assert done.code == 2
    assert "--image: llama.gguf reads texts only: there is no mmproj file beside it;" in done.err


def test_the_file_may_be_named(generate: Run, folder: Path) -> None:
    model = str(write_tiny(folder / "turns.gguf", "llama", template=TURNS))
    options = ("-m", model, *OPTIONS, "hi", "--image", "cat.png")
    done = generate(*options, "--mmproj", "mmproj-llama.gguf", "--json")
    assert any(token < 0 for token in done.record["recipe"]["prompt_token_ids"])
    wrong = generate(*options, "--mmproj", "llama.gguf")
    assert wrong.code == 5 and "llama.gguf is no mmproj file (llama)" in wrong.err
    missing = generate(*options, "--mmproj", "none.gguf")
    assert missing.code == 3 and "there is no model file none.gguf" in missing.err


def test_a_text_that_is_continued_has_none(generate: Run, folder: Path) -> None:
    options = ("--mmproj", "mmproj-llama.gguf", "--image", "cat.png")
    done = generate("hi", "--draft", "none", *options)
    assert done.code == 2
    assert "images and sounds are for chats, and pycode-7m-q8_0.gguf continues a text" in done.err


def test_a_broken_file_beside_a_model_keeps_no_text_away(generate: Run, folder: Path) -> None:
    (folder / "mmproj-llama.gguf").write_bytes(b"broken")
    done = generate("-m", str(folder / "llama.gguf"), *OPTIONS, "hi")
    assert done.code == 0 and "images are not read: " in done.err
    assert (
        "images are not read"
        not in generate("-m", str(folder / "llama.gguf"), *OPTIONS, "hi", "--mmproj", "none").err
    )
    asked = generate("-m", str(folder / "llama.gguf"), *OPTIONS, "hi", "--image", "cat.png")
    assert asked.code == 2 and "mmproj-llama.gguf is not a GGUF file" in asked.err


def test_none_is_no_file(folder: Path) -> None:
    with load(folder / "llama.gguf", "none", context=512) as engine:
        assert engine.model.projector
        engine.switch(draft="suffix")
        assert engine.model.projector
    with load(folder / "llama.gguf", "none", context=512, mmproj="none") as engine:
        assert engine.model.projector is None
        with Session(engine, max_tokens=2) as session:
            assert session.send("hi").result()
