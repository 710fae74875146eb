"""A plain chat with a scripted model, over a pipe."""

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.scripted import Script

from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.plain import chat as plain


class Chatted(NamedTuple):
    """What a chat wrote, and what it keeps."""

    code: int
    out: str
    notes: str
    turns: Sequence[Turn]


Chat = Callable[..., Chatted]


def plain_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> Chat:
    """Runs a plain chat over a pipe with these bytes or lines in it."""

    def run(script: Script, typed: bytes | str, *, latest: bool = False, **options: Any) -> Chatted:
        data = typed if isinstance(typed, bytes) else typed.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        monkeypatch.setattr(plain, "EngineThread", lambda: EngineThread(script.load))
        private = options.get("private", False)
        archive = Archive(None if private else file, private=private)
        session = archive.latest() if latest else None
        begun = LaunchOptions(**{"model": "scripted", "session": session, **options})
        code = plain.run_plain(begun, archive)
        written = capsys.readouterr()
        with closing(Archive(file)) as kept:
            key = kept.latest()
            turns = kept.open(key).conversation.turns if key else []
        return Chatted(code, written.out, written.err, turns)

    return run


def contents(chatted: Chatted) -> list[str]:
    return [turn.content for turn in chatted.turns]


def prompt_of(script: Script) -> str:
    """What the last engine has read and written."""
    target = script.engines[-1].slots.own.target
    return b"".join(map(target.model.piece, target.cache)).decode()
