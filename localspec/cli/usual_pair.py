"""Usual pair: what `bench` and `plan` measure, also where the user names no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.spec import DraftOption
from localspec.models import registry
from localspec.models.locate import locate
from localspec.scaling.written_pair import written_pair

_BUNDLED = (
    "no model named, so the bundled pair, which is too quick for drafts to pay; localspec demo "
    "writes a larger one, without a download, and then bench and plan measure that"
)


@dataclass(frozen=True, slots=True)
class UsualPair:
    """A target, and what goes with it where the user says nothing.

    drafter: of the demo's pair, which `auto` does not know; None: as `auto` finds it. temperature:
    None is the model's own. note: which pair it is, for a user who named none.
    """

    target: Path
    drafter: Path | None = None
    temperature: float | None = None
    note: str | None = None

    def drafting(self, asked: str) -> DraftOption | Sequence[DraftOption]:
        """What drafts for `--draft`: `auto` has the pair's drafter, too."""
        return ("suffix", str(self.drafter)) if asked == "auto" and self.drafter else asked


def usual_pair(model: str | None) -> UsualPair:
    """That of the model; None: the scaled pair of `localspec demo`, else the bundled one.

    Raises ModelNotFoundError for a missing model.
    """
    if model is not None:
        return UsualPair(locate(model))
    if demo := written_pair():
        note = f"no model named, so the pair that localspec demo wrote: {demo.target.stem}"
        return UsualPair(demo.target, demo.drafter, 0, note)
    return UsualPair(registry.bundled().target, note=_BUNDLED)
