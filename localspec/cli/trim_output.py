"""What `localspec trim` prints."""

from typing import Any

from localspec.conversion.draft_trial import DraftTrial
from localspec.conversion.trim import Trimmed
from localspec.utils.format import format_bytes


def trim_text(done: Trimmed, before: DraftTrial, after: DraftTrial) -> list[str]:
    """The lines on a terminal."""
    rows, read = done.rows, done.bytes
    covered = "" if done.covered is None else f", which are {done.covered:.1%} of the counted ones"
    share = f"{before.accepted:.1%} -> {after.accepted:.1%}"
    steps = f"{before.tokens_per_step:.2f} -> {after.tokens_per_step:.2f}"
    texts = sum(map(len, before.texts))
    lines = [
        f"keeps {rows[1]:,} of {rows[0]:,} tokens{covered}",
        f"a pass of the head reads {format_bytes(read[0])} -> {format_bytes(read[1])} for its "
        f"logits; a drafted token takes {_milliseconds(before)} -> {_milliseconds(after)}",
        f"accepted: {share} of drafted tokens, {steps} tokens per step, in {texts:,} tokens that "
        "the target wrote",
    ]
    if not done.written:
        lines.insert(0, f"{done.path.name} is here already")
    if before.texts != after.texts:
        lines.append("the two texts differ: a near tie was decided by rounding")
    return lines


def trim_record(done: Trimmed, before: DraftTrial, after: DraftTrial) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "path": str(done.path),
        "written": done.written,
        "covered": done.covered,
        "same_texts": before.texts == after.texts,
        "text_tokens": sum(map(len, before.texts)),
        **{
            name: {
                "tokens": done.rows[place],
                "bytes_per_pass": done.bytes[place],
                "seconds_per_drafted_token": trial.seconds,
                "accepted": trial.accepted,
                "tokens_per_step": trial.tokens_per_step,
            }
            for place, (name, trial) in enumerate((("before", before), ("after", after)))
        },
    }


def _milliseconds(trial: DraftTrial) -> str:
    return f"{trial.seconds * 1e3:.2f} ms"
