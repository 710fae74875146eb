"""KV precision: whether a drafter drafts as well with a quantised KV cache.

Quantised keys and values change the drafts but not the text. Without this check, the only sign
would be a lower acceptance rate.
"""

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.gguf.kv_types import is_quantised
from localspec.gguf.lora import signature
from localspec.gguf.reader import Header
from localspec.llama import library
from localspec.llama.model import Model
from localspec.llama.rope import UNSCALED
from localspec.loading.config import RuntimeConfig
from localspec.sampling.distribution import Distribution
from localspec.speculation.draft import MAX_DEPTH, Draft
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store

# The acceptance rate drops by at most 1 - agreement, as total variation is a distance. Measured
# drops were a third to two thirds of that: with this limit, 3 to 7 of 100 tokens.
_LEAST_AGREEMENT = 0.9
_FULL_PRECISION = "f16"
_TOKENS = 256
# A natural text that needs no special kind of model.
_TEXT = "bench/prompts/prose.txt"


def choose_kv_type(
    model: Model, runtime: RuntimeConfig, header: Header, kv_type: str
) -> tuple[str, str | None]:
    """Choose the type of a drafter's KV cache; return it, and a note if it is not `kv_type`.

    kv_type: the requested type. The measured agreement is stored; measuring it needs two small
    contexts.
    """
    if not is_quantised(kv_type):
        return kv_type, None
    try:
        agreed = _known_agreement(model, runtime, header, kv_type)
    except LocalspecError:
        return (
            _FULL_PRECISION,
            f"the drafter's cache is kept as {_FULL_PRECISION}: this one cannot be {kv_type}",
        )
    if agreed >= _LEAST_AGREEMENT:
        return kv_type, None
    only = f"as {kv_type} it would agree with itself only {agreed:.0%}"
    return _FULL_PRECISION, f"the drafter's cache is kept as {_FULL_PRECISION}: {only}"


def agreement(model: Model, runtime: RuntimeConfig, header: Header, kv_type: str) -> float:
    """How often a drafter would draft the same token with this cache as with a 16-bit cache.

    It is the mean of 1 - TV over the last tokens of a text, at temperature 1: from 0 to 1. Raises
    LocalspecError if the model cannot have such a cache, or cannot draft with it.
    """
    tokens = _tokens(model)
    full, other = (
        _logits(model, runtime, header, tokens, each) for each in (_FULL_PRECISION, kv_type)
    )
    return float(np.mean([_overlap(*rows) for rows in zip(full, other, strict=True)]))


def _known_agreement(model: Model, runtime: RuntimeConfig, header: Header, kv_type: str) -> float:
    file = _file(model, runtime, kv_type)
    if (known := stored(file, _stored_agreement)) is not None:
        return known
    measured = agreement(model, runtime, header, kv_type)
    try_to_store(file, {"agreement": measured})
    return measured


def _stored_agreement(record: Any) -> float:
    known = float(record["agreement"])
    if not 0 <= known <= 1 + 1e-6:
        raise ValueError("no share")
    return known


def _file(model: Model, runtime: RuntimeConfig, kv_type: str) -> Path:
    """The file of an agreement; its name depends on everything that changes the agreement."""
    what = [stat_signature(model.path), kv_type, runtime.flash, library.version()]
    return cache_file("kv", [*what, *signature(model.loras)])


def _tokens(model: Model) -> list[int]:
    text = (resources.files("localspec") / _TEXT).read_text(encoding="utf-8")
    tokens = model.tokenize(text)[: min(_TOKENS, model.n_ctx_train)]
    if len(tokens) < 2:
        raise LocalspecError(f"{model.path.name} cannot read a text; use another drafter")
    return tokens


def _logits(
    model: Model, runtime: RuntimeConfig, header: Header, tokens: list[int], kv_type: str
) -> NDArray[np.float32]:
    """Return the (rows, n_vocab) logits after each of the last tokens."""
    rows = min(MAX_DEPTH + 1, len(tokens) // 2)
    before, (pending, *draft) = tokens[:-rows], tokens[-rows:]
    # The tokens are few enough for any drafter as it is.
    params = replace(runtime.context_params(len(tokens), kv_type), rope=UNSCALED)
    with runtime.context_for(model, header, params, "drafter_kv_type") as context:
        context.extend(before)
        return context.score(pending, Draft(draft)).logits.copy()


def _overlap(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return 1 - TV of the distributions of two rows of logits."""
    apart = Distribution(one).probabilities() - Distribution(other).probabilities()
    return float(1 - np.abs(apart).sum() / 2)
