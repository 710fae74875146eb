"""Training place: the device that trains a drafter, or the processor where that is too small."""

from collections.abc import Callable

import torch

from localspec.distillation.material import Material
from localspec.errors import InvalidValueError, LocalspecError
from localspec.training.device import (
    AUTO,
    choose_device,
    described,
    free_bytes,
    give_back_memory,
    is_not_computed,
    is_out_of_main_memory,
    is_out_of_memory,
)
from localspec.training.drafter_kind import TrainableDrafter
from localspec.training.training_size import TrainingSize
from localspec.utils.format import format_bytes
from localspec.utils.host_memory import host_memory

_ROOM = "close other programs and --resume, or train a smaller drafter, or "


class TrainingPlace:
    """Where torch trains. asked: one of DEVICES. say: called with a line when it changes.

    size: of the training. smaller: given free bytes, the option with which it fits there; empty
    where there is none. device: torch's. Raises InvalidValueError for a device that is not here.
    """

    def __init__(
        self,
        asked: str,
        say: Callable[[str], None],
        size: TrainingSize,
        smaller: Callable[[int], str] = lambda _free: "",
    ) -> None:
        self.device = choose_device(asked)
        self._is_fixed, self._say = asked != AUTO, say
        self._size, self._smaller = size, smaller

    def __str__(self) -> str:
        return described(self.device)

    @property
    def needed(self) -> int:
        """The bytes of memory that training takes, about."""
        return self._size.bytes

    def free_of(self, material: Material) -> None:
        """Free the target where it may be on the device that torch is about to use."""
        if self.is_shared:
            material.release()

    def require_room(self) -> None:
        """Raise InvalidValueError where no device has room; before anything is loaded.

        In main memory such a training would be swapped in every step, or killed.
        """
        if self.is_shared and not self._too_small():
            return
        free = host_memory()
        if self._size.bytes > free:
            raise InvalidValueError(
                f"{self._size.in_words} of main memory, and {format_bytes(free)} are free: close "
                f"other programs{self._fitting(', or name {}, which fits', free)}"
            )

    def take(self, drafter: TrainableDrafter) -> None:
        """Move a drafter to the device; if that is too small, to the processor, or refuse."""
        if problem := self._too_small():
            self.device = choose_device("cpu")
            self._say(problem)
        if self.device.type == "cpu":
            self._say_if_short(drafter)
        self.enter(drafter)

    def _too_small(self) -> str:
        """The line of a GPU that is too small; empty where it is not.

        Raises InvalidValueError where the user has named it.
        """
        free = free_bytes(self.device)
        if free is None or self._size.bytes <= free:
            return ""
        what = f"{self._size.in_words}, and {format_bytes(free)} are free on {self}"
        if self._is_fixed:
            others = " or ".join(filter(None, [self._smaller(free), "--device cpu"]))
            raise InvalidValueError(f"{what}; {others} fits")
        return f"{what}: the processor trains it{self._fitting(', and {} fits there', free)}"

    def _fitting(self, said: str, free: int) -> str:
        """What fits in so many bytes, in words; empty where nothing does."""
        fits = self._smaller(free)
        return fits and said.format(fits)

    def _say_if_short(self, drafter: TrainableDrafter) -> None:
        """Say where other programs have taken main memory since; what is swapped is slow."""
        # The weights themselves are there already, frozen ones too.
        here = sum(each.numel() * each.element_size() for each in drafter.parameters())
        free = host_memory() + here
        if self._size.bytes > free:
            self._say(
                f"{self._size.in_words} of main memory, and {format_bytes(free)} are free: close "
                f"other programs, or train a smaller drafter{self._fitting(' ({} fits)', free)}"
            )

    def enter(self, drafter: TrainableDrafter) -> TrainableDrafter:
        """Move a drafter to the device, which it has room on."""
        return drafter.to(self.device)

    def leave(self, drafter: TrainableDrafter) -> None:
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
