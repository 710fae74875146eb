"""Pass costs: seconds of a target pass by its width (its rows), learnt while it runs.

A pass over n rows does not take n times as long as a pass over one. On a CPU the cost rises in
steps, as kernels compute four rows at once; on a GPU it hardly rises at first. So it is measured.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from localspec.control.base_costs import WIDEST, WIDEST_DECODE, BaseCosts
from localspec.control.recent_median import ENOUGH, RecentMedian
from localspec.control.width_changes import WidthChanges

# Passes of other widths tell their cost beside passes of the anchor. Where more of them follow each
# other, what slows all passes may have changed meanwhile.
_BESIDE = 4
# A cost is stale once the factor has changed more than this many times.
_STALE_CHANGE = 1.1
# A profile is wrong when plain passes take this many times longer, or shorter, than it says.
_WRONG_PROFILE = 3.0
# Until passes of a width were measured while decoding, one in so many is not padded.
_UNPADDED_EVERY = 4
# After so many drafting steps in a row, one plain step measures the cost of a plain pass again; the
# second number holds while that cost is stale, doubted, or was never measured.
_PLAIN_EVERY, _PLAIN_AT_MOST_EVERY = 256, 4
# Where several texts share decodes, whose plain ones were measured, but may take longer by now:
# more rarely where drafts save much, as above. A power of two, as _PLAIN_EVERY is.
_STALE_ROUND_EVERY = 8
# Sooner where drafts save little, and so would soon cost time if plain passes became quicker: plain
# steps may take about this part of the time, but come no more often than after so many steps.
_PLAIN_SHARE, _PLAIN_SELDOM = 1 / 768, 32
# Behind fewer passes with drafts no plain one is doubted: the median follows soon enough.
_RARE = 8
# Once so many plain passes in a row were quicker, they have become so; varying ones rarely look so.
_CONVINCING = 3
# The least relative change of a base cost that is taken over.
_NOTABLE_CHANGE = 0.01


class PassCosts:
    """Seconds of a target pass by its width, and the fastest padding of each width.

    profile: seconds by width as measured at load, width 1 included; other widths are interpolated.

    A cost is the product of a factor, which all widths share, and of a base cost per width. The
    factor is for what slows all widths alike: a longer text, a busier machine. It is learnt from
    the anchor, a width that is seen often. Passes of other widths correct their base cost.
    The cost of a width that was not seen for long is uncertain: see `is_stale`.

    Where several texts share a decode, its width is that of all of them. unequal_apart: whether the
    library computes texts with different numbers of rows one after the other. pads: whether passes
    are padded. change: seconds that a change of the rows costs (see WidthChanges), 0 on a CPU. Then
    passes behind a change are not learnt from, and drafts pay for changes.
    """

    def __init__(
        self,
        profile: Mapping[int, float],
        *,
        unequal_apart: bool = False,
        pads: bool = True,
        change: float = 0.0,
    ) -> None:
        # The states that keep unequal passes apart cannot forget padding either.
        self.unequal_apart, self._pads = unequal_apart, pads and not unequal_apart
        self._change = change
        self._changes = WidthChanges(change) if change else None
        self._costs = BaseCosts(profile)
        self._base = self._costs.table
        self._profiled = self._base[1]
        self._factor = 1.0
        self._least_rows = 1
        self._base_seen = [RecentMedian() for _ in self._base]
        # By width: the factor when the base cost was last measured.
        self._observed_factor = [1.0] * len(self._base)
        # How many passes there were, and the number of the last one by width.
        self._passes, self._seen_at = 0, [0] * len(self._base)
        self._texts = 1
        self._anchor = 1
        self._anchor_seen = RecentMedian()
        # What the latest passes of other widths than 1 took, in parts of what was expected.
        self._spread = RecentMedian()
        # How many there were since the last plain pass, whether many were before that, and the
        # base costs of the latest plain passes in a row that were quicker than any of them.
        self._wider, self._is_rare, self._quicker = 0, False, list[float]()
        # Width and seconds of the passes since the last one of the anchor.
        self._beside: list[tuple[int, float]] = []
        # By width: the factor when the base cost was last confirmed by passes; None before that.
        self._confirmed_factor: list[float | None] = [None] * len(self._base)
        self._best = list(self._base)
        self._padded = list(range(len(self._base)))
        self._padded_passes = [0] * len(self._base)
        self._update_padding()

    @property
    def table(self) -> list[float]:
        """`seconds` of every width from 1 to WIDEST_DECODE; entry 0 is unused."""
        factor, changes = self._factor, self._changes
        if not changes:
            return [factor * best for best in self._best]
        seconds = [factor * base for base in self._base]
        return [
            each + changes.extra(rows, seconds.__getitem__) for rows, each in enumerate(seconds)
        ]

    def seconds(self, width: int) -> float:
        """Seconds of a pass over `width` rows, padded if that is faster, with what it changes."""
        if width > WIDEST_DECODE:
            return self.seconds(WIDEST_DECODE) * width / WIDEST_DECODE
        extra = self._changes.extra(width, self.unpadded) if self._changes else 0.0
        return self._factor * self._best[width] + extra

    def of_plain(self, texts: int) -> float:
        """Seconds of a decode of so many texts without drafts."""
        if texts > WIDEST_DECODE:
            return self.of_plain(WIDEST_DECODE) * texts / WIDEST_DECODE
        return self._factor * self._best[texts]

    def unpadded(self, width: int) -> float:
        """Seconds of a pass over exactly so many rows."""
        return self._factor * self._base[width] if width <= WIDEST_DECODE else self.seconds(width)

    def of_round(self, rows: Sequence[int]) -> float:
        """Seconds of the passes of several texts. rows: of each pass."""
        if self.unequal_apart:
            return sum(self.seconds(count * each) for each, count in Counter(rows).items())
        return self.seconds(sum(rows))

    def padded(self, width: int, most: int = WIDEST) -> int:
        """The fastest number of rows for a pass over `width` rows; ask once per pass.

        most: where that would be more rows, the pass is not padded. A wrong cost of the narrower
        pass would never show if it were always padded.
        """
        if self._changes and width <= (most := min(most, WIDEST)):
            return self._changes.padded(width, self.unpadded, most)
        if width > WIDEST or self._padded[width] == width or self._padded[width] > most:
            return width
        if self._confirmed_factor[1 if width == self._least_rows else width] is None:
            self._padded_passes[width] += 1
            if self._padded_passes[width] % _UNPADDED_EVERY == 0:
                return width
        return self._padded[width]

    def set_least_rows(self, least_rows: int) -> None:
        """From now on every pass has at least `least_rows` rows, a plain pass too."""
        if least_rows == self._least_rows:
            return
        # Passes of a reproducible text seldom change their rows, on a GPU never.
        self._changes = WidthChanges(self._change) if self._change and least_rows == 1 else None
        self._least_rows, self._costs = least_rows, self._costs.with_least(least_rows)
        self._use_costs()
        self._profiled = self._base[1]

    def begin_text(self) -> None:
        """A text begins: other passes were computed meanwhile, and others may share its decodes."""
        if self._changes:
            self._changes.begin()

    def share(self, texts: int) -> None:
        """So many texts share a decode, with a row each where nobody drafts."""
        if texts != self._texts:
            self._texts, self._seen_at[min(texts, WIDEST_DECODE)] = texts, self._passes
        if self._changes:
            self._changes.share(texts)

    def learn(self, width: int, seconds: float | None) -> None:
        """Learn from a pass over `width` rows, those of all texts that share it.

        seconds: of its step, without the drafting, and with the whole decode; None: they tell
        nothing.
        """
        self.note(width)
        if not 1 <= width <= WIDEST_DECODE:
            if self._changes:
                self._changes.interrupt()
            return
        if seconds is None or seconds <= 0:
            if self._changes:
                self._changes.add(width)
            return
        if width == self._least_rows:
            width = 1
        if self._changes and not self._changes.add(width):
            self._changes.lose(seconds - self._factor * self._base[width])
            return
        self._learn_settled(width, seconds)

    def note(self, width: int) -> None:
        """Count a pass that tells this text nothing; others that share its decode count it too."""
        self._passes += 1
        self._seen_at[max(0, min(width, WIDEST_DECODE))] = self._passes

    def _learn_settled(self, width: int, seconds: float) -> None:
        if width > 1:
            self._spread.add(seconds / (self._factor * self._base[width]))
            self._wider += 1
        else:
            self._is_rare, self._wider = self._wider >= _RARE, 0
        if width == self._anchor:
            self._anchor_seen.add(seconds)
        if width == self._anchor and len(self._anchor_seen) >= ENOUGH:
            self._factor = self._anchor_seen.median / self._base[width]
            self._confirmed_factor[width] = self._factor
            self._learn_beside()
        else:
            self._beside.append((width, seconds))
            if len(self._beside) > _BESIDE:
                self._change_anchor()

    def _change_anchor(self) -> None:
        """Go on from the passes since the last one of the anchor."""
        before, known = self._factor, self.knows(self._anchor)
        # What was never measured may be off by itself, and then says nothing of other widths.
        trusted = [each for each in self._beside if self.knows(each[0])]
        if known and not trusted:
            self._learn_beside()
            return
        trusted = trusted or self._beside
        self._factor = median(took / self._base[width] for width, took in trusted)
        [(self._anchor, _)] = Counter(width for width, _ in trusted).most_common(1)
        self._anchor_seen = RecentMedian()
        for width, took in self._beside:
            if width == self._anchor:
                self._anchor_seen.add(took)
        if known and self._moved(before):
            # Some of them may be from before the change.
            self._beside.clear()
        self._learn_beside()

    def _learn_beside(self) -> None:
        """Learn from the passes of other widths since the last one of the anchor."""
        for width, took in self._beside:
            if width != self._anchor:
                self._learn_base(width, took / self._factor)
        self._beside.clear()

    @property
    def keeps_width(self) -> bool:
        """Whether changes of the rows cost time, so that passes keep theirs for a while.

        Then a single plain pass between others tells nothing of plain decoding.
        """
        return self._changes is not None

    def is_plain_due(
        self, drafted: int, texts: int = 1, speed: float = math.inf, *, alone: bool
    ) -> bool:
        """Whether a plain step should tell what plain decoding costs now.

        drafted: the steps since the last one. texts: how many share the decode. speed: how many
        times as fast as plain decoding the best draft seems. alone: whether no other text is
        written, not even one that still reads its prompt.
        """
        if self._changes:
            return alone and self._changes.is_plain_due()
        seldom = max(0.0, 1 - 1 / speed) / _PLAIN_SHARE
        if texts > 1:
            return self._is_plain_round_due(min(texts, WIDEST_DECODE), seldom)
        if self._quicker or self.is_stale(1):
            return drafted >= _PLAIN_AT_MOST_EVERY
        return drafted >= min(_PLAIN_EVERY, max(_PLAIN_SELDOM, seldom))

    def _is_plain_round_due(self, texts: int, seldom: float) -> bool:
        """As `is_plain_due`, of several texts. seldom: after how many decodes it costs little."""
        every = _PLAIN_EVERY
        if not self.knows(texts):
            every = _PLAIN_AT_MOST_EVERY
        elif self.is_stale(texts):
            rare = 2 ** int(math.log2(max(1.0, seldom)))
            every = min(_PLAIN_EVERY, max(_STALE_ROUND_EVERY, rare))
        # All texts count the same passes, since one began or ended, so that all do without drafts
        # at once. Drafts save more in some than in others: powers of two meet all the same.
        since = self._passes - self._seen_at[texts]
        return since > 0 and since % every == 0

    @property
    def is_new_run(self) -> bool:
        """Whether changes of the rows cost time, and the last pass was of a run of drafts that has
        not settled yet.
        """
        return self._changes is not None and self._changes.is_new_run

    @property
    def way_back(self) -> float:
        """Seconds that the next decodes take longer if they have no more drafts."""
        return self._changes.way_back if self._changes else 0.0

    def take_lost(self) -> float:
        """Return the seconds lost to changes of the rows since the last call, by drafts."""
        return self._changes.take_lost() if self._changes else 0.0

    @property
    def reading_slowdown(self) -> float:
        """How many times longer a model needs to read this text than the profile says, at least 1.

        The text is longer than in the profile. At its end, reading slows down as much as plain
        passes did; on average over the text, half as much.
        """
        return max(1.0, (1 + self._slowdown) / 2)

    @property
    def profile_is_wrong(self) -> bool:
        """Whether plain passes take much more, or much less, time than the profile says."""
        return self.knows(1) and not 1 / _WRONG_PROFILE < self._slowdown < _WRONG_PROFILE

    @property
    def _slowdown(self) -> float:
        return self.seconds(1) / self._profiled

    @property
    def confirmed(self) -> frozenset[int]:
        """The widths up to WIDEST that were measured while decoding.

        Empty where plain passes have more rows than one: what they take says nothing of one row.
        """
        if self._least_rows > 1:
            return frozenset()
        return frozenset(width for width in range(1, WIDEST + 1) if self.knows(width))

    @property
    def relative(self) -> dict[int, float]:
        """What passes take in plain passes, of the widths that are not interpolated, to WIDEST."""
        return {
            width: each / self._base[1]
            for width, each in self._costs.known.items()
            if 1 < width <= WIDEST
        }

    def is_stale(self, width: int) -> bool:
        """Whether the factor has changed much since this width was last confirmed by passes.

        Never where a single pass of the width would not tell.
        """
        if self._changes:
            return False
        confirmed = self._confirmed_factor[width]
        return confirmed is None or self._moved(confirmed)

    def knows(self, width: int) -> bool:
        """Whether enough passes of this width were measured."""
        return self._confirmed_factor[min(width, WIDEST_DECODE)] is not None

    def _learn_base(self, width: int, relative: float) -> None:
        """Learn the base cost of a width from observations under about the same factor."""
        if self._moved(self._observed_factor[width]):
            self._base_seen[width] = RecentMedian()
        elif width == 1:
            self._doubt_plain(relative)
        self._observed_factor[width] = self._factor
        self._base_seen[width].add(relative)
        if len(self._base_seen[width]) < ENOUGH:
            return
        seen, known = self._base_seen[width].median, self._base[width]
        notable = abs(seen / known - 1) > _NOTABLE_CHANGE
        if notable or not self._costs.is_corrected(width):
            widths = {width, self._least_rows} if width == 1 else {width}
            self._costs.correct(dict.fromkeys(widths, seen if notable else known), self._anchor)
            self._use_costs()
        self._confirmed_factor[width] = self._factor

    def _doubt_plain(self, relative: float) -> None:
        """Forget what plain passes took once some in a row were quicker than passes vary.

        Where they are rare, the median would follow only after hundreds of drafts.
        """
        if relative / self._base[1] >= min(1 / _STALE_CHANGE, self._spread.least):
            self._quicker.clear()
        elif self._quicker or self._is_rare:
            self._quicker.append(relative)
        if len(self._quicker) == _CONVINCING:
            slowest = max(self._quicker)  # they may have been picked from passes that vary
            self._base_seen[1], self._quicker = RecentMedian(), []
            for _ in range(ENOUGH):
                self._base_seen[1].add(slowest)

    def _use_costs(self) -> None:
        self._base = self._costs.table
        self._update_padding()

    def _moved(self, before: float) -> bool:
        return not 1 / _STALE_CHANGE < self._factor / before < _STALE_CHANGE

    def _update_padding(self) -> None:
        """For each width, find the fastest width that is at least as wide; width 1 stays 1.

        Where changes cost time, passes are padded to keep their rows, and for nothing else.
        """
        if not self._pads or self._changes:
            self._best = list(self._base)
            return
        self._best[WIDEST + 1 :] = self._base[WIDEST + 1 :]
        best = WIDEST
        for width in range(WIDEST, 0, -1):
            if self._base[width] <= self._base[best] or width == 1:
                best = width
            self._best[width], self._padded[width] = self._base[best], best
