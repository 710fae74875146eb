"""Preferences: what the chat remembers between runs."""

from pathlib import Path

import pytest

from localspec_tui.preferences import Preferences

pytestmark = pytest.mark.usefixtures("home")


def test_preferences_are_read_back() -> None:
    assert Preferences.read() == Preferences()
    Preferences().remember(theme="nord").remember(model="qwen3-8b")
    assert Preferences.read() == Preferences("nord", "qwen3-8b")


def test_unchanged_preferences_are_not_written(home: Path) -> None:
    Preferences().remember(theme=None)
    assert not (home / "chat.json").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"theme": 3, "model": ["x"]}', "\xff"])
def test_an_unreadable_file_means_defaults(home: Path, text: str) -> None:
    (home / "chat.json").write_bytes(text.encode("latin-1"))
    assert Preferences.read() == Preferences()
