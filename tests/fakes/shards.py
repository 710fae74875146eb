"""Shards with random rows, without a model."""

from collections.abc import Sequence

import numpy as np

from localspec.distillation.reading import ReadText
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
