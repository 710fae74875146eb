"""Everything localspec raises on purpose, and the exit code each gives the command line.

    LocalspecError            1   something unexpected
    ├── InvalidValueError     2   an option or argument makes no sense (also a ValueError)
    │   └── ContextFullError      a message fits, but not with all that was said before it
    ├── ModelNotFoundError    3   no such model (also a FileNotFoundError)
    ├── HubError              4   the network or the Hub would not, or you may not
    ├── ModelLoadError        5   the file is no usable model, or does not fit in memory
    ├── DrafterMismatchError  6   this drafter cannot draft for this target
    └── ExactnessError        7   a text is not what its seed gives, and floats do not explain it

A message is one line: what is wrong, with the value, and what to do instead.
"""


class LocalspecError(Exception):
    """Base of every error localspec raises on purpose."""

    exit_code = 1


class InvalidValueError(LocalspecError, ValueError):
    """An option or argument has a value that makes no sense here."""

    exit_code = 2


class ContextFullError(InvalidValueError):
    """A message fits in the context, but not with all that was said before it."""


class ModelNotFoundError(LocalspecError, FileNotFoundError):
    """The model named does not exist."""

    exit_code = 3


class HubError(LocalspecError):
    """The Hub cannot be reached, refuses, or sends something else than it promised."""

    exit_code = 4


class ModelLoadError(LocalspecError):
    """The file exists but is not a model that can generate text on this machine."""

    exit_code = 5


class DrafterMismatchError(LocalspecError):
    """The drafter asked for cannot draft for this target."""

    exit_code = 6


class ExactnessError(LocalspecError):
    """A text is not what it was promised to be, and floating-point numbers do not explain it."""

    exit_code = 7
