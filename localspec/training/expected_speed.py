"""Expected speed: what a drafter of a certain acceptance would make of plain decoding."""

from collections.abc import Sequence

from localspec.conversion.target import TargetFile
from localspec.distillation.work_folder import WorkFolder
from localspec.gguf.facts import facts_of
from localspec.models.speed_up import PairMeasurement, estimate_speed_up
from localspec.training.drafter_kind import TrainableDrafter

_UNTRAINED = "untrained.gguf"


class ExpectedSpeed:
    """The estimate of `localspec pair`: by the bytes that a pass reads, and the acceptance.

    The drafter's file is written once, for its bytes, and deleted.
    """

    def __init__(
        self, target: TargetFile, drafter: TrainableDrafter, kind: str, folder: WorkFolder
    ) -> None:
        self._target, self._kind = target.facts, kind
        path = folder.path / _UNTRAINED
        try:
            with folder.writing():
                drafter.export(path, {})
            self._drafter = facts_of(path)
        finally:
            path.unlink(missing_ok=True)

    def at(self, rates: Sequence[float]) -> float:
        """The speed-up. rates: the acceptance by place of a draft."""
        measured = PairMeasurement(rate=sum(rates) / len(rates))
        return estimate_speed_up(self._target, self._drafter, measured, self._kind).high
