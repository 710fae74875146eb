"""What `localspec demo` says: before it writes, before it starts, and at the end."""

from pathlib import Path

from localspec.cli.output import join_facts
from localspec.scaling.demo_pair import DemoPair
from localspec.scaling.race import Lane, Race
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
    """Return a line for the file of each model, and one on what the race shows."""
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


def speed_text(lane: Lane, race: Race) -> str:
    """Return the speed of a lane so far; for the speculative one also its ratio to plain."""
    if lane.speed is None:
        return "waiting"
    ratio = race.ratio if lane is race.speculative else None
    return join_facts([f"{lane.speed:.1f} tok/s", f"{ratio:.2f} x" if ratio else ""])


def verdict_line(race: Race) -> str:
    """Return one line: both speeds, their ratio, and whether the texts are identical."""
    plain, speculative = (f"{lane.name} {lane.speed or 0:.1f} tok/s" for lane in race.lanes)
    ratio = f"{race.ratio:.2f} x" if race.ratio else ""
    count = len(race.plain.tokens)
    where = race.difference
    same = (
        f"the two texts are identical ({count} tokens)"
        if where is None
        else f"the two texts differ from token {where + 1} of {count} on"
    )
    return join_facts([plain, speculative, ratio, same])


def remark_lines(race: Race) -> list[str]:
    """Return what explains an unusual verdict: no gain, or texts that differ."""
    said = []
    if race.ratio and race.ratio < 1:
        said.append(
            "drafting did not pay here; it gains more with a larger --size, or less going on"
        )
    where = race.difference
    if where is not None:
        plain, speculative = (_token(lane, where) for lane in race.lanes)
        said += [
            f"token {where + 1} is {plain} plainly and {speculative} with drafts: passes over one "
            "and over several",
            "tokens round differently, and where two tokens nearly tie, that can decide.",
            "`localspec audit` tells whether it did; --reproducible pays for equal digits",
        ]
    return said


def short_path(path: Path) -> str:
    """Return a path with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _token(lane: Lane, place: int) -> str:
    if place >= len(lane.tokens):
        return "missing"
    return repr(lane.engine.model.piece_text(lane.tokens[place].id))
