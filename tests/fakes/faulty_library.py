"""A llama.cpp that crashes with extra buffer types, as GCC 12 builds it on a processor with AMX.

Processes that find the folder on their path get it: children of this process, not itself.
"""

from pathlib import Path

_CODE = """
import os
import signal

import llama_cpp

load, decode = llama_cpp.llama_model_load_from_file, llama_cpp.llama_decode
crashes = {always}


def faulty_load(path, params):
    global crashes
    crashes = crashes or (params.use_extra_bufts and not params.no_alloc)
    return load(path, params)


def faulty_decode(context, batch):
    if crashes:
        os.kill(os.getpid(), signal.SIGSEGV)
    return decode(context, batch)


llama_cpp.llama_model_load_from_file, llama_cpp.llama_decode = faulty_load, faulty_decode
"""


def faulty_library(folder: Path, *, always: bool = False) -> str:
    """Write it to a new folder; returns the folder. always: it crashes without them as well."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_CODE.format(always=always))
    return str(folder)
