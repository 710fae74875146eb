"""File trial: a file that could end the process is first tried in a child, once.

llama.cpp loads files that lack tensors, and ends the whole process at the first pass. What the
child showed is remembered.
"""

from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.reader import display_name
from localspec.loading.verdicts import not_started, remembered_verdict, require_memory
from localspec.utils.child_process import BEGUN, ChildProcess
from localspec.utils.option_names import option

# A slow disk reads so much.
_LEAST_SECONDS, _BYTES_PER_SECOND = 60, 10e6


def require_tried(path: Path, folder: str, program: str, named: str) -> None:
    """Raise ModelLoadError if llama.cpp refuses a file, or ends the process with it.

    folder: of the cache, for an end, which is remembered as long as the file and the library stay
    the same. program: the module that tries it, and writes BEGUN. named: the option for another
    one.
    """
    crash = remembered_verdict(folder, "crash", [path], lambda: _crash(path, program, named))
    if crash:
        raise _refusal(path, f"llama.cpp ended ({crash})", named)


def _crash(path: Path, program: str, named: str) -> str:
    """How llama.cpp ended, an empty text if it did not.

    Raises ModelLoadError for a result that is not to be remembered.
    """
    name = display_name(path.name)
    seconds = _LEAST_SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    try:
        with ChildProcess(program, str(path)) as child:
            ended = child.wait(seconds=seconds, action=f"trying out {path.name}")
    except OSError as error:
        raise not_started(name, error) from error
    if ended.exit_code == 0:
        return ""
    require_memory(ended, name)
    if ended.timed_out:
        raise _refusal(path, f"it was not loaded within {seconds:.0f} s", named)
    if BEGUN in ended.output and ended.crashed:
        return ended.reason
    raise _refusal(path, ended.reason, named)


def _refusal(path: Path, why: str, named: str) -> ModelLoadError:
    return ModelLoadError(
        f"{display_name(path.name)} cannot be used: {why}; download it again, or name another "
        f"with {option(named)}"
    )
