"""The errors that localspec raises on purpose, with the command line's exit code for each.

    LocalspecError            1   something unexpected, or that the system refuses (a full disk)
    ├── InvalidValueError     2   an option or argument makes no sense (also a ValueError)
    │   └── ContextFullError      a message fits the context, but not with the turns before it
    ├── ModelNotFoundError    3   no such model (also a FileNotFoundError)
    ├── HubError              4   the Hub cannot be reached or refuses access
    ├── ModelLoadError        5   the file is no usable model, or does not fit in memory
    │   └── OutOfMemoryError      memory ran out that was free when loading was planned
    ├── DrafterMismatchError  6   this drafter cannot draft for this target
    ├── ExactnessError        7   a text is not what its seed gives, and not by rounding
    ├── WorkerError           8   another machine cannot be used for a model, or is gone
    ├── DeviceError           1   a device of this machine has failed in a pass
    └── PassError             1   llama.cpp refuses to compute a pass

A message is one line: the problem, the value, and what to do instead.
"""


class LocalspecError(Exception):
    """Base of every error localspec raises on purpose."""

    exit_code = 1


class InvalidValueError(LocalspecError, ValueError):
    """An option or argument has a value that makes no sense here."""

    exit_code = 2


class ContextFullError(InvalidValueError):
    """A message fits the context, but not together with the turns before it."""


class ModelNotFoundError(LocalspecError, FileNotFoundError):
    """There is no model of this name."""

    exit_code = 3


class HubError(LocalspecError):
    """The Hub cannot be reached, refuses access, or sends other data than announced."""

    exit_code = 4


class ModelLoadError(LocalspecError):
    """A model cannot be loaded on this machine, or memory is too small for another text."""

    exit_code = 5


class OutOfMemoryError(ModelLoadError):
    """Memory ran out that was free when loading was planned."""


class DrafterMismatchError(LocalspecError):
    """The drafter asked for cannot draft for this target."""

    exit_code = 6


class ExactnessError(LocalspecError):
    """A text is not what its seed gives, and floating-point rounding does not explain it."""

    exit_code = 7


class WorkerError(LocalspecError):
    """A worker (`--rpc`) cannot be reached, is of another version, or is gone."""

    exit_code = 8


class DeviceError(LocalspecError):
    """A device of this machine has failed in a pass; what a context held there is lost."""


class PassError(LocalspecError):
    """The library did not compute a pass; a context holds what it held before."""


# What computes a model is gone, or does not compute it: a text can go on without a drafter.
LOST = (WorkerError, DeviceError, PassError)
