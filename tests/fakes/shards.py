"""Shards with random rows, without a model."""

from collections.abc import Sequence

import numpy as np

from localspec.distillation.reading import ReadText
from localspec.distillation.row_cache import Read
from localspec.distillation.shard import Shard
from localspec.distillation.texts import Text
from localspec.distillation.top_logits import top_logits

WIDTH = 6


def read(text: Text) -> ReadText:
    rng = np.random.default_rng(text.tokens[0])
    rows = {layer: rng.standard_normal((len(text.tokens), WIDTH)) for layer in (0, 3)}
    logits = rng.standard_normal((text.answer + 1, 90)).astype(np.float32)
    return ReadText(text, top_logits(logits), {k: v.astype(np.float32) for k, v in rows.items()})


def shard_of(texts: Sequence[Text]) -> Shard:
    return Shard.of([read(each) for each in texts])


def noted_reading() -> tuple[Read, list[int]]:
    """What reads texts for a row cache, and the first tokens of those that it was asked for."""
    asked: list[int] = []

    def reading(texts: Sequence[Text]) -> Shard:
        asked.append(texts[0].tokens[0])
        return shard_of(texts)

    return reading, asked
