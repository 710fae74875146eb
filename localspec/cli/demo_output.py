"""What `localspec demo` says: before it writes, before it starts, and at the end."""

from pathlib import Path

from localspec.bench import Comparison, Decoding
from localspec.cli.output import join_facts
from localspec.scaling.demo_pair import DemoPair
from localspec.utils.format import format_bytes

LOADING = "loading; the first time, it is also measured what passes cost on this machine"
# Percent of the processor.
_BUSY = 30


def question_lines(pair: DemoPair) -> list[str]:
    """Return what would be written, where, and what for."""
    return [
        "the bundled pair is so small that drafting gains it nothing. The demo scales it up:",
        "it computes what it did, at the cost per token of a real model of that size.",
        f"It writes {format_bytes(pair.missing)} to {short_path(pair.folder)}, once,",
        "and downloads nothing; `localspec demo --remove` deletes it. Other sizes:",
        "--size 0.3B (0.7 GB), --size 0.9B (1.9 GB), --size 2B --type Q8_0 (2.3 GB)",
    ]


def model_lines(pair: DemoPair) -> list[str]:
    """Return a line for the file of each model, and one on what the comparison shows."""
    files = {"target": pair.target, "drafter": pair.drafter}
    return [
        *(
            f"{role}: {path.stem}, {format_bytes(path.stat().st_size)}"
            for role, path in files.items()
        ),
        "speed and acceptance are real; the text is that of the tiny model they are scaled from",
    ]


def busy_warning(percent: float) -> str | None:
    """Return a warning if other programs take much of the processor. percent: their share."""
    if percent < _BUSY:
        return None
    return f"other programs keep {percent:.0f} % of the processor busy: the speeds suffer, unevenly"


def speed_text(decoding: Decoding, comparison: Comparison) -> str:
    """Return the speed of a decoding so far; for the speculative one also its ratio to plain."""
    if decoding.tokens_per_second is None:
        return "waiting"
    ratio = comparison.speed_up if decoding is comparison.speculative else None
    return join_facts(
        [f"{decoding.tokens_per_second:.1f} tok/s", f"{ratio:.2f} x" if ratio else ""]
    )


def verdict_line(comparison: Comparison) -> str:
    """Return one line: both speeds, their ratio, and whether the texts are identical."""
    plain, speculative = (
        f"{decoding.name} {decoding.tokens_per_second or 0:.1f} tok/s"
        for decoding in comparison.decodings
    )
    ratio = f"{comparison.speed_up:.2f} x" if comparison.speed_up else ""
    count = len(comparison.plain.tokens)
    where = comparison.first_difference
    same = (
        f"the two texts are identical ({count} tokens)"
        if where is None
        else f"the two texts differ from token {where + 1} of {count} on"
    )
    return join_facts([plain, speculative, ratio, same])


def remark_lines(comparison: Comparison) -> list[str]:
    """Return what explains an unusual verdict: no gain, or texts that differ."""
    remarks = []
    if comparison.speed_up and comparison.speed_up < 1:
        remarks.append(
            "drafting did not pay here; it gains more with a larger --size, or less going on"
        )
    where = comparison.first_difference
    if where is not None:
        plain, speculative = (_token(decoding, where) for decoding in comparison.decodings)
        remarks += [
            f"token {where + 1} is {plain} plainly and {speculative} with drafts: passes over one "
            "and over several",
            "tokens round differently, and where two tokens nearly tie, that can decide.",
            "`localspec audit` tells whether it did; --reproducible pays for equal digits",
        ]
    return remarks


def short_path(path: Path) -> str:
    """Return a path with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _token(decoding: Decoding, index: int) -> str:
    if index >= len(decoding.tokens):
        return "missing"
    return repr(decoding.engine.model.piece_text(decoding.tokens[index].id))
