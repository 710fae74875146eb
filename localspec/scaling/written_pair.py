"""Written pair: the scaled pair that `localspec demo` has left on this disk."""

from localspec.errors import InvalidValueError
from localspec.models import registry
from localspec.scaling.demo_pair import DemoPair
from localspec.utils.paths import cache_folder


def written_pair() -> DemoPair | None:
    """Return the pair that the demo wrote last and that is complete; None if there is none."""
    stem = registry.bundled().target.stem
    files = cache_folder("demo").glob(f"{stem}-*-*-*.gguf")
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        size, type_name, _ = file.stem.removeprefix(f"{stem}-").split("-", 2)
        try:
            pair = DemoPair(size, type_name)
        except InvalidValueError:
            continue  # not the name of a pair
        if pair.target == file and not pair.missing:
            return pair
    return None
