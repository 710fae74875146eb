"""Native fault: a fault in C, or an exception of C++ that nobody catches, on Windows.

Elsewhere it ends the process. On Windows, ctypes turns it into an OSError; what the library then
holds is as the fault left it.
"""

import os

from localspec.utils import last_words

# As of abort() on Windows.
_ABORTED = 3
# Of the codes of exceptions: those of errors have both highest bits, those of compilers' runtimes,
# for C++, the third.
_ERROR, _OF_A_RUNTIME = 0xC0000000, 1 << 29


def fault_of(error: OSError) -> str | None:
    """Return what the fault was; None for any other error."""
    code = (getattr(error, "winerror", None) or 0) & 0xFFFFFFFF
    # ctypes gives those that it has words for no code.
    if code >= _ERROR or code & _OF_A_RUNTIME or str(error).startswith("exception: "):
        return error.strerror or str(error)
    return None


def end_at_fault(error: OSError) -> None:
    """End this process if the error is a fault, as other systems do; say why first."""
    if (reason := fault_of(error)) is None:
        return
    if not last_words.tell(reason):
        os.write(2, f"{reason}\n".encode())
    os._exit(_ABORTED)
