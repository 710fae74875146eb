"""What tests of training share: a home of their own, and short texts."""

from pathlib import Path

import pytest

from localspec.distillation import last_trial, texts
from localspec.training import budget


@pytest.fixture
def short_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(texts, "ANSWER", 24)
    monkeypatch.setattr(last_trial, "TOKENS", 8)
    monkeypatch.setattr(budget, "ROUNDS", 4)
