"""Ctrl-C while any command starts, runs and ends."""

import os
import signal
import subprocess
import sys
import time

import pytest
from fakes.generate_runs import posix

# A command in which Ctrl-C comes where Python prints an exception and goes on.
IGNORED = """
import signal, time, weakref
from localspec import __main__ as program

class Thing:
    pass

def command():
    thing = Thing()
    interrupted = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    time.sleep(100)
    print("went on")

program.main = command
program.run()
"""


@posix
@pytest.mark.parametrize("arguments", [["ls"], ["generate", "-n", "400", "--ignore-eos", "a"]])
@pytest.mark.parametrize("wait", [0.5, 1.0, 1.6])
def test_five_quick_interrupts_are_no_error(arguments: list[str], wait: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "localspec", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    time.sleep(wait)
    for _ in range(5):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
        time.sleep(0.01)
    _, errors = child.communicate(timeout=60)
    assert child.returncode in (0, 130, -signal.SIGINT)
    assert b"Traceback" not in errors and b"unexpected" not in errors, errors.decode()


@posix
def test_an_interrupt_that_python_ignores_comes_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IGNORED], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 130
    assert not done.stdout
    assert not done.stderr, done.stderr.decode()
