"""Equal digits: which passes of a model give a token logits of the same bits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

# Above any number of rows, and of tokens in a trial.
_MOST = 1 << 20
Groups = tuple[tuple[int, ...], ...]
_BESIDE = {
    None: "",
    True: "; other texts in the cache change none",
    False: "; other texts in the cache change last digits",
}


@dataclass(frozen=True, slots=True)
class EqualDigits:
    """What a trial on this machine found.

    groups: the widths (rows of a pass) that were tried. Widths of one group gave each token logits
    of equal bits; widths of two groups did not. behind: tokens of context in the trial. company:
    whether a text's logits kept their bits beside another text in the KV cache, in a pass that both
    shared, and in cells that another text had left; None if that was not tried.
    """

    groups: Groups
    behind: int
    company: bool | None = None

    @property
    def by_width(self) -> bool:
        """Whether all widths tried gave equal logits."""
        return len(self.groups) == 1

    def with_one_row_apart(self) -> "EqualDigits":
        """Return the same, but that passes of one row agree with no others."""
        others = (tuple(width for width in group if width != 1) for group in self.groups)
        return replace(self, groups=((1,), *filter(None, others)))

    def __str__(self) -> str:
        """One line: whether drafts, which make passes wider, change digits of the scores."""
        equal = [_ranges(group) for group in self.groups if len(group) > 1]
        alone = _ranges(sorted(group[0] for group in self.groups if len(group) == 1))
        effect = "change no digit" if self.by_width else "may change last digits"
        if equal:
            others = f", others over {alone}" if alone else ""
            where = f"the same in passes over {', and over '.join(equal)} tokens{others}"
        else:
            where = f"others in each of the passes over {alone} tokens"
        return f"drafts {effect} of scores (logits): {where}{_BESIDE[self.company]}"

    def as_dict(self) -> dict[str, Any]:
        """The finding, for JSON."""
        return {
            "by_width": self.by_width,
            "equal_widths": [list(group) for group in self.groups],
            "behind": self.behind,
            "in_company": self.company,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "EqualDigits":
        """The inverse of `as_dict`. Raises KeyError, TypeError or ValueError for anything else."""
        groups = tuple(tuple(int(width) for width in group) for group in record["equal_widths"])
        company = record["in_company"]
        behind = int(record["behind"])
        numbers = [behind, *(width for group in groups for width in group)]
        if not groups or not all(groups) or not isinstance(company, bool | None):
            raise ValueError("not a record of equal digits")
        if not all(0 <= number < _MOST for number in numbers):
            raise ValueError("no numbers of tokens")
        return cls(groups, behind, company)


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 8 as `1-3, 8`."""
    runs = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
