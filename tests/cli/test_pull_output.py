"""What `pull` shows of files that wait."""

import io
from pathlib import Path

import pytest
from huggingface_hub import constants
from rich.console import Console

from localspec.cli.pull_output import ProgressBars, ProgressLines
from localspec.gguf.files import ModelFiles
from localspec.hub.download import FileProgress
from localspec.hub.listing import RemoteFile, RemoteModel
from localspec.hub.reference import Repository
from localspec.hub.transfer import TransferState

MODEL = RemoteModel(
    Repository("zoo/a"),
    "1" * 40,
    ModelFiles(("a.gguf",)),
    (RemoteFile("a.gguf", 10, "a" * 64, ""),),
    frozenset(),
)
HAPPENED: list[tuple[TransferState, int, str]] = [
    ("asking", 0, ""),
    ("silent", 0, "nothing comes"),
    ("waiting", 0, "no answer; asked again in 1 s"),
    ("asking", 0, ""),
    ("silent", 0, ""),
    ("waiting", 0, "no answer; asked again in 2 s"),
    ("waiting", 0, "no answer; asked again in 2 s"),
    ("fetching", 5, ""),
]
REASONS = ["nothing comes", "no answer; asked again in 1 s", "no answer; asked again in 2 s"]


def progress(state: TransferState, done: int, reason: str) -> FileProgress:
    return FileProgress("a.gguf", "zoo/a", done, 10, state, reason)


def test_lines_say_each_reason_once() -> None:
    written: list[str] = []
    show = ProgressLines(written.append)
    for each in HAPPENED:
        show(progress(*each))
    assert written == [f"a.gguf: {each}" for each in [*REASONS, "fetching 10 bytes"]]


def test_bars_have_the_reasons_above_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    screen = io.StringIO()
    console = Console(file=screen, width=100, force_terminal=False, highlight=False)
    with ProgressBars([MODEL], console) as bars:
        for each in HAPPENED:
            bars(progress(*each))
    lines = screen.getvalue().splitlines()
    assert [line for line in lines if line.startswith("a.gguf: ")] == [
        f"a.gguf: {each}" for each in REASONS
    ]
