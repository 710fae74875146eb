"""Command lines to type: quoted for the shells of each system."""

import sys

import pytest

from localspec.utils.shell import command_line


@pytest.mark.parametrize(
    ("platform", "line"),
    [
        ("linux", "localspec chat -m 'C:\\my models\\a.gguf' 'C:\\b.gguf'"),
        ("win32", 'localspec chat -m "C:\\my models\\a.gguf" C:\\b.gguf'),
    ],
)
def test_quotes(monkeypatch: pytest.MonkeyPatch, platform: str, line: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    words = ["localspec", "chat", "-m", "C:\\my models\\a.gguf", "C:\\b.gguf"]
    assert command_line(words) == line
