"""A llama.cpp that crashes with extra buffer types, as GCC 12 builds it on a processor with AMX.

Processes that find the folder on their path get it: children of this process, not itself.
"""

from pathlib import Path

_CODE = """
import ctypes
import os
import signal

import llama_cpp

load, decode = llama_cpp.llama_model_load_from_file, llama_cpp.llama_decode
faulty = set()


def address(model):
    return ctypes.cast(model, ctypes.c_void_p).value


def faulty_load(path, params):
    model = load(path, params)
    faulty.discard(address(model))
    if {always} or params.use_extra_bufts:
        faulty.add(address(model))
    return model


def faulty_decode(context, batch):
    if address(llama_cpp.llama_get_model(context)) in faulty:
        os.kill(os.getpid(), signal.SIGSEGV)
    return decode(context, batch)


llama_cpp.llama_model_load_from_file, llama_cpp.llama_decode = faulty_load, faulty_decode
"""


def faulty_library(folder: Path, *, always: bool = False) -> str:
    """Write it to a new folder; returns the folder. always: it crashes without them as well."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_CODE.format(always=always))
    return str(folder)
