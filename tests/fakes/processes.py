"""Processes that do the same at once."""

import subprocess
import sys


def started_at_once(program: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """Two of a program, whose last argument is 1 and 2.

    Each says `ready` once it can begin, and is told to by a line once both are.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments, number],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in ("1", "2")
    ]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return processes
