"""Usual pair: what `bench` and `plan` measure where the user names no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.spec import DraftOption
from localspec.models import registry
from localspec.scaling.written_pair import written_pair

_BUNDLED = (
    "no model named, so the bundled pair, which is too quick for drafts to pay; localspec demo "
    "writes a larger one, without a download, and then bench and plan measure that"
)


@dataclass(frozen=True, slots=True)
class UsualPair:
    """A pair that shows drafts at work. note: which it is, for the user.

    drafter: of the demo's pair, which `auto` does not know; None: as `auto` finds it. temperature:
    where the user gives none; None is the model's own.
    """

    target: Path
    drafter: Path | None
    temperature: float | None
    note: str

    def drafting(self, asked: str) -> DraftOption | Sequence[DraftOption]:
        """What drafts for `--draft`: `auto` has the pair's drafter, too."""
        return ("suffix", str(self.drafter)) if asked == "auto" and self.drafter else asked


def usual_pair() -> UsualPair:
    """The scaled pair that `localspec demo` wrote, at temperature 0; else the bundled pair."""
    if demo := written_pair():
        note = f"no model named, so the pair that localspec demo wrote: {demo.target.stem}"
        return UsualPair(demo.target, demo.drafter, 0, note)
    return UsualPair(registry.bundled().target, None, None, _BUNDLED)
