"""Embedder trial: load an embedding model and compute two texts, which may end the process.

`run_embedder_trial` does it in a child process, `main` is that process's program.
"""

import os
import sys
from pathlib import Path

from localspec.gguf.check import check_embedder
from localspec.llama.embedder import Embedder
from localspec.llama.placement import ON_PROCESSOR
from localspec.utils.child_process import ChildExit, ChildProcess, exit_code_of

# Written when everything is there but the file: what ends the process later is about that.
BEGUN = "begun"
_CONTEXT = 64


def run_embedder_trial(path: Path, *, seconds: float, action: str) -> ChildExit:
    """Try an embedding model in a child process; the exit code is 0 for one that works.

    seconds: the time limit. action: reported as progress. Raises OSError where no process can be
    started.
    """
    with ChildProcess(__name__, str(path)) as child:
        return child.wait(seconds=seconds, action=action)


def _try_out(path: Path) -> None:
    header = check_embedder(path)
    n_ctx = min(header.context_length or _CONTEXT, _CONTEXT)
    with Embedder(path, header, n_ctx, ON_PROCESSOR) as embedder:
        texts = [embedder.pair("one", text) for text in ("a", "another one")]
        embedder.vectors([embedder.shortened(text) for text in texts])


def main(path: str) -> int:
    """Try out the embedding model at `path`; return the exit code."""
    os.write(1, BEGUN.encode())
    return exit_code_of(lambda: _try_out(Path(path)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
