"""Live panel: figures about drafting while an answer is written."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from localspec.stats import Stats

_SPARKS = "▁▂▃▄▅▆▇█"
_BARS = f"[{_SPARKS}]+"
_MAX_SAMPLES = 500
_LABEL_WIDTH = 9
# Cells beside a bar, for its number and its percentage.
_BESIDE_BAR = 12
_MAX_BARS = 6


def accepted_lengths(stats: Stats) -> list[int]:
    """How many steps accepted 0, 1, 2, ... drafted tokens."""
    at_least = [stats.steps, *stats.accepted_per_position, 0]
    # The engine thread may have updated only one of the two counters yet.
    return [max(0, a - b) for a, b in pairwise(at_least)]


def sparkline(samples: Sequence[float], width: int) -> str:
    """The latest samples, one for each cell of the width. The highest is a full bar."""
    latest = samples[-width:]
    top = max(latest, default=0.0) or 1.0
    return "".join(_SPARKS[int(each / top * (len(_SPARKS) - 1))] for each in latest)


class SpeedSampler:
    """Samples the speed of an answer: tokens per second since the sample before."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._last = (0, 0.0)
        self._stats: Stats | None = None

    def sample(self, stats: Stats) -> None:
        """Take a sample, if there are new tokens. Other stats than before start a new list."""
        if stats is not self._stats:
            self.samples, self._last, self._stats = [], (0, 0.0), stats
        tokens, seconds = stats.generated_tokens, stats.seconds.generate
        last_tokens, last_seconds = self._last
        if tokens > last_tokens and seconds > last_seconds:
            self.samples.append((tokens - last_tokens) / (seconds - last_seconds))
            self._last = tokens, seconds
            del self.samples[:-_MAX_SAMPLES]


class LivePanel(Widget):
    """Rows of figures. The important rows come first: the last ones may not fit on the screen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"live-panel--bar"}
    DEFAULT_CSS = """
    LivePanel {
        width: 1fr;
        height: auto;
        & > .live-panel--bar { color: $primary; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sampler = SpeedSampler()
        self._stats: Stats | None = None
        self._drafter: str | None = None

    def show(self, stats: Stats | None, drafter: str | None = None) -> None:
        """Show the current figures. drafter: of the last drafted token."""
        if stats:
            self._sampler.sample(stats)
        self._stats, self._drafter = stats, drafter
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width))

    def render(self) -> Content:
        rows = Content("\n".join(self.rows(self.size.width)))
        return rows.highlight_regex(_BARS, style=".live-panel--bar")

    def rows(self, width: int) -> list[str]:
        """The rows in a width of cells."""
        stats = self._stats
        if stats is None or not stats.steps:
            return ["nothing was generated yet"]
        groups = {
            "speed": self._speed(stats, width - _LABEL_WIDTH),
            "drafts": self._drafts(stats),
            "time": self._time(stats, width - _LABEL_WIDTH),
            "accepted": _accepted(stats, width - _LABEL_WIDTH),
        }
        return [row for label, rows in groups.items() for row in _labelled(label, rows)]

    def _speed(self, stats: Stats, width: int) -> Iterator[str]:
        samples = self._sampler.samples
        if samples:
            yield sparkline(samples, width)
            plain = stats.plain_tokens_per_second
            beside = f" · plain {plain:.1f}" if plain else ""
            yield f"{samples[-1]:.1f} tok/s{beside}"

    def _drafts(self, stats: Stats) -> Iterator[str]:
        depth = stats.widths[-1] - 1 if stats.widths else 0
        yield f"{self._drafter or 'some'}, depth {depth}" if depth else "none just now"

    def _time(self, stats: Stats, width: int) -> Iterator[str]:
        spent = stats.seconds
        seconds = {"target": spent.verify, "draft": spent.draft, "host": spent.host}
        total = sum(seconds.values()) or 1.0
        shares = [f"{name} {each / total:.0%}" for name, each in seconds.items()]
        line = " · ".join(shares)
        yield from [line] if len(line) <= width else shares


def _accepted(stats: Stats, width: int) -> Iterator[str]:
    """A bar for each number of accepted tokens. The last bar counts all larger numbers too."""
    counts = accepted_lengths(stats)
    last = _MAX_BARS - 1
    rows = [*counts[:last], sum(counts[last:])] if len(counts) > _MAX_BARS else counts
    for length, count in enumerate(rows):
        share = count / (sum(rows) or 1)
        name = f"{length}{'+' if len(rows) < len(counts) and length == len(rows) - 1 else ''}"
        full = "█" * round(share * max(0, width - _BESIDE_BAR))
        yield f"{name:<2} {full} {share:.0%}"


def _labelled(label: str, rows: Iterator[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"{'' if number else label:<{_LABEL_WIDTH}}{row}"
