"""Machine: findings about threads and memory."""

import psutil

from localspec.doctor.finding import Finding, note, ok, warning
from localspec.utils.format import format_bytes

_LITTLE = 2 * 10**9


def threads(most: int | None, share: float | None) -> Finding:
    """most: threads a large model gets, if that is known. share: processors' worth of time."""
    logical = psutil.cpu_count() or 1
    text = f"{logical} processors" + (f", {most} threads for a large model" if most else "")
    if most and share is not None and share < most:
        return note(
            "threads",
            f"{text}, and this container gets the time of {share:g}",
            f"--threads {max(1, int(share))}",
        )
    return ok("threads", text)


def memory(free: int | None) -> Finding:
    """free: bytes that models can still get, limits counted; None where nobody could tell."""
    machine = psutil.virtual_memory()
    free = machine.available if free is None else free
    text = f"{format_bytes(free)} of {format_bytes(machine.total)} can be had"
    if free < _LITTLE:
        return warning("memory", text, "end other programs, or take small models and --ctx 2048")
    return ok("memory", text)
