"""Width changes: what it costs on a GPU that passes do not all have the same rows.

For a pass of other rows than the last one, the library builds its graph anew, and launches it
kernel by kernel. If the next pass has the same rows again, the graph is captured, which takes
longest, and from then on the GPU gets it as a whole (CUDA graphs). On an H100 the plain passes of
an 8B in Q4_0 take 3.4 ms, but the first one behind others 4.9 and the second one 8.
"""

from collections.abc import Callable

# How what a change costs is spread over the passes behind it, as parts of it (measured on an H100).
PARTS = (0.25, 0.75)
# So many passes behind a change do not tell what passes of that width take.
UNSETTLED = len(PARTS)
# From this drafted pass on, without a plain one between them, passes keep their rows. Those before
# never have the same rows twice, as few passes do not make up for the capture.
SETTLING = 4
# What changes cost is averaged over about so many drafted passes.
_AVERAGED = 24
# How many drafted passes there are between two plain stretches, until it was seen.
_FIRST_RUN = 4


class EqualPasses:
    """Counts passes in a row that have the same rows. rows: of the last one."""

    def __init__(self) -> None:
        self.rows = self._before = 0

    def add(self, rows: int) -> int:
        """Count a pass; return how many directly before it had as many rows."""
        self._before = self._before + 1 if rows == self.rows else 0
        self.rows = rows
        return self._before


class WidthChanges:
    """Keeps passes at one width for a while, and counts what changes cost all the same.

    seconds: by how much longer the passes behind a change take, all together. plain_rows: the rows
    of a decode without drafts, one for each text that shares it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.plain_rows = seconds, 1
        self._equal = EqualPasses()
        # The drafted passes in a row, their rows, and what padding to these has cost.
        self._run, self._rows, self._padding = 0, 1, 0.0
        # What padding of plain passes has cost since the last draft.
        self._gap = 0.0
        # What was lost to changes and padding lately, and in how many drafted passes.
        self._lost, self._passes = 2.0 * seconds, float(_FIRST_RUN)

    @property
    def per_draft(self) -> float:
        """What changes cost, in seconds per drafted pass: those to plain passes and back too."""
        return self._lost / self._passes

    def padded(self, rows: int, seconds: Callable[[int], float], most: int) -> int:
        """The rows for a pass over so many; ask once per pass.

        seconds: of passes by rows. most: the most rows of a pass.

        Padding goes on until it has cost as much as a change (the ski rental problem: this costs at
        most twice what it would, had the coming drafts been known).
        """
        if rows <= self.plain_rows:
            return self._padded_plain(rows, seconds, most)
        self._gap = 0.0
        self._run += 1
        if self._run < SETTLING:
            self._choose(rows + (rows == self._equal.rows and rows < most))
            return self._rows
        lost = seconds(self._rows) - seconds(rows)
        if rows < self._rows <= most and self._padding + lost <= self.seconds:
            self._padding += max(0.0, lost)
            self.lose(lost)
        elif rows != self._rows:
            self._choose(rows)
        return self._rows

    def settles(self, rows: int) -> bool:
        """Count a pass; whether it tells what passes of so many rows take."""
        before = self._equal.add(rows)
        if rows > self.plain_rows:
            kept = 1 - 1 / _AVERAGED
            self._lost, self._passes = kept * self._lost, kept * self._passes + 1
        return before >= UNSETTLED

    def lose(self, seconds: float) -> None:
        """Count what a pass took for a change, or for its padding."""
        self._lost += min(max(0.0, seconds), 2 * self.seconds)

    def begin(self) -> None:
        """A text begins: what was decoded last, a prompt most likely, had other rows."""
        self._equal = EqualPasses()
        self._run, self._rows, self._padding, self._gap = 0, 1, 0.0, 0.0

    def _padded_plain(self, rows: int, seconds: Callable[[int], float], most: int) -> int:
        """The rows for a pass without a draft: a short gap in a long run of drafts is padded.

        Not beside other texts, whose drafts differ from round to round.
        """
        lost = seconds(self._rows) - seconds(rows)
        self._gap += lost
        is_padded = self._run >= SETTLING and self._gap <= self.seconds and self._rows <= most
        if rows > 1 or not is_padded:
            self._run = 0
            return rows
        self.lose(lost)
        return self._rows

    def _choose(self, rows: int) -> None:
        self._rows, self._padding = rows, 0.0
