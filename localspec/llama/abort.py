"""Abort: the ways in which the library ends the process itself, and what is done before."""

import atexit
import ctypes
import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from localspec.utils import last_words
from localspec.utils.format import printable, without_folder

# `std::set_terminate`, and what GCC's and LLVM's runtimes know of an exception; as all compilers
# but Microsoft's name them.
_SET_TERMINATE = "_ZSt13set_terminatePFvvE"
_EXCEPTION_TYPE, _DEMANGLE = "__cxa_current_exception_type", "__cxa_demangle"
# Errors that were logged earlier are not the reason.
_RECENT_SECONDS = 2.0
_LONGEST_REASON = 300
_errors: deque[tuple[float, str]] = deque(maxlen=8)
# The library keeps the pointers: they live as long. What was registered before, by name.
_callbacks: list[Any] = []
_before: dict[str, int | None] = {}
Symbol = Callable[..., Any]


def note_error(line: str) -> None:
    """Note what the library has logged as an error; it may be the reason."""
    _errors.append((monotonic(), line.strip()))


def install(symbol: Symbol) -> None:
    """Take part in the ends of this process until Python itself ends. symbol: as of library."""
    pointer = ctypes.c_void_p
    for name, callback in (
        ("ggml_set_abort_callback", ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_on_abort)),
        (_SET_TERMINATE, ctypes.CFUNCTYPE(None)(lambda: _on_terminate(symbol))),
    ):
        if register := symbol(name, pointer, pointer):
            _callbacks.append(callback)
            before = register(ctypes.cast(callback, pointer))
            _before[name] = before
            # Behind that no callback may run.
            atexit.register(register, before)


def _on_abort(message: bytes) -> None:
    """Of `ggml_abort`, which ends the process next, and without a word of its own."""
    said = without_folder(message.decode("utf-8", "replace"))
    if not last_words.tell(_reason(said)):
        os.write(2, message + b"\n")


def _on_terminate(symbol: Symbol) -> None:
    """Of C++, for an exception that nobody catches."""
    last_words.tell(_reason(_exception(symbol)))
    if before := _before[_SET_TERMINATE]:
        ctypes.CFUNCTYPE(None)(before)()


def _reason(said: str) -> str:
    """What was said at the end, with the first error that was logged just before."""
    begin = monotonic() - _RECENT_SECONDS
    logged = [line for moment, line in [*_errors] if moment > begin]
    return printable(f"{logged[0]} ({said})" if logged else said)[:_LONGEST_REASON]


def _exception(symbol: Symbol) -> str:
    """The type of the exception, such as "vk::DeviceLostError"."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    type_of, demangle = symbol(_EXCEPTION_TYPE, pointer), symbol(_DEMANGLE, text, *[pointer] * 4)
    found = type_of() if type_of and demangle else None
    if not found:
        return "an exception of C++"
    # A `std::type_info` is its table of functions, and its name.
    name = text.from_address(found + ctypes.sizeof(pointer)).value or b""
    plain = demangle(ctypes.cast(ctypes.create_string_buffer(name), pointer), None, None, None)
    return str((plain or name).decode("utf-8", "replace"))
