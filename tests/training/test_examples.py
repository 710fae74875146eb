"""Examples: which rows of the target a drafter learns from."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from localspec.distillation.shard import Shard  # noqa: E402
from localspec.distillation.texts import Text  # noqa: E402
from localspec.distillation.top_logits import TopLogits  # noqa: E402
from localspec.training import examples  # noqa: E402
from localspec.training.examples import batches, count_batches  # noqa: E402


def shard(*texts: Text) -> Shard:
    """Texts with the number of each row as its only token."""
    rows = sum(each.answer + 1 for each in texts)
    ids = np.arange(rows, dtype=np.int32)[:, None]
    return Shard(
        texts, TopLogits(ids, np.zeros((rows, 1), np.float16), np.zeros(rows, np.float16)), {}
    )


def learnt_from(made: Shard) -> list[list[int]]:
    """The rows that are wanted, by text."""
    again = Shard.from_bytes(bytes(made.to_bytes()))
    assert [*again.texts] == [*made.texts]
    found = [*batches(again, torch.device("cpu"), np.random.default_rng(0), 8)]
    assert len(found) == count_batches(made.texts, 8)
    return sorted(
        ids[wanted].flatten().tolist()
        for batch in found
        for ids, wanted in zip(batch.top.ids, batch.wanted, strict=True)
    )


def test_nothing_is_learnt_behind_the_end_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off, ended = Text((5, 6, 7, 8), 2), Text((5, 6, 7, 2), 2, ended=True)
    assert learnt_from(shard(cut_off, ended)) == [[0, 1, 2], [3, 4]]
    # Nor from a window with the end alone.
    monkeypatch.setattr(examples, "WINDOW", 3)
    assert learnt_from(shard(cut_off, ended)) == [[0, 1], [2], [3, 4]]
