"""Width changes: what it costs on a GPU that passes do not all have the same rows.

For a pass of other rows than the last one, the library builds its graph anew, and launches it
kernel by kernel. If the next pass has the same rows again, the graph is captured, which takes
longest, and from then on the GPU gets it as a whole (CUDA graphs). On an H100 the plain passes of
an 8B in Q4_0 take 3.4 ms, but the first one behind others 4.9 and the second one 8.
"""

import math
from collections.abc import Callable

from localspec.control.recent_median import ENOUGH

# How what a change costs is spread over the passes behind it, as parts of it (measured on an H100).
PARTS = (0.25, 0.75)
# So many passes behind a change do not tell what passes of that width take.
UNSETTLED = len(PARTS)
# From this drafted pass on, without a plain one between them, passes keep their rows. Those before
# do not have the same rows twice, as few passes do not make up for the capture.
SETTLING = 4
# What changes cost is averaged over about so many drafted passes.
_AVERAGED = 24
# How many drafted passes there are between two plain stretches, until it was seen; in so many plain
# passes most of what was seen is forgotten.
_FIRST_RUN, _FORGOTTEN = 16, 256
# After so many drafted passes, the first time after fewer, a few plain ones in a row tell what such
# passes take.
_PLAIN_AFTER, _PLAIN_FIRST = 1024, 128


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

    change: by how many seconds the passes behind a change take longer, all together. plain_rows:
    the rows of a decode without drafts, one for each text that shares it.
    """

    def __init__(self, change: float) -> None:
        self.change, self.plain_rows = change, 1
        self._equal = EqualPasses()
        # The drafted passes in a row, their rows, and what padding to these has cost.
        self._run, self._rows, self._padding = 0, 1, 0.0
        # What plain passes since the last draft have cost, or would have, in passes of that run.
        self._gap = 0.0
        # What was lost to changes and padding lately, and in how many drafted passes.
        self._lost, self._drafts = 2.0 * change, float(_FIRST_RUN)
        # The same since it was last asked for.
        self._lost_now = 0.0
        # Whether the first passes behind others are computed, which are slow without drafts too.
        self._begins = True
        # Drafted and padded passes since the last plain one, and since plain ones told their cost;
        # and whether these are to tell it now.
        self._drafted, self._since_plain = 0, _PLAIN_AFTER - _PLAIN_FIRST
        self._looks = False

    def extra(self, rows: int, seconds: Callable[[int], float]) -> float:
        """What changes and padding cost, in seconds, if the next pass is over so many rows.

        seconds: as in `padded`. Behind plain passes: the changes to drafts and back, of which each
        draft of a run pays a part. In a run: nothing for the way back, which must be paid for
        sooner or later; but what it costs to be padded, or to leave the rows of the run. Beside
        others, who draft more or less in every round, the most rows are kept; so each draft pays a
        part of a change to more.
        """
        if rows <= self.plain_rows:
            return 0.0
        if not self._drafted:
            return self._lost / self._drafts
        if self._run < SETTLING:
            return 0.0
        other = PARTS[0] * self.change
        if rows > self._rows:
            return min(other, self._lost / self._drafts) if self.plain_rows > 1 else other
        return min(max(0.0, seconds(self._rows) - seconds(rows)), other)

    @property
    def is_new_run(self) -> bool:
        """Whether the last pass was one of a run of drafts that had not settled yet."""
        return 0 < self._drafted <= SETTLING + UNSETTLED

    @property
    def way_back(self) -> float:
        """What the next passes take longer if they have no more drafts."""
        return self.change if self._drafted else 0.0

    def share(self, texts: int) -> None:
        """So many texts share the next decodes."""
        if texts == self.plain_rows:
            return
        self.plain_rows = texts
        self._end_run()
        if not self._drafted:
            self.interrupt()

    def interrupt(self) -> None:
        """Other passes are computed in between: those behind them are slow, whatever they are."""
        self._equal, self._begins = EqualPasses(), True

    def is_plain_due(self) -> bool:
        """Whether plain passes should tell again what they take: a few of them in a row."""
        self._looks = self._since_plain >= _PLAIN_AFTER
        return self._looks

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
            more = seconds(rows + 1) - seconds(rows) if rows < most else math.inf
            if rows == self._equal.rows and more < PARTS[1] * self.change:
                self.lose(more)
                rows += 1
            self._choose(rows)
            return self._rows
        lost = seconds(self._rows) - seconds(rows)
        if rows < self._rows <= most and self._padding + lost <= self.change:
            self._padding += max(0.0, lost)
            self.lose(lost)
        elif rows != self._rows:
            self._choose(rows)
        return self._rows

    def add(self, rows: int) -> bool:
        """Count a pass that was computed; return whether it tells what so many rows take."""
        is_first = not self._equal.rows
        before = self._equal.add(rows)
        settled = before >= UNSETTLED
        if settled or not (is_first or before):
            self._begins = False
        if rows > self.plain_rows:
            kept = 1 - 1 / _AVERAGED
            self._lost, self._drafts = kept * self._lost, kept * self._drafts + 1
            self._drafted += 1
            self._since_plain += 1
            if self.plain_rows > 1:  # the policy of another text may have padded it
                self._run = self._drafted
                if rows != self._rows:
                    self._choose(rows)
        else:
            # So that drafts which were too dear are thought of again.
            self._lost += (2.0 * self.change - self._lost) / _FORGOTTEN
            self._drafts += (_FIRST_RUN - self._drafts) / _FORGOTTEN
            self._drafted = 0
            if rows == 1 and before >= UNSETTLED + ENOUGH - 1:
                self._since_plain, self._looks = 0, False
        return settled

    def lose(self, seconds: float) -> None:
        """Count what a pass took for a change, or for its padding."""
        if not self._begins:
            lost = min(max(0.0, seconds), 2 * self.change)
            self._lost += lost
            self._lost_now += lost

    def take_lost(self) -> float:
        """Return what was lost since the last call: to one change and its padding at most."""
        lost, self._lost_now = min(self._lost_now, 2 * self.change), 0.0
        return lost

    def begin(self) -> None:
        """A text begins: what was decoded last, a prompt most likely, had other rows."""
        self.plain_rows, self._drafted, self._lost_now = 1, 0, 0.0
        self._end_run()
        self.interrupt()

    def _padded_plain(self, rows: int, seconds: Callable[[int], float], most: int) -> int:
        """The rows for a pass without a draft: a short gap in a long run of drafts is padded.

        Not beside other texts, whose drafts differ from round to round.
        """
        lost = seconds(self._rows) - seconds(rows)
        self._gap += lost
        is_padded = self._run >= SETTLING and self._gap <= self.change and self._rows <= most
        if rows > 1 or not is_padded or self._looks:
            self._run = 0
            return rows
        self.lose(lost)
        return self._rows

    def _end_run(self) -> None:
        self._run, self._gap = 0, 0.0
        self._choose(1)

    def _choose(self, rows: int) -> None:
        self._rows, self._padding = rows, 0.0
