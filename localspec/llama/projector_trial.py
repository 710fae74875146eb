"""Projector trial: load a file that reads images, and lay out its pass: that may end the process.

The program of a child process (`file_trial`). llama.cpp loads files without some tensors, and
misses them when it lays out its first pass.
"""

import os
import sys
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.llama import library
from localspec.llama.media import mtmd_library
from localspec.utils.child_process import BEGUN, exit_code_of


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
