"""Expected speed: what a drafter of a certain acceptance would make of plain decoding."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from localspec.conversion.target import TargetFile
from localspec.distillation.work_folder import WorkFolder
from localspec.gguf.facts import facts_of
from localspec.models.speed_up import best_speed, step_costs
from localspec.training.drafter_kind import TrainableDrafter

_UNTRAINED = "untrained.gguf"


class ExpectedSpeed:
    """By the bytes that a pass reads, as `localspec pair`, and the acceptance at each place.

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
        """The speed-up. rates: the acceptance by place of a draft behind right ones.

        One rate stands for all places.
        """
        costs = [*step_costs(self._target, self._drafter, self._kind).values()]
        by_place = [*rates] * len(costs) if len(rates) == 1 else rates
        return best_speed(accumulate(by_place, mul), costs)
