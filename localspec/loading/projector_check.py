"""Projector check: a new file that reads images is first tried in a child process.

llama.cpp loads files that lack tensors, and ends the whole process with the first image. What the
child showed is remembered.
"""

from localspec.errors import ModelLoadError
from localspec.gguf.projectors import ProjectorFile
from localspec.gguf.reader import display_name
from localspec.llama.media import mtmd_library
from localspec.llama.projector_trial import BEGUN, run_projector_trial
from localspec.loading.verdicts import remembered_verdict, require_memory
from localspec.utils.option_names import option

# A slow disk reads so much.
_LEAST_SECONDS, _BYTES_PER_SECOND = 60, 10e6


def require_usable(projector: ProjectorFile) -> None:
    """Raise ModelLoadError if llama.cpp refuses a projector, or ends the process with it.

    An end is remembered as long as the file and the library stay the same.
    """
    mtmd_library()  # a build may lack it
    crash = remembered_verdict(
        "projector_checks", "crash", [projector.path], lambda: _crash(projector)
    )
    if crash:
        raise _refusal(projector, f"llama.cpp ended ({crash})")


def _crash(projector: ProjectorFile) -> str:
    """How llama.cpp ended, an empty text if it did not.

    Raises ModelLoadError for a result that is not to be remembered.
    """
    path, name = projector.path, display_name(projector.path.name)
    seconds = _LEAST_SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    try:
        ended = run_projector_trial(path, seconds=seconds, action=f"trying out {path.name}")
    except OSError as error:
        raise ModelLoadError(
            f"{name} cannot be tried out: {error.strerror or error}; no process could be started "
            "for it"
        ) from error
    if ended.exit_code == 0:
        return ""
    require_memory(ended, name)
    if ended.timed_out:
        raise _refusal(projector, f"it was not loaded within {seconds:.0f} s")
    if BEGUN in ended.output and ended.crashed:
        return ended.reason
    raise _refusal(projector, ended.reason)


def _refusal(projector: ProjectorFile, why: str) -> ModelLoadError:
    name = display_name(projector.path.name)
    return ModelLoadError(
        f"{name} cannot be used: {why}; download it again, or name another with {option('mmproj')}"
    )
