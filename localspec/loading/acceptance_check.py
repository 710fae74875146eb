"""Acceptance check: whether a head was made for this very target.

A head fits by its shape although it belongs to another checkpoint of the same family; then hardly
any of its tokens is accepted. So at first use the target writes a few dozen tokens, with the head's
drafts; the share that is accepted is remembered.
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.control.fixed_depth import FixedDepth
from localspec.gguf.lora import signature
from localspec.llama import library
from localspec.llama.sequence import KVSequence
from localspec.loading.drafter_set import SequenceDrafter
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.rules import RULES
from localspec.stats import Stats
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.progress import report_progress
from localspec.utils.stored_json import stored, try_to_store

# A head with a lower share of accepted tokens was made for another model.
LEAST_RATE = 0.1
_PROMPTS = (
    "Here is a short story about a river, and about the people who live beside it.\n\n",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
)
# Tokens of the target after each prompt; fewer on a machine that needs longer than the seconds.
_TOKENS, _FEWEST, _SECONDS = 32, 8, 3.0
# One token is drafted at a time: the first is what every further one depends on.
_DEPTH, _TEMPERATURE, _SEED = 1, 0.7, 1
_RULE = RULES["coupled"]


def acceptance_rate(target: KVSequence, member: SequenceDrafter) -> float | None:
    """The share of a drafter's tokens that this target accepts, measured or remembered.

    None if it drafted nothing, or the context is too small to try it: that tells nothing, and the
    next load tries again.
    The target's text stays as it is; the drafter's cache is another text's afterwards.
    """
    files = [target.model.path, *([member.measured.path] if member.measured else [])]
    contexts = [target.context, *([member.sequence.context] if member.sequence else [])]
    # Under other rotations than those of the files, or with adapters, fewer drafts are right.
    ropes = [each.params.rope.options for each in contexts]
    file = _file(files, [*(ropes if any(ropes) else ()), *signature(target.model.loras)])
    if (known := stored(file, _stored_rate)) is not None:
        return known
    if (measured := _measured(target, member)) is not None:
        try_to_store(file, {"rate": measured})
    return measured


def remembered_rate(target: Path, drafter: Path) -> float | None:
    """The share of a drafter's tokens that a target accepts; None where it was not measured."""
    return stored(_file([target, drafter]), _stored_rate)


def _file(files: Iterable[Path], changes: Iterable[Any] = ()) -> Path:
    what = [*map(stat_signature, files), *library.build_signature(), *changes]
    return cache_file("acceptance_checks", what)


def _stored_rate(record: Any) -> float:
    rate = float(record["rate"])
    if not 0 <= rate <= 1:
        raise ValueError("no share")
    return rate


def _measured(target: KVSequence, member: SequenceDrafter) -> float | None:
    if target.n_ctx < 2 * _TOKENS:
        return None
    report_progress(f"trying out {member.drafter.name}")
    text, stats = target.state(), Stats()
    try:
        for prompt in _PROMPTS:
            _write(target, member, prompt, stats)
    finally:
        target.restore(text)
    return stats.accepted / stats.drafted if stats.drafted else None


def _write(target: KVSequence, member: SequenceDrafter, prompt: str, stats: Stats) -> None:
    tokens = target.model.tokenize(prompt)[: target.n_ctx // 2]
    decoder = Decoder(
        target,
        FixedDepth([member.drafter], _DEPTH),
        _RULE,
        Sampler(SamplingParams(temperature=_TEMPERATURE), _RULE.randomness(_SEED)),
        tokens,
        stats,
    )
    began = perf_counter()
    try:
        for count, _ in enumerate(islice(decoder.run(_TOKENS), _TOKENS), start=1):
            if count >= _FEWEST and perf_counter() - began > _SECONDS:
                break
    finally:
        decoder.end()
