"""Placement: where the layers of a model are: on GPUs, on other machines, on the processor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec.errors import InvalidValueError
from localspec.utils.format import counted
from localspec.workers.address import Address, parse_addresses

# How several devices share a model: whole layers, or the rows of each matrix. With rows, llama.cpp
# loads a model on SYCL alone; it has given them up for CUDA.
SPLIT_MODES = ("layer", "row")
# How a file gets into memory, by llama.cpp's names; dio reads past the system's cache.
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
# The names of the processor, which is used in any case.
_PROCESSOR = ("none", "cpu")
# Far more than models have.
_MOST_LAYERS = 9999
_LARGEST_SHARE = 1e9


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the layers of a model are. All layers that are on no device are on the processor.

    gpu_layers: how many layers are on devices, the last ones; None and -1: all.
    devices: GPUs by their names (CUDA0), and workers by their addresses (HOST:PORT), in the order
        in which they get layers; None: all GPUs; (): none.
    rpc: addresses of workers, which get layers before `devices` do.
    split_mode: one of SPLIT_MODES. tensor_split: the share of each device or worker, in any unit;
        (): by free memory.
    cpu_moe: in so many layers, from the first, the experts are on the processor; -1: in all.

    Raises InvalidValueError.
    """

    gpu_layers: int | None = None
    devices: tuple[str, ...] | None = None
    rpc: tuple[str, ...] = ()
    split_mode: str = SPLIT_MODES[0]
    tensor_split: tuple[float, ...] = ()
    cpu_moe: int = 0

    def __post_init__(self) -> None:
        for name, value in (("gpu_layers", self.gpu_layers), ("cpu_moe", self.cpu_moe)):
            if value is not None and not -1 <= value <= _MOST_LAYERS:
                raise InvalidValueError(
                    f"{name} is {value}; it must be a number of layers, or -1 for all"
                )
        if self.split_mode not in SPLIT_MODES:
            choices = " or ".join(SPLIT_MODES)
            raise InvalidValueError(f"split_mode is {self.split_mode!r:.80}; it must be {choices}")
        shares = self.tensor_split
        if shares and not (all(map(_is_share, shares)) and sum(shares) > 0):
            raise InvalidValueError(
                f"tensor_split is {','.join(map(str, shares)):.80}; it must be a share of each "
                "device, such as 3,1"
            )
        _ = self.workers

    @property
    def is_on_processor(self) -> bool:
        """Whether no layer is on a device."""
        return self.gpu_layers == 0 or (self.devices == () and not self.rpc)

    @property
    def is_on_devices(self) -> bool:
        """Whether all layers are on devices: none is kept back, by a number or for its experts."""
        return not (self.is_on_processor or self.cpu_moe) and self.gpu_layers in (None, -1)

    def for_layers(self, count: int) -> "Placement":
        """Return the same for a model of `count` layers, where any larger number means all.

        As to the library: its output counts as one layer more. Many people write 99.
        """
        is_all = self.gpu_layers is not None and self.gpu_layers > count
        return replace(self, gpu_layers=-1) if is_all else self

    @property
    def workers(self) -> list[Address]:
        """The workers that are named."""
        named = filter(is_address, self.devices or ())
        return parse_addresses([*self.rpc, *named], "rpc" if self.rpc else "device")

    @property
    def gpus(self) -> tuple[str, ...] | None:
        """The names of this machine's GPUs that get layers; None: all of them."""
        if self.gpu_layers == 0:
            return ()
        if self.devices is None:
            return None
        return tuple(name for name in self.devices if not is_address(name))

    @property
    def experts_pattern(self) -> str | None:
        """A regular expression for the tensors of the experts on the processor; None if none are.

        It means the same to Python and to llama.cpp.
        """
        if not self.cpu_moe:
            return None
        layers = r"\d+" if self.cpu_moe == -1 else "|".join(map(str, range(self.cpu_moe)))
        return rf"^blk\.({layers})\.ffn_(up|down|gate|gate_up)_(ch|)exps"

    @property
    def in_words(self) -> str:
        """What the user asked for, in words."""
        if self.is_on_processor:
            return "on the processor"
        devices = [*self.rpc, *(["GPUs"] if self.devices is None else self.devices)]
        said = f"{_layers(self.gpu_layers)} on {', '.join(devices)}"
        if self.cpu_moe:
            said += f", the experts of {_layers(self.cpu_moe)} on the processor"
        return said


def for_head(target: Placement, named: Placement | None, usual: Sequence[str]) -> Placement:
    """Return where a head is whose target has a placement.

    It may use matrices of its target, so it is where those are. named: where the user wants it:
    then the target's devices come along, and get none of its layers. usual: the GPUs that models
    use.
    """
    if named is None:
        return target
    theirs = usual if target.devices is None else target.devices
    others = [*map(str, parse_addresses(target.rpc)), *theirs]
    wanted = others if named.devices is None else named.devices
    others = [name for name in others if name.lower() not in map(str.lower, wanted)]
    shares = (*(1.0 for _ in wanted), *(0.0 for _ in others))
    return Placement(
        gpu_layers=named.gpu_layers if wanted else 0,
        devices=(*wanted, *others),
        tensor_split=shares if wanted and others else (),
    )


def is_address(device: str) -> bool:
    """Return whether a device is named by the address of a worker."""
    return ":" in device


def parse_devices(names: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Return the devices that a user named, () for `none` alone. Raises InvalidValueError."""
    if names is None:
        return None
    named = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    if len(named) == 1 and named[0].lower() in _PROCESSOR:
        return ()
    for name in named:
        double = [each.lower() for each in named].count(name.lower()) > 1
        if name.lower() in _PROCESSOR or not name or double:
            raise InvalidValueError(
                f"device is {','.join(named)!r:.80}; name each device once, or none alone"
            )
    return tuple(named)


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the numbers in `3,1`. Raises InvalidValueError."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise InvalidValueError(
            f"tensor_split is {text!r:.80}; it must be a share of each device, such as 3,1"
        ) from error


def _layers(count: int | None) -> str:
    return "all layers" if count is None or count == -1 else counted(count, "layer")


def _is_share(value: float) -> bool:
    return 0 <= value <= _LARGEST_SHARE


# As the library chooses.
DEFAULT = Placement()
# Nothing of it takes a GPU's memory, as the buffers of `gpu_layers=0` may.
ON_PROCESSOR = Placement(devices=())
