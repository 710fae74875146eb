"""The first moments of a start: nothing is imported while a Ctrl-C has no answer yet."""

import subprocess
import sys

# What is imported until SIGINT is first given a handler.
_PROGRAM = """
import sys, _signal
import runpy
before, installed = {*sys.modules}, _signal.signal

def signal(number, handler):
    print(*sorted({*sys.modules} - before))
    _signal.signal = installed
    return installed(number, handler)

_signal.signal = signal
sys.argv[1:] = ["--version"]
runpy.run_module("localspec", run_name="__main__", alter_sys=True)
"""


def test_nothing_is_imported_before_ctrl_c_is_answered() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0].split() == ["localspec"]
    assert done.stdout.splitlines()[1].startswith("localspec, version ")


def test_the_package_itself_imports_nothing() -> None:
    program = (
        "import sys; before = {*sys.modules}; import localspec; print({*sys.modules} - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "{'localspec'}"
