"""What the demo says: before it writes, before it starts, and at the end."""

from pathlib import Path

from localspec.cli.output import joined
from localspec.scaling.demo_pair import DemoPair
from localspec.scaling.race import Lane, Race
from localspec.utils.format import format_bytes

LOADING = "loading; the first time, it is also measured what passes cost on this machine"
# Percent of the processor.
_BUSY = 30


def question(pair: DemoPair) -> list[str]:
    """What would be written, where, and what for."""
    return [
        "the bundled pair is so small that drafting gains it nothing. The demo scales it up:",
        "it computes what it did, at the cost per token of a real model of that size.",
        f"It writes {format_bytes(pair.missing)} to {short(pair.folder)}, once,",
        "and downloads nothing; `localspec demo --remove` deletes it. Other sizes:",
        "--size 0.3B (0.7 GB), --size 0.9B (1.9 GB), --size 2B --type Q8_0 (2.3 GB)",
    ]


def models(pair: DemoPair) -> list[str]:
    """The files raced with."""
    files = {"target": pair.target, "drafter": pair.drafter}
    return [
        *(
            f"{role}: {path.stem}, {format_bytes(path.stat().st_size)}"
            for role, path in files.items()
        ),
        "speed and acceptance are real; the text is that of the tiny model they are scaled from",
    ]


def busy(percent: float) -> str | None:
    """A warning, if other programs take much of the processor."""
    if percent < _BUSY:
        return None
    return f"other programs keep {percent:.0f} % of the processor busy: the speeds suffer, unevenly"


def speed(lane: Lane, race: Race) -> str:
    """How fast a lane is so far, and the second one against the first."""
    if lane.speed is None:
        return "waiting"
    ratio = race.ratio if lane is race.speculative else None
    return joined([f"{lane.speed:.1f} tok/s", f"{ratio:.2f} x" if ratio else ""])


def verdict(race: Race) -> str:
    """One line: both speeds, the ratio, and whether the texts are one."""
    plain, speculative = (f"{lane.name} {lane.speed or 0:.1f} tok/s" for lane in race.lanes)
    ratio = f"{race.ratio:.2f} x" if race.ratio else ""
    count = len(race.plain.tokens)
    where = race.difference
    same = (
        f"the two texts are identical ({count} tokens)"
        if where is None
        else f"the two texts differ from token {where + 1} of {count} on"
    )
    return joined([plain, speculative, ratio, same])


def remarks(race: Race) -> list[str]:
    """What a reader should know about this verdict, if it is not the usual one."""
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


def short(path: Path) -> str:
    """A path with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _token(lane: Lane, place: int) -> str:
    if place >= len(lane.tokens):
        return "missing"
    return repr(lane.engine.model.piece_text(lane.tokens[place].id))
