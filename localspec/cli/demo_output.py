"""What `localspec demo` says: before it writes, before it starts, and at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.cli.demo_comparison import Decoding, DemoComparison
from localspec.cli.output import join_facts
from localspec.cli.table import table_text
from localspec.scaling.demo_pair import TYPES, DemoPair
from localspec.scaling.demo_size import DemoSize
from localspec.utils.format import format_bytes
from localspec.utils.shell import command_line

LOADING = "loading; the first time, localspec also measures what passes cost on this machine"
# Percent of the processor.
_BUSY = 30
# Below this ratio drafts gained nothing worth the name.
_GAIN = 1.05


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Both ways of decoding one task.

    speeds: in tokens per second, plain first. tokens: of the plain text. difference: the index of
    the first token that differs, or None; differing: that token plainly and with drafts.
    """

    task: str
    speeds: tuple[float, float]
    tokens: int
    difference: int | None
    differing: tuple[str, str] | None

    @property
    def ratio(self) -> float:
        """The speed with drafts over the plain one, 0 if there is none."""
        plain, speculative = self.speeds
        return speculative / plain if plain else 0.0


def result_of(task: str, comparison: DemoComparison) -> DemoResult:
    """Return the result of a comparison that has run."""
    plain, speculative = comparison.decodings
    where = comparison.first_difference
    return DemoResult(
        task,
        (plain.tokens_per_second or 0.0, speculative.tokens_per_second or 0.0),
        len(plain.tokens),
        where,
        None if where is None else (_token(plain, where), _token(speculative, where)),
    )


def writing_line(pair: DemoPair) -> str:
    """Return what is written, and where."""
    return (
        f"the bundled pair scaled to {pair.parameters}, {format_bytes(pair.missing)}, is written "
        f"to {short_path(pair.folder)}"
    )


def too_small_line(size: DemoSize) -> str:
    """Return why a larger pair is tried."""
    return (
        f"{size.parameters} is too small: drafts would gain {size.speed_up:.2f} x there, even in "
        "an answer that mostly repeats its question; it is replaced by a larger one"
    )


def nothing_pays_line(size: DemoSize, *, on_gpu: bool) -> str:
    """Return that drafts gain little on this machine at every size. on_gpu: where models run."""
    way_out = "a larger --size" if on_gpu else "a larger --size, fewer --threads or a GPU"
    return (
        f"on this machine drafts gain little at every size that was tried, {size.speed_up:.2f} x "
        f"at {size.parameters}: here several tokens in one pass cost almost what they cost one by "
        f"one; {way_out} may change that"
    )


def model_lines(pair: DemoPair) -> list[str]:
    """Return a line for the file of each model, and one on what the comparison shows."""
    files = {"target": pair.target, "drafter": pair.drafter}
    return [
        *(
            f"{role}: {_name(path, pair)}, {format_bytes(path.stat().st_size)}"
            for role, path in files.items()
        ),
        "speed and acceptance are real; the text is that of the small model they are scaled from",
    ]


def _name(path: Path, pair: DemoPair) -> str:
    """Return the name of a model's file without the hash at its end, if it has one."""
    return path.stem.rpartition("-")[0] if path.parent == pair.folder else path.stem


def busy_warning(percent: float) -> str | None:
    """Return a warning if other programs take much of the processor. percent: their share."""
    if percent < _BUSY:
        return None
    return f"other programs keep {percent:.0f} % of the processor busy: the speeds suffer, unevenly"


def speed_text(decoding: Decoding, comparison: DemoComparison) -> str:
    """Return the speed of a decoding so far; for the speculative one also its ratio to plain."""
    if decoding.tokens_per_second is None:
        return "waiting"
    ratio = comparison.speed_up if decoding is comparison.speculative else None
    return join_facts(
        [f"{decoding.tokens_per_second:.1f} tok/s", f"{ratio:.2f} x" if ratio else ""]
    )


def results_text(results: Sequence[DemoResult]) -> str:
    """Return the table of all tasks: both speeds, their ratio, and whether texts are identical."""
    columns = ("task", "plain tok/s", "localspec tok/s", "ratio", "identical text")
    rows = [
        (
            each.task,
            *(f"{speed:.1f}" for speed in each.speeds),
            f"{each.ratio:.2f} x",
            _identity(each),
        )
        for each in results
    ]
    return table_text(columns, rows, right=columns[1:4])


def remark_lines(results: Sequence[DemoResult]) -> list[str]:
    """Return what explains an unusual result: no gain, or texts that differ."""
    remarks = []
    if all(each.ratio < _GAIN for each in results):
        remarks.append(
            "drafting did not pay here; it gains more with a larger --size, "
            "or while no other programs run"
        )
    differing = [each for each in results if each.differing and each.difference is not None]
    for each in differing:
        assert each.differing is not None and each.difference is not None
        plain, speculative = each.differing
        remarks.append(
            f"{each.task}: token {each.difference + 1} is {plain} plainly and {speculative} with "
            "drafts"
        )
    if differing:
        remarks += [
            "passes over one and over several tokens round differently, and where two tokens",
            "nearly tie, that can decide. `localspec audit` tells whether it did; --reproducible "
            "makes both round alike, at some cost",
        ]
    return remarks


def chat_command(size: str | None, type_name: str, threads: int | None) -> str:
    """Return the command that opens the chat on the pair of this demo."""
    words = ["localspec", "demo"]
    words += ["--size", size] if size else []
    words += ["--type", type_name] if type_name != TYPES[0] else []
    # Without --size it also names the pair: the size is remembered per number of threads.
    words += [] if threads is None else ["--threads", str(threads)]
    return command_line([*words, "--chat"])


def short_path(path: Path) -> str:
    """Return a path with ~ for the home folder."""
    home = Path.home()
    return str("~" / path.relative_to(home)) if path.is_relative_to(home) else str(path)


def _identity(result: DemoResult) -> str:
    if result.difference is None:
        return f"yes, {result.tokens} tokens"
    return f"no, from token {result.difference + 1} of {result.tokens} on"


def _token(decoding: Decoding, index: int) -> str:
    if index >= len(decoding.tokens):
        return "missing"
    return repr(decoding.engine.model.piece_text(decoding.tokens[index].id))
