"""Demo pair: the bundled pair at the cost of models people use, written once into the cache."""

from contextlib import suppress

from localspec.errors import LocalspecError
from localspec.models import registry
from localspec.scaling.scale import outlook, scaled
from localspec.scaling.shape import parse_parameters
from localspec.utils.paths import cache_folder

TYPES = ("F16", "Q8_0", "Q4_0")
# Of targets with drafters of their own family, most are about so many times their drafter's size.
_TIMES = 12
# A scaled drafter is no smaller than the first; for targets below the second, the bundled one does.
_LEAST = 32e6
_LEAST_TARGET = 0.25e9


class DemoPair:
    """A target of about `size` parameters (such as "0.5B"), and a drafter for it.

    Raises InvalidValueError for a size that makes no sense, or that does not fit on the disk or
    in memory.
    """

    def __init__(self, size: str, type_name: str) -> None:
        bundled = registry.bundled()
        self.folder = cache_folder("demo")
        self._type = type_name
        self._sources = [(bundled.target, size)]
        parameters = parse_parameters(size)
        if parameters >= _LEAST_TARGET:
            drafter = max(parameters / _TIMES, _LEAST)
            self._sources.append((bundled.drafter, f"{drafter / 1e6:.0f}M"))
        places = [outlook(*source, type_name, self.folder) for source in self._sources]
        self.target = places[0][0]
        self.drafter = places[1][0] if len(places) > 1 else bundled.drafter
        self.missing = sum(size for _, size in places)

    def write(self) -> None:
        """Write what is missing; nothing stays of a file that could not be finished."""
        try:
            for source in self._sources:
                scaled(*source, self._type, self.folder)
        except OSError as error:
            raise LocalspecError(
                f"the pair cannot be written to {self.folder}: {error.strerror}; "
                "set LOCALSPEC_HOME to a folder elsewhere"
            ) from error


def remove() -> int:
    """Delete every demo pair; the bytes that are free again."""
    freed = 0
    folder = cache_folder("demo")
    for file in [*folder.glob("*.gguf"), *folder.glob(".*.part")]:
        size = file.stat().st_size
        file.unlink()
        freed += size
    with suppress(OSError):
        folder.rmdir()
    return freed
