"""Noted passes: the rows of every pass that contexts compute."""

from pathlib import Path
from typing import NamedTuple

import pytest

from localspec.llama.context import Context


class NotedPass(NamedTuple):
    """path: the model's file. rows: of the pass, padding included. wanted: those with logits."""

    path: Path
    rows: int
    wanted: int


def note_passes(monkeypatch: pytest.MonkeyPatch) -> list[NotedPass]:
    """The passes from here on, without the trials of new caches."""
    compute, seen = Context._run_batch, list[NotedPass]()

    def noted(self: Context) -> int:
        if self.sequences:
            batch = self._batch.struct
            wanted = sum(bool(batch.logits[i]) for i in range(batch.n_tokens))
            seen.append(NotedPass(self.model.path, batch.n_tokens, wanted))
        return compute(self)

    monkeypatch.setattr(Context, "_run_batch", noted)
    return seen
