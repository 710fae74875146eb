"""Projector trial: load a file that reads images, and lay out its pass: that may end the process.

`run_projector_trial` does it in a child process, `main` is that process's program. llama.cpp loads
files without some tensors, and misses them when it lays out its first pass.
"""

import os
import sys
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.llama import library
from localspec.llama.media import mtmd_library
from localspec.utils.child_process import ChildExit, ChildProcess, exit_code_of

# Written when everything is there but the file: what ends the process later is about that.
BEGUN = "begun"


def run_projector_trial(path: Path, *, seconds: float, action: str) -> ChildExit:
    """Try a projector in a child process; the exit code is 0 for one that works.

    seconds: the time limit. action: reported as progress. Raises OSError where no process can be
    started.
    """
    with ChildProcess(__name__, str(path)) as child:
        return child.wait(seconds=seconds, action=action)


def _try_out(path: Path) -> None:
    """Raises ModelLoadError with what the library refused, without the file's name."""
    mtmd = mtmd_library()
    params = mtmd.mtmd_context_params_default()
    params.use_gpu = params.print_timings = False
    params.warmup = True
    library.clear_log()
    handle = mtmd.mtmd_init_from_file(bytes(path), None, params)
    if not handle:
        raise ModelLoadError(f"cannot be loaded: {library.first_error() or 'no reason given'}")
    mtmd.mtmd_free(handle)


def main(path: str) -> int:
    """Try out the projector at `path`; return the exit code."""
    mtmd_library()
    os.write(1, BEGUN.encode())
    return exit_code_of(lambda: _try_out(Path(path)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
