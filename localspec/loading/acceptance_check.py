"""Acceptance check: whether a head was made for this very target.

A head fits by its shape although it belongs to another checkpoint of the same family; then hardly
any of its tokens is accepted. So at first use the target writes a few dozen tokens, with the head's
drafts; the share that is accepted is remembered.
"""

from itertools import islice
from pathlib import Path
from time import perf_counter

from localspec.control.fixed_depth import FixedDepth
from localspec.llama.sequence import KVSequence
from localspec.loading.drafter_set import SequenceDrafter
from localspec.loading.verdicts import find_verdict, remembered_verdict
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.rules import RULES
from localspec.stats import Stats
from localspec.utils.progress import report_progress

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
# Where the shares are remembered.
_FOLDER, _KEY = "acceptance_checks", "rate"


class _NothingDraftedError(Exception):
    """The head drafted no token, so that nothing is known of it, and nothing is remembered."""


def acceptance_rate(target: KVSequence, member: SequenceDrafter) -> float | None:
    """The share of a drafter's tokens that this target accepts, measured or remembered.

    None if it drafted nothing: that tells nothing, and the next load tries again.
    The target's text stays as it is; the drafter's cache is another text's afterwards.
    """
    files = [target.model.path, *([member.measured.path] if member.measured else [])]
    contexts = [target.context, *([member.sequence.context] if member.sequence else [])]
    # Under other rotations than those of the files, fewer drafts are right.
    ropes = [each.params.rope.options for each in contexts]
    try:
        found = remembered_verdict(
            *(_FOLDER, _KEY, files),
            lambda: f"{_measured(target, member):.3f}",
            _is_rate,
            options=ropes if any(ropes) else (),
        )
    except _NothingDraftedError:
        return None
    return float(found)


def remembered_rate(target: Path, drafter: Path) -> float | None:
    """The share of a drafter's tokens that a target accepts; None where it was not measured."""
    found = find_verdict(_FOLDER, _KEY, [target, drafter], _is_rate)
    return None if found is None else float(found)


def _is_rate(text: str) -> bool:
    return 0 <= float(text) <= 1


def _measured(target: KVSequence, member: SequenceDrafter) -> float:
    report_progress(f"trying out {member.drafter.name}")
    text, stats = target.state(), Stats()
    try:
        for prompt in _PROMPTS:
            _write(target, member, prompt, stats)
    finally:
        target.restore(text)
    if not stats.drafted:
        raise _NothingDraftedError
    return stats.accepted / stats.drafted


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
