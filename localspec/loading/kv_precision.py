"""KV check: does a drafter still draft the same with its keys and values in fewer bits?

They change its drafts, never the text, so nothing else would tell that they are why few stand.
"""

import json
from contextlib import suppress
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.gguf.reader import Header
from localspec.llama import library
from localspec.llama.model import Model
from localspec.loading.config import RuntimeConfig
from localspec.memory.estimate import QUANTISED_KV_TYPES
from localspec.sampling.distribution import Distribution
from localspec.speculation.draft import MAX_DEPTH, Draft
from localspec.utils.paths import cache_file, stat_signature, write_atomically

# The target accepts fewer drafts by what agreement lacks to 1, at most: total variation is a
# distance. By a third to two thirds of it where that was tried, so that here it is 3 to 7 in 100.
_LEAST = 0.9
_FULL = "f16"
_TOKENS = 256
# Real, and of no kind that a model would have to be made for.
_TEXT = "bench/prompts/prose.txt"


def choose_kv_type(
    model: Model, runtime: RuntimeConfig, header: Header, kv_type: str
) -> tuple[str, str | None]:
    """What to keep a drafter's keys and values as, and a line for the user if not as wished.

    kv_type: as wished. What was found out is remembered; else it takes two small contexts.
    """
    if kv_type not in QUANTISED_KV_TYPES:
        return kv_type, None
    try:
        agreed = _known_agreement(model, runtime, header, kv_type)
    except LocalspecError:
        return _FULL, f"the drafter's cache is kept as {_FULL}: this one cannot be {kv_type}"
    if agreed >= _LEAST:
        return kv_type, None
    only = f"as {kv_type} it would agree with itself only {100 * agreed:.0f} %"
    return _FULL, f"the drafter's cache is kept as {_FULL}: {only}"


def agreement(model: Model, runtime: RuntimeConfig, header: Header, kv_type: str) -> float:
    """How often a drafter would draft the same token from this cache and from a 16-bit one.

    The mean over the last tokens of a text of 1 - TV, at temperature 1: from 0 to 1.
    Raises LocalspecError where there can be no such cache, or no draft from it.
    """
    tokens = _tokens(model)
    full, other = (_logits(model, runtime, header, tokens, each) for each in (_FULL, kv_type))
    return float(np.mean([_overlap(*rows) for rows in zip(full, other, strict=True)]))


def _known_agreement(model: Model, runtime: RuntimeConfig, header: Header, kv_type: str) -> float:
    with suppress(OSError, ValueError, KeyError, TypeError):  # not measured yet, or not readable
        return float(json.loads(_file(model, runtime, kv_type).read_text())["agreement"])
    measured = agreement(model, runtime, header, kv_type)
    with suppress(OSError):  # then it is measured again next time
        write_atomically(_file(model, runtime, kv_type), json.dumps({"agreement": measured}))
    return measured


def _file(model: Model, runtime: RuntimeConfig, kv_type: str) -> Path:
    """By whatever changes the agreement."""
    what = [stat_signature(model.path), kv_type, runtime.flash, library.version()]
    return cache_file("kv", what)


def _tokens(model: Model) -> list[int]:
    text = (resources.files("localspec") / _TEXT).read_text(encoding="utf-8")
    tokens = model.tokenize(text)[: min(_TOKENS, model.n_ctx_train)]
    if len(tokens) < 2:
        raise LocalspecError(f"{model.path.name} cannot read a text; use another drafter")
    return tokens


def _logits(
    model: Model, runtime: RuntimeConfig, header: Header, tokens: list[int], kv_type: str
) -> NDArray[np.float32]:
    """(rows, n_vocab): those after each of the last tokens."""
    rows = min(MAX_DEPTH + 1, len(tokens) // 2)
    before, (pending, *draft) = tokens[:-rows], tokens[-rows:]
    with runtime.context_for(model, header, len(tokens), kv_type) as context:
        context.extend(before)
        return context.score(pending, Draft(draft)).logits.copy()


def _overlap(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """1 - TV of two rows of logits."""
    apart = Distribution(one).probabilities() - Distribution(other).probabilities()
    return float(1 - np.abs(apart).sum() / 2)
