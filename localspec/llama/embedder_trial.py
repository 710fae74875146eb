"""Embedder trial: load an embedding model and compute two texts, which may end the process.

The program of a child process (`file_trial`).
"""

import os
import sys
from pathlib import Path

from localspec.gguf.check import check_embedder
from localspec.llama.embedder import Embedder
from localspec.llama.placement import ON_PROCESSOR
from localspec.utils.child_process import BEGUN, exit_code_of

_CONTEXT = 64


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
