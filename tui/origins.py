"""Origins: which tokens of a text were drafted, and which come from the target."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import NamedTuple

from localspec.speculation.rules import BONUS, CORRECTED, PLAIN
from localspec_tui.common_prefix import common_prefix_length

# The origin of a text that the user has edited.
EDITED = "edited"
_NOT_DRAFTED = (CORRECTED, BONUS, PLAIN, EDITED)


class OriginSegment(NamedTuple):
    """Consecutive tokens of one origin.

    text: their text. origin: the name of a drafter, or "corrected", "bonus", "plain" or
    "edited".
    """

    text: str
    origin: str


@dataclass(slots=True)
class Origins:
    """The origins of one text.

    segments: joined they are the text; neighbours differ in origin. counts: tokens by origin.
    """

    segments: list[OriginSegment] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, segments: Iterable[tuple[str, str]]) -> "Origins":
        """Origins of a saved text. The counts stay empty: token numbers are not saved."""
        origins = cls()
        for text, origin in segments:
            origins._join(text, origin)
        return origins

    def beginning(self, letters: int) -> "Origins":
        """The origins of so many letters at the beginning."""
        beginning = Origins()
        for text, origin in self.segments:
            beginning._join(text[:letters], origin)
            letters = max(0, letters - len(text))
        return beginning

    def edited(self, text: str) -> "Origins":
        """The origins of another text, which is the user's from the first difference on."""
        before = "".join(each.text for each in self.segments)
        same = common_prefix_length(before, text, eq)
        origins = self.beginning(same)
        origins._join(text[same:], EDITED)
        return origins

    def append(self, text: str, origin: str) -> None:
        """Add one token; its text may be empty."""
        self.counts[origin] += 1
        self._join(text, origin)

    def append_rest(self, text: str) -> None:
        """Add text that was held back; it belongs to the last token."""
        self._join(text, self.segments[-1].origin if self.segments else PLAIN)

    def _join(self, text: str, origin: str) -> None:
        if not text:
            return
        if self.segments and self.segments[-1].origin == origin:
            text = self.segments.pop().text + text
        self.segments.append(OriginSegment(text, origin))

    @property
    def names(self) -> Sequence[str]:
        """Every origin that occurs, drafters first."""
        found = dict.fromkeys([*self.counts, *(each.origin for each in self.segments)])
        drafters = [origin for origin in found if origin not in _NOT_DRAFTED]
        return [*drafters, *(origin for origin in _NOT_DRAFTED if origin in found)]

    @property
    def drafted(self) -> int:
        """How many tokens were drafted."""
        return sum(count for origin, count in self.counts.items() if origin not in _NOT_DRAFTED)

    @property
    def latest_drafter(self) -> str | None:
        """The drafter of the last drafted segment, or None."""
        origins = (each.origin for each in reversed(self.segments))
        return next((origin for origin in origins if origin not in _NOT_DRAFTED), None)
