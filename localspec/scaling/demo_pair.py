"""Demo pair: the bundled pair scaled to the cost of models people use, kept in the cache."""

from contextlib import suppress

from localspec.errors import LocalspecError
from localspec.models import registry
from localspec.scaling.scale import scaled_file, scaled_model
from localspec.scaling.shape import parse_parameters
from localspec.utils.paths import cache_folder

TYPES = ("F16", "Q8_0", "Q4_0")
# Most targets are about so many times as large as a drafter of their own family.
_TARGET_TO_DRAFTER = 12
# The fewest parameters of a scaled drafter.
_SMALLEST_DRAFTER = 32e6
# Smaller targets get the bundled drafter, not scaled.
_SMALLEST_TARGET = 0.25e9


class DemoPair:
    """A target of about `size` parameters (such as "0.5B"), and a drafter for it.

    parameters, type_name: of the target. target, drafter: their files. missing: bytes that `write`
    would write.

    Raises InvalidValueError for a size that is no number of parameters, that is smaller than the
    bundled target, or that does not fit on the disk or in memory.
    """

    def __init__(self, size: str, type_name: str) -> None:
        bundled = registry.bundled()
        self.folder = cache_folder("demo")
        self.parameters = size
        self.type_name = type_name
        self._sources = [(bundled.target, size)]
        parameters = parse_parameters(size)
        if parameters >= _SMALLEST_TARGET:
            drafter = max(parameters / _TARGET_TO_DRAFTER, _SMALLEST_DRAFTER)
            self._sources.append((bundled.drafter, f"{drafter / 1e6:.0f}M"))
        files = [scaled_file(*source, type_name, self.folder) for source in self._sources]
        self.target = files[0].path
        self.drafter = files[1].path if len(files) > 1 else bundled.drafter
        self.missing = sum(file.missing_bytes for file in files)

    def write(self) -> None:
        """Write the files that do not exist; a file that cannot be finished is deleted.

        Raises LocalspecError if the folder cannot be written to.
        """
        try:
            for source in self._sources:
                scaled_model(*source, self.type_name, self.folder)
        except OSError as error:
            raise LocalspecError(
                f"the pair cannot be written to {self.folder}: {error.strerror}; "
                "set LOCALSPEC_HOME to a folder elsewhere"
            ) from error

    def delete(self) -> None:
        """Delete its files, but not those of the bundled pair."""
        for file in (self.target, self.drafter):
            if file.parent == self.folder:
                file.unlink(missing_ok=True)


def remove() -> int:
    """Delete every demo pair; return how many bytes that frees."""
    freed = 0
    folder = cache_folder("demo")
    for file in [*folder.glob("*.gguf"), *folder.glob(".*.part")]:
        size = file.stat().st_size
        file.unlink()
        freed += size
    with suppress(OSError):
        folder.rmdir()
    return freed
