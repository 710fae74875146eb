"""How the library ends the process: in one line for who uses the command line."""

import subprocess
import sys

import pytest
from fakes.served import PATIENCE

from localspec.utils.child_process import python_environment

# As CUDA's backend does, in a thread of its own, and as Vulkan's does: an exception of C++.
ABORT = """
f = library.symbol("ggml_abort", None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)
thread = threading.Thread(target=f, args=(b"/build/ggml-cuda.cu", 108, b"CUDA error"))
thread.start()
thread.join()
"""
THROW = 'library.symbol("_Znwm", ctypes.c_void_p, ctypes.c_size_t)(2**62)\n'
# Logged as the library logs it.
LOG = """
for line in (b"CUDA error: out of memory\\n", b"  current device: 0\\n"):
    library._capture(4, line, None)
"""
COMMAND = """
from localspec.cli import main
main.localspec = lambda **_: exec(sys.argv[1])
main.main()
"""
BEGIN = "import ctypes, sys, threading\nfrom localspec.llama import library\n"


def ended(code: str, *, command: bool = False, **environment: str) -> tuple[int, str]:
    """The exit code and standard error of a process that does so, in a command or not."""
    arguments = [f"{BEGIN}{COMMAND if command else 'exec(sys.argv[1])'}", code]
    done = subprocess.run(
        [sys.executable, "-c", *arguments],
        env={**python_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ABORT, "ended the process: ggml-cuda.cu:108: CUDA error; LOCALSPEC"),
        (LOG + ABORT, "CUDA error: out of memory (ggml-cuda.cu:108: CUDA error); pass a smaller"),
        (THROW, "ended the process: std::bad_alloc; pass a smaller --ctx or --gpu-layers; LOCAL"),
    ],
    ids=["assertion", "logged", "exception"],
)
def test_a_command_says_it_in_a_line(code: str, said: str) -> None:
    exit_code, errors = ended(code, command=True)
    assert exit_code == 1
    assert errors.startswith("localspec: error: llama.cpp ended the process: ")
    assert errors.count("\n") == 1
    assert said in errors


def test_old_errors_are_not_the_reason() -> None:
    later = "from localspec.llama import abort\nabort._RECENT_SECONDS = -1\n"
    _, errors = ended(LOG + later + ABORT, command=True)
    assert "out of memory" not in errors


def test_who_looks_for_faults_gets_a_core() -> None:
    exit_code, errors = ended(ABORT, command=True, LOCALSPEC_DEBUG="1")
    assert exit_code == -6
    assert "llama.cpp ends the process: ggml-cuda.cu:108: CUDA error" in errors


@pytest.mark.parametrize(
    ("code", "said"),
    [(ABORT, "/build/ggml-cuda.cu:108: CUDA error"), (THROW, "what():  std::bad_alloc")],
    ids=["assertion", "exception"],
)
def test_other_programs_end_as_before(code: str, said: str) -> None:
    exit_code, errors = ended(code)
    assert exit_code == -6
    assert said in errors
