"""Drafter kind: what training needs to know of a kind of drafter, and what a kind gives it.

A kind says which rows of the target it reads (`Kind.layers`). The target then writes and reads
texts, and the kind makes a `TrainableDrafter` (`Kind.create`): a torch module with its loss over a
batch, its agreement with the target, and its file. Rounds, checkpoints, progress and the forecast
are the same for all kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from localspec.conversion.target import TargetFile
from localspec.errors import InvalidValueError
from localspec.gguf.fingerprint import fingerprint
from localspec.training.acceptance_loss import Agreement
from localspec.training.examples import Batch
from localspec.training.training_size import TrainingSize

# How layers are cut out of a target.
CUTS = ("auto", "first", "evenly", "influence")


@dataclass(frozen=True, slots=True)
class KindOptions:
    """What a user may say about the drafter. None, and "auto": as suits the target.

    layers: of a draft model. cut: which, one of CUTS. type_name: of the matrices in the file.
    head: the file of a head of the kind, to train further. kept: the numbers of a draft model's
    layers in the target, in place of a choice.
    """

    layers: int | None = None
    cut: str = "auto"
    type_name: str = "Q8_0"
    head: Path | None = None
    kept: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.cut not in CUTS:
            raise InvalidValueError(f"cut is {self.cut!r}; it is one of {', '.join(CUTS)}")

    @property
    def key(self) -> list[object]:
        """What a training depends on, for its work folder."""
        kept = [list(self.kept)] if self.kept else []
        head = self.head and fingerprint(self.head)
        return [self.layers, self.cut, self.type_name, head, *kept]

    def require_no_cut(self, kind: str) -> None:
        """Raise InvalidValueError where options of a draft model were given for another kind."""
        is_cut = self.cut != CUTS[0]
        given = {"layers": self.layers is not None, "cut": is_cut, "kept": bool(self.kept)}
        for name, is_given in given.items():
            if is_given:
                raise InvalidValueError(
                    f"{name} is {getattr(self, name)!r}, which is for draft models; leave it out "
                    f"for {kind}"
                )


class TrainableDrafter(nn.Module, ABC):
    """A drafter that is trained. Parameters that need no gradient stay as they are.

    Random numbers come from torch's default generator, which is seeded before each shard.
    """

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """What is to become smaller: a mean over the batch, with its gradient."""

    @abstractmethod
    def agreement(self, batch: Batch) -> Sequence[Agreement]:
        """How far it agrees with the target, for each place of a draft behind right ones.

        The first is that of the first drafted token. One entry stands for all places. It is called
        without gradients.
        """

    @abstractmethod
    def export(self, path: Path, about: Mapping[str, object]) -> None:
        """Write the drafter as a GGUF that localspec loads. about: metadata for all kinds."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The numbers of the target's layers that it is made of; none for a head."""
        return ()

    @property
    def note(self) -> str:
        """What was decided about it, in a few words; empty if nothing was."""
        return ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of drafter.

    layers: the layers of the target whose hidden rows it reads, as in `Pass.hidden`. Raises
    DrafterMismatchError for a target that it cannot be trained for. create: the untrained drafter;
    the batches are a few of those that it will be trained on. size: what its training will take,
    for the layers that it reads.
    """

    name: str
    layers: Callable[[TargetFile, KindOptions], tuple[int, ...]]
    create: Callable[[TargetFile, KindOptions, Sequence[Batch]], TrainableDrafter]
    size: Callable[[TargetFile, KindOptions, Sequence[int]], TrainingSize]
