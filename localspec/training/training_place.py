"""Training place: the device that trains a drafter, or the processor where that is too small."""

from collections.abc import Callable, Sequence

import torch

from localspec.distillation.material import Material
from localspec.distillation.row_cache import Read
from localspec.distillation.shard import Shard
from localspec.distillation.texts import Text
from localspec.errors import InvalidValueError, LocalspecError
from localspec.training.device import (
    AUTO,
    bytes_needed,
    choose_device,
    described,
    free_bytes,
    give_back_memory,
    is_out_of_memory,
)
from localspec.training.drafter_kind import TrainedDrafter
from localspec.utils.format import format_bytes


class TrainingPlace:
    """Where torch trains. asked: one of DEVICES. say: called with a line when it changes.

    device: torch's. Raises InvalidValueError for a device that is not here.
    """

    def __init__(self, asked: str, say: Callable[[str], None]) -> None:
        self.device = choose_device(asked)
        self._is_fixed, self._say = asked != AUTO, say
        self._is_taken = False

    def __str__(self) -> str:
        return described(self.device)

    def free_of(self, material: Material) -> None:
        """Free the target where it may be on the device that torch is about to use."""
        if self._is_shared:
            material.release()

    def take(self, drafter: TrainedDrafter) -> None:
        """Move a drafter to the device; if that is too small, to the processor, or refuse."""
        needed, free = bytes_needed(drafter), free_bytes(self.device)
        if free is not None and needed > free:
            what = (
                f"training takes about {format_bytes(needed)}, and {format_bytes(free)} are free "
                f"on {self}"
            )
            fits = drafter.smaller(free)
            if self._is_fixed:
                others = " or ".join(filter(None, [fits, "--device cpu"]))
                raise InvalidValueError(f"{what}; {others} fits")
            self.device = choose_device("cpu")
            self._say(f"{what}: the processor trains it{fits and f', and {fits} fits there'}")
        self.enter(drafter)

    def enter(self, drafter: TrainedDrafter) -> TrainedDrafter:
        """Move a drafter to the device, which it has room on."""
        self._is_taken = True
        return drafter.to(self.device)

    def leave(self, drafter: TrainedDrafter) -> None:
        """Move a drafter to main memory, so that the target can be on the device."""
        self._is_taken = False
        drafter.to("cpu")
        give_back_memory()

    def reading(self, material: Material) -> Read:
        """How the target reads texts: where a drafter is beside it, it leaves at once."""

        def read(texts: Sequence[Text]) -> Shard:
            give_back_memory()
            shard = material.read(texts)
            if self._is_taken:
                self.free_of(material)
            return shard

        return read

    def give_up(self, error: RuntimeError) -> None:
        """Go on with the processor, as the device's memory is too small after all.

        Raises the error if it says something else, and LocalspecError if the user has named the
        device.
        """
        if not is_out_of_memory(error):
            raise error
        self._is_taken = False
        if not self._is_shared:
            raise LocalspecError(
                "main memory is too small for this training; close other programs and --resume, or "
                "train a smaller drafter"
            ) from error
        small = f"the memory of {self} is too small for this training"
        if self._is_fixed:
            raise LocalspecError(
                f"{small}; close other programs and --resume, or train a smaller drafter, or go on "
                "with --device cpu --resume"
            ) from error
        self.device = torch.device("cpu")
        self._say(f"{small}: the processor trains it from here")

    @property
    def _is_shared(self) -> bool:
        """Whether the target may be there too."""
        return self.device.type != "cpu"
