"""Load check: a new model file, and a new build of llama.cpp, are first tried in a child process.

llama.cpp ends the whole process on some files whose header is valid, and some builds of it do on
every file; here only the child ends. What it showed is remembered.
"""

import logging
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative, part_paths
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.reader import Header, display_name
from localspec.llama import extra_buffers
from localspec.llama.smoke_test import run_smoke_test
from localspec.loading.verdicts import not_started, remembered_verdict, require_memory
from localspec.models import registry
from localspec.utils.child_process import BEGUN, ChildExit

# Checks of smaller files take less than a second and are not logged.
_LOGGED_FROM_BYTES = 300e6
_log = logging.getLogger(__name__)
# A slow disk reads so much; a small model takes a fraction of a second.
_LEAST_SECONDS, _BYTES_PER_SECOND = 60, 10e6
_REMEDY_LIBRARY = "this build of llama.cpp does not suit this machine; run localspec doctor"
_REMEDY_FILE = "download it again or pass another quantization"


def loadable_header(path: Path) -> Header:
    """Return the header of a model that can generate text and does not crash llama.cpp.

    Raises ModelNotFoundError or ModelLoadError.
    """
    header = check_generative(path)
    require_loadable(path, header)
    return header


def loadable_facts(path: Path) -> Facts:
    """Check a model as `loadable_header` does, and read the headers of all its files once."""
    return facts_of(path, loadable_header(path))


def require_loadable(path: Path, header: Header) -> None:
    """Raise ModelLoadError if llama.cpp crashes in a child process that decodes from this model.

    header: of the model's first part. The result is remembered as long as the files and the library
    stay the same. A failure that may pass (memory, time) raises too, and is not remembered.

    The library is checked before the first file. The bundled models are valid: they are checked
    only where the library is not, to tell what else is wrong with it.
    """
    check_extra_buffers()
    target, drafter = registry.bundled()
    if path.samefile(drafter) or (path.samefile(target) and extra_buffers.remembered()):
        return
    files = part_paths(path, header)
    size = sum(file.stat().st_size for file in files)
    crash = remembered_verdict("load_checks", "crash", files, lambda: _check_file(path, size))
    if crash:
        raise _refusal(path, crash)


def check_extra_buffers() -> None:
    """Find out whether this build of llama.cpp can decode from its extra buffer types here.

    A child process decodes from the bundled target, once per build and processor. If it crashes,
    all models are loaded without these buffer types from then on. A child that fails otherwise
    tells nothing, and nothing is remembered: the check of the file then meets the same failure.
    """
    if extra_buffers.remembered() is not None:
        return
    target = registry.bundled().target
    try:
        ended = run_smoke_test(
            target, extra_buffers=True, seconds=_LEAST_SECONDS, action="trying out llama.cpp"
        )
    except OSError:
        return
    works, began = ended.exit_code == 0, BEGUN in ended.output
    if works or (began and ended.crashed):
        extra_buffers.remember(works=works)


def _check_file(path: Path, size: int) -> str:
    """Return how llama.cpp crashed, an empty text if it did not.

    size: of all parts, in bytes. Raises ModelLoadError for a result that is not to be remembered.
    """
    seconds = _LEAST_SECONDS + size / _BYTES_PER_SECOND
    if size > _LOGGED_FROM_BYTES:
        _log.info("%s is new on this machine: testing it once", path.name)
    try:
        # The weights stay in the file's pages: this is about the file, and copying it takes long.
        ended = run_smoke_test(
            path, extra_buffers=False, seconds=seconds, action=f"trying out {path.name}"
        )
    except OSError as error:
        raise not_started(display_name(path), error) from error
    if ended.timed_out:
        raise _refusal(path, f"it did not decode three tokens within {seconds:.0f} s")
    return _crash(path, ended)


def _crash(path: Path, ended: ChildExit) -> str:
    if ended.exit_code == 0:
        return ""
    require_memory(ended, display_name(path))
    if BEGUN not in ended.output:
        raise ModelLoadError(
            f"{display_name(path)} cannot be tried out: {ended.reason}; reinstall localspec"
        )
    if ended.exit_code == ModelLoadError.exit_code:
        raise ModelLoadError(
            f"{display_name(path)} {ended.last_error}; check that the file is complete and that "
            "this llama.cpp is new enough for it"
        )
    crash = f"llama.cpp ended ({ended.reason})"
    if ended.crashed:
        return crash
    raise _refusal(path, crash)


def _refusal(path: Path, what: str) -> ModelLoadError:
    bundled = any(path.samefile(each) for each in registry.bundled())
    remedy = _REMEDY_LIBRARY if bundled else _REMEDY_FILE
    return ModelLoadError(f"{display_name(path)} cannot be used: {what}; {remedy}")
