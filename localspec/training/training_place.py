"""Training place: the device that trains a drafter, or the processor where that is too small."""

from collections.abc import Callable

import torch

from localspec.distillation.material import Material
from localspec.errors import InvalidValueError, LocalspecError
from localspec.training.device import (
    AUTO,
    bytes_needed,
    choose_device,
    described,
    free_bytes,
    give_back_memory,
    is_not_computed,
    is_out_of_main_memory,
    is_out_of_memory,
)
from localspec.training.drafter_kind import TrainedDrafter
from localspec.utils.format import format_bytes
from localspec.utils.host_memory import host_memory

_ROOM = "close other programs and --resume, or train a smaller drafter, or "


class TrainingPlace:
    """Where torch trains. asked: one of DEVICES. say: called with a line when it changes.

    device: torch's. needed: bytes of memory that training takes, once a drafter is there. Raises
    InvalidValueError for a device that is not here.
    """

    def __init__(self, asked: str, say: Callable[[str], None]) -> None:
        self.device = choose_device(asked)
        self._is_fixed, self._say = asked != AUTO, say
        self.needed = 0

    def __str__(self) -> str:
        return described(self.device)

    def free_of(self, material: Material) -> None:
        """Free the target where it may be on the device that torch is about to use."""
        if self.is_shared:
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
        if self.device.type == "cpu":
            self._say_if_short(drafter, needed)
        self.needed = needed
        self.enter(drafter)

    def _say_if_short(self, drafter: TrainedDrafter, needed: int) -> None:
        """Say where main memory has no room for a training; what of it is swapped is slow."""
        # The weights themselves are there already, frozen ones too.
        here = sum(each.numel() * each.element_size() for each in drafter.parameters())
        free = host_memory() + here
        if needed > free:
            fits = drafter.smaller(free)
            self._say(
                f"training takes about {format_bytes(needed)} of main memory, and "
                f"{format_bytes(free)} are free: close other programs, or train a smaller drafter"
                f"{fits and f' ({fits} fits)'}"
            )

    def enter(self, drafter: TrainedDrafter) -> TrainedDrafter:
        """Move a drafter to the device, which it has room on."""
        return drafter.to(self.device)

    def leave(self, drafter: TrainedDrafter) -> None:
        """Move a drafter to main memory, so that the target can be on the device."""
        drafter.to("cpu")
        give_back_memory()

    def give_up(self, error: RuntimeError) -> None:
        """Go on with the processor, as the device cannot train this after all.

        Raises the error if it says something else, and LocalspecError if the user has named the
        device, or main memory is too small.
        """
        is_small = is_out_of_memory(error)
        if is_out_of_main_memory(error) or (is_small and not self.is_shared):
            raise LocalspecError(
                "main memory is too small for this training; close other programs and --resume, or "
                "train a smaller drafter"
            ) from error
        if is_small:
            what, remedy = f"the memory of {self} is too small for this training", _ROOM
        elif self.is_shared and is_not_computed(error):
            said = str(error).partition("\n")[0].rstrip(".")
            what, remedy = f"torch {torch.__version__} cannot train on {self} ({said})", ""
        else:
            raise error
        if self._is_fixed:
            raise LocalspecError(f"{what}; {remedy}go on with --device cpu --resume") from error
        self.device = torch.device("cpu")
        self._say(f"{what}: the processor trains it from here")

    @property
    def is_shared(self) -> bool:
        """Whether the target may be there too."""
        return self.device.type != "cpu"
