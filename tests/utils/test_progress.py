"""Loading reports its progress, and ends when the watcher raises an exception."""

import sys
from pathlib import Path

import pytest
from fakes.pycode import PYCODE, load
from fakes.tiny import write_tiny

from localspec.llama.smoke_test import run_smoke_test
from localspec.loading import load_check
from localspec.loading.load_check import loadable_header
from localspec.utils.progress import report_progress, watched

PROMPT = "def f("


class EnoughError(Exception):
    """What a watcher raises."""


def enough_at(words: str, share: float | None = None) -> list[str]:
    """Load the bundled pair up to an action and a share of it; return all actions until then."""
    seen: list[str] = []

    def watcher(doing: str, done: float | None) -> None:
        seen.append(doing)
        if words in doing and (share is None or (done or 0) >= share):
            raise EnoughError(doing)

    with watched(watcher), pytest.raises(EnoughError, match=words):
        load(threads=1)
    return seen


def test_both_models_are_reported_from_beginning_to_end() -> None:
    pair, reports = PYCODE, list[tuple[str, float | None]]()
    with watched(lambda doing, share: reports.append((doing, share))), load(threads=1) as engine:
        engine.generate(PROMPT, max_tokens=2)
    for path in (pair.target, pair.drafter):
        shares = [share for doing, share in reports if doing == f"loading {path.name}"]
        assert shares == sorted(shares, key=float) and shares[-1] == 1.0  # type: ignore[arg-type]
        assert len(shares) > 10 and shares[0] is not None and shares[0] < 0.1


def test_nothing_is_reported_without_a_watcher() -> None:
    reports: list[str] = []
    with watched(lambda doing, _share: reports.append(doing)), watched(None):
        report_progress("this")
    report_progress("that")
    assert not reports


def test_a_watcher_ends_it_at_any_share() -> None:
    pair = PYCODE
    for words, share in (
        (pair.target.name, 0.0),
        (pair.target.name, 0.5),
        (pair.target.name, 1.0),
        (pair.drafter.name, 0.5),
        ("measuring", None),
    ):
        assert words in enough_at(words, share)[-1]
    with load(threads=1) as engine:
        assert engine.generate(PROMPT, max_tokens=2).token_ids


def test_ctrl_c_ends_it_at_once() -> None:
    def watcher(_doing: str, share: float | None) -> None:
        if share and share > 0.3:
            raise KeyboardInterrupt

    with watched(watcher), pytest.raises(KeyboardInterrupt):
        load(threads=1)


def test_a_switch_that_is_ended_leaves_what_was_there(tmp_path: Path) -> None:
    with load(draft="none", threads=1, flash_attention=True) as engine:
        before = engine.generate(PROMPT, max_tokens=8, seed=1).token_ids

        def watcher(doing: str, _share: float | None) -> None:
            raise EnoughError(doing)

        with watched(watcher), pytest.raises(EnoughError):
            engine.switch(model=PYCODE.drafter)
        assert engine.model.path == PYCODE.target
        assert engine.generate(PROMPT, max_tokens=8, seed=1).token_ids == before


@pytest.mark.skipif(sys.platform == "win32", reason="the child is a shell script")
def test_the_child_that_tries_a_file_out_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    ended = tmp_path / "ended"
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\nsleep 60\ntouch {ended}\n")
    child.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(child))
    monkeypatch.setattr(load_check, "run_smoke_test", run_smoke_test)  # no fork
    looks: list[str] = []

    def watcher(doing: str, _share: float | None) -> None:
        looks.append(doing)
        if len(looks) == 3:
            raise EnoughError

    with watched(watcher), pytest.raises(EnoughError):
        loadable_header(write_tiny(tmp_path / "tiny.gguf", "llama"))
    assert looks == ["trying out tiny.gguf"] * 3
    assert not ended.exists()
