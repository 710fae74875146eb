"""Native faults: which errors are some, and that they end the process."""

import ctypes
import subprocess
import sys

import pytest

from localspec.utils.native_fault import fault_of

PROGRAM = """
import sys
from contextlib import nullcontext
from localspec.utils.last_words import before_abort
from localspec.utils.native_fault import end_at_fault

end_at_fault(OSError("broken"))
with before_abort(lambda reason: print(reason, flush=True)) if sys.argv[1:] else nullcontext():
    end_at_fault(OSError("exception: a"))
"""


def error_of_windows(code: int, text: str) -> OSError:
    error = OSError(22, text)
    error.winerror = code  # type: ignore[attr-defined, unused-ignore]
    return error


@pytest.mark.parametrize("code", [0xC000001D, 0xE06D7363, 0x20474343])
def test_codes_of_faults(code: int) -> None:
    text = f"Windows Error {code:#x}"
    assert fault_of(error_of_windows(ctypes.c_int32(code).value, text)) == text


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "a.gguf"),
        error_of_windows(5, "Access is denied"),
        OSError("broken"),
    ],
)
def test_other_errors(error: OSError) -> None:
    assert fault_of(error) is None


@pytest.mark.parametrize("listens", [True, False])
def test_it_ends_the_process(listens: bool) -> None:
    command = [sys.executable, "-c", PROGRAM, *["listens"][:listens]]
    done = subprocess.run(command, capture_output=True, text=True)
    told, written = ("exception: a\n", "") if listens else ("", "exception: a\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, told, written)


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere a fault ends the process")
def test_ctypes_raises_it() -> None:
    with pytest.raises(OSError) as raised:
        ctypes.string_at(0)
    assert fault_of(raised.value) == str(raised.value)
